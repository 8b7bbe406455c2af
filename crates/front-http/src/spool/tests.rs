//! Tests byte queues: order, limits, the file, and a full disk.

use std::future::poll_fn;
use std::task::Waker;

use super::*;

const MIB: u64 = 1 << 20;

fn spools(memory: u64, disk: u64) -> Arc<Spools> {
    Arc::new(Spools::new(memory, disk, std::env::temp_dir()))
}

/// Returns bytes whose order is visible: each pair is its own number.
fn pattern(from: usize, length: usize) -> Bytes {
    (from..from + length).map(|at| (at % 251).to_le_bytes()[0]).collect()
}

/// Appends up to `most` bytes in pieces of `size`; returns how many had room.
async fn fill(spool: &mut Spool, size: usize, most: usize) -> usize {
    let mut done = 0;
    while done < most {
        match poll_fn(|cx| spool.poll_room(cx)).await.expect("the disk has room") {
            Room::Free => spool.append(pattern(done, size.min(most - done))),
            Room::Full => break,
        }
        done += size.min(most - done);
    }
    done
}

async fn read_all(spool: &mut Spool) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(piece) = poll_fn(|cx| spool.poll_next(cx)).await {
        all.extend_from_slice(&piece.expect("the file can be read"));
    }
    all
}

#[tokio::test]
async fn bytes_come_out_in_order_from_memory_and_from_the_file() {
    for size in [1, 100, 5000, 70_000] {
        for total in [0, 1, 50_000, 900_000] {
            let spools = spools(MIB, 100 * MIB);
            let mut spool = Spool::new(&spools, Limits { memory: 20_000, file: 10 * MIB });
            assert_eq!(fill(&mut spool, size, total).await, total);
            assert_eq!(spool.uses_disk(), total > size.max(20_000), "{size} {total}");
            assert_eq!(spool.appended(), total as u64);
            assert!(read_all(&mut spool).await == pattern(0, total), "{size} {total}");
            assert!(spool.is_empty());
            assert_eq!((spools.memory.used(), spools.disk.used()), (0, 0));
        }
    }
}

#[tokio::test]
async fn a_queue_that_is_read_while_it_grows_keeps_the_order_and_returns_to_memory() {
    let spools = spools(MIB, 100 * MIB);
    let mut spool = Spool::new(&spools, Limits { memory: 10_000, file: 10 * MIB });
    let (mut written, mut read) = (0, 0);
    for round in 0..60_usize {
        for _ in 0..round % 7 {
            assert_eq!(poll_fn(|cx| spool.poll_room(cx)).await.unwrap(), Room::Free);
            spool.append(pattern(written, 9000 * (round % 5)));
            written += 9000 * (round % 5);
        }
        for _ in 0..round % 4 {
            if let Some(piece) = poll_fn(|cx| spool.poll_next(cx)).await {
                let piece = piece.unwrap();
                assert_eq!(piece, pattern(read, piece.len()));
                read += piece.len();
            }
        }
    }
    assert!(spool.uses_disk());
    let rest = read_all(&mut spool).await;
    assert!(rest == pattern(read, written - read));
    assert!(!spool.uses_disk(), "a queue that was read to its end starts again in memory");
    assert_eq!((spools.memory.used(), spools.disk.used()), (0, 0));
}

#[tokio::test]
async fn a_queue_is_full_at_its_limits_and_takes_more_once_it_was_read() {
    let spools = spools(100 * MIB, 100 * MIB);
    for file in [0, MIB] {
        let limits = Limits { memory: 300_000, file };
        let mut spool = Spool::new(&spools, limits);
        let held = fill(&mut spool, 10_000, 50_000_000).await as u64;
        let slack = 3 * BATCH as u64;
        assert!(held >= 300_000 + file - BATCH as u64 * file.min(1), "{held}");
        assert!(held <= 300_000 + file + slack, "{held}");
        assert!(spools.memory.used() <= 300_000 + slack);
        assert_eq!(read_all(&mut spool).await.len() as u64, held);
        assert_eq!(fill(&mut spool, 10_000, 50_000_000).await as u64, held);
        drop(spool);
        assert_eq!((spools.memory.used(), spools.disk.used(), spools.files.used()), (0, 0, 0));
    }
}

#[tokio::test]
async fn all_queues_together_stay_within_the_shared_limits() {
    let spools = spools(MIB, 2 * MIB);
    let limits = Limits { memory: 200_000, file: 100 * MIB };
    let mut queues = Vec::new();
    for _ in 0..40 {
        let mut spool = Spool::new(&spools, limits);
        fill(&mut spool, 16_000, 1_000_000).await;
        queues.push(spool);
    }
    assert!(spools.disk.used() <= 2 * MIB);
    // Five queues fill the memory; each other one has a small batch and a piece in memory.
    let most = MIB + 5 * 2 * BATCH as u64 + 40 * 2 * (CROWDED_BATCH + 16_000) as u64;
    assert!(spools.memory.used() <= most, "{}", spools.memory.used());
    for mut spool in queues {
        let appended = spool.appended();
        assert_eq!(read_all(&mut spool).await.len() as u64, appended);
    }
    assert_eq!((spools.memory.used(), spools.disk.used()), (0, 0));
}

#[tokio::test]
async fn reserved_descriptors_are_not_used_for_files() {
    let spools = Spools::new(MIB, 100 * MIB, std::env::temp_dir()).below(Some(0));
    let mut spool = Spool::new(&Arc::new(spools), Limits { memory: 1000, file: MIB });
    let mut written = 0;
    let error = loop {
        match poll_fn(|cx| spool.poll_room(cx)).await {
            Ok(room) => assert_eq!(room, Room::Free),
            Err(error) => break error,
        }
        spool.append(pattern(written, 10_000));
        written += 10_000;
        assert!(written < 1_000_000, "there is no file");
    };
    assert!(is_disk_full(&error));
    assert!(read_all(&mut spool).await == pattern(0, written));
}

#[tokio::test]
async fn the_number_of_spool_files_is_limited() {
    let mut spools = Spools::new(MIB, 100 * MIB, std::env::temp_dir());
    spools.limit_files(3);
    let spools = Arc::new(spools);
    let mut queues: Vec<Spool> =
        (0..5).map(|_| Spool::new(&spools, Limits { memory: 1000, file: MIB })).collect();
    for (n, spool) in queues.iter_mut().enumerate() {
        let done = fill(spool, 10_000, 500_000).await;
        assert_eq!(done == 500_000, n < 3, "queue {n}: {done}");
    }
    assert_eq!(spools.files.used(), 3);
    queues.remove(0);
    let last = queues.last_mut().expect("four are left");
    assert_eq!(poll_fn(|cx| last.poll_room(cx)).await.unwrap(), Room::Free);
    drop(queues);
    assert_eq!(spools.files.used(), 0);
}

#[tokio::test]
async fn an_unwritable_directory_is_an_error_and_no_byte_is_lost() {
    let spools = Arc::new(Spools::new(MIB, 100 * MIB, "/dev/null/nowhere".into()));
    let mut spool = Spool::new(&spools, Limits { memory: 1000, file: 10 * MIB });
    let mut written = 0;
    let error = loop {
        match poll_fn(|cx| spool.poll_room(cx)).await {
            Ok(room) => assert_eq!(room, Room::Free),
            Err(error) => break error,
        }
        spool.append(pattern(written, 10_000));
        written += 10_000;
        assert!(written < 1_000_000, "nothing can be written");
    };
    assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
    assert!(read_all(&mut spool).await == pattern(0, written));
    assert_eq!(spools.disk.used(), 0);
    let room = spool.poll_room(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(room, Poll::Ready(Ok(Room::Free))), "it starts again in memory");
}

#[test]
fn a_full_disk_and_a_full_quota_are_recognised() {
    for (errno, full) in [(28, true), (122, true), (5, false)] {
        assert_eq!(is_disk_full(&io::Error::from_raw_os_error(errno)), full);
    }
}
