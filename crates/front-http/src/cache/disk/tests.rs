use std::time::Duration;

use answer_cache::Key;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::*;
use crate::cache::store::Store;
use crate::cache::{AnswerCache, CacheOptions, DiskOptions, copies_of};

const KEY: &[u8] = b"\0\0\0\x50http://a.test/x\0";

fn entry(key: &[u8], id: u64, body: &'static [u8]) -> Arc<Entry> {
    let mut headers = HeaderMap::new();
    for (name, value) in [("link", "<a>"), ("link", "<b>"), ("x-empty", ""), ("etag", "\"1\"")] {
        headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    let freshness = Freshness {
        lifetime: Duration::from_mins(1),
        initial_age: Duration::ZERO,
        while_revalidate: Duration::ZERO,
        if_error: Duration::ZERO,
        validate_always: false,
        for_authorization: false,
    };
    Arc::new(Entry {
        status: StatusCode::OK,
        headers,
        body: Bytes::from_static(body),
        freshness,
        since: Instant::now(),
        tags: [7].into(),
        id,
        key: key.into(),
        release: 0,
    })
}

fn open(limit: u64) -> (tempfile::TempDir, Disk) {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::open(folder.path(), limit, Arc::default()).unwrap();
    (folder, disk)
}

fn offer(disk: &Disk, entry: &Arc<Entry>) {
    disk.offer(&entry.key, &Slot::Entry(Arc::clone(entry)), disk.shared.purges.settled());
}

fn offer_rule(disk: &Disk, key: &[u8]) {
    let mut headers = HeaderMap::new();
    headers.insert("vary", HeaderValue::from_static("accept-language"));
    let rule = answer_cache::Rule::read(&headers).unwrap().unwrap();
    let variants = Arc::new(Variants { rule, id: 9, release: 0 });
    disk.offer(key, &Slot::Rule(variants), disk.shared.purges.settled());
}

/// Waits until the thread has done what was asked of it so far.
fn settle(disk: &Disk) {
    let (done, wait) = channel();
    disk.jobs.send(Job::Tell(done)).unwrap();
    wait.recv().unwrap();
}

#[tokio::test]
async fn an_answer_comes_back_from_disk_as_it_was() {
    let (folder, disk) = open(1 << 20);
    let written = entry(KEY, 3, b"the body");
    offer(&disk, &written);
    settle(&disk);
    let read = disk.read(KEY).await.unwrap();
    assert_eq!(
        (read.status, &read.headers, &read.body),
        (written.status, &written.headers, &written.body)
    );
    assert_eq!((read.since, read.id, &read.tags), (written.since, 3, &written.tags));
    assert!(disk.has(&read) && !disk.has(&entry(KEY, 4, b"")));
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "the file has no name");
    // It is there already.
    offer(&disk, &written);
    settle(&disk);
    assert_eq!((disk.report().written, disk.report().hits), (1, 1));
}

#[tokio::test]
async fn answers_on_disk_stay_below_the_bound_and_give_their_space_back() {
    let (_folder, disk) = open(16 * BLOCK);
    let body: &'static [u8] = &[b'x'; 5000];
    for number in 0..100_u8 {
        offer(&disk, &entry(&[KEY, &[number]].concat(), number.into(), body));
        settle(&disk);
    }
    let report = disk.report();
    assert_eq!(report.written, 100);
    assert!(report.bytes <= report.limit && report.entries > 0, "{report:?}");
    settle(&disk);
    let Kept::Answer(last) = disk.shared.index.iter().next().unwrap().1 else {
        panic!("an answer")
    };
    let space = std::os::unix::fs::MetadataExt::blocks(&last.extent.file.metadata().unwrap()) * 512;
    assert!(space <= report.limit + BLOCK, "{space} bytes of space");
    drop(last);
    disk.retain(|_key, _kept| false);
    settle(&disk);
    assert_eq!(disk.report().entries, 0);
}

#[tokio::test]
async fn what_is_purged_on_its_way_to_disk_is_not_kept() {
    let (_folder, disk) = open(1 << 20);
    let purges = Arc::clone(&disk.shared.purges);
    let (blocker, free) = channel();
    disk.jobs.send(Job::Wait(free)).unwrap();
    offer(&disk, &entry(KEY, 1, b"old"));
    let tags = crate::cache::purges::Purge::Tags { application: None, tags: vec![7] };
    purges.purge(tags, || disk.retain(|_key, _kept| false));
    drop(blocker);
    settle(&disk);
    assert!(disk.read(KEY).await.is_none());
    offer(&disk, &entry(KEY, 2, b"new"));
    settle(&disk);
    assert_eq!(disk.read(KEY).await.unwrap().id, 2);
}

/// Invented addresses: each needs 4 KiB on disk, and its key in memory.
#[tokio::test]
async fn what_needs_much_memory_in_the_index_is_not_kept() {
    let (_folder, disk) = open(1 << 20);
    let long = [KEY, &[b'x'; 1 << 10]].concat();
    offer(&disk, &entry(&long, 1, b"body"));
    offer_rule(&disk, &long);
    let mut tagged = Arc::into_inner(entry(KEY, 2, b"body")).unwrap();
    tagged.tags = (0..200).collect();
    offer(&disk, &Arc::new(tagged));
    settle(&disk);
    assert_eq!((disk.report().entries, disk.report().written), (0, 0));
    offer_rule(&disk, KEY);
    settle(&disk);
    assert_eq!(disk.report().entries, 1);
}

#[tokio::test]
async fn what_waits_for_a_slow_disk_has_a_bound() {
    let (_folder, disk) = open(1 << 20);
    let (blocker, free) = channel();
    disk.jobs.send(Job::Wait(free)).unwrap();
    let mut redirect = Arc::into_inner(entry(KEY, 1, b"")).unwrap();
    let long = HeaderValue::try_from("x".repeat(16 << 10)).unwrap();
    redirect.headers.insert(http::header::LOCATION, long);
    let redirect = Arc::new(redirect);
    for _ in 0..WAITING >> 14 {
        offer(&disk, &redirect);
    }
    let dropped = disk.report().dropped;
    assert!(dropped > 0, "an answer without a body counts");
    for _ in 0..WAITING >> 14 {
        offer_rule(&disk, &[KEY, &[b'x'; 900]].concat());
    }
    assert!(disk.report().dropped > dropped, "a rule counts");
    assert!(disk.shared.waiting.load(Ordering::Relaxed) <= WAITING);
    drop(blocker);
    settle(&disk);
    assert_eq!(disk.shared.waiting.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn changed_bytes_are_not_sent() {
    let (_folder, disk) = open(1 << 20);
    offer(&disk, &entry(KEY, 1, b"the body"));
    settle(&disk);
    let Some(Kept::Answer(kept)) = disk.shared.index.get(KEY) else { panic!("an answer") };
    kept.extent.file.write_all_at(b"!", kept.extent.at + kept.extent.size as u64 - 1).unwrap();
    assert!(disk.read(KEY).await.is_none());
    assert_eq!((disk.report().failed, disk.report().entries), (1, 0));
}

#[test]
fn a_folder_that_cannot_be_used_is_an_error() {
    assert!(Disk::open(Path::new("/nonexistent"), 1 << 20, Arc::default()).is_err());
}

#[tokio::test]
async fn memory_offers_what_it_evicts() {
    let (_folder, disk) = open(1 << 20);
    let (disk, purges) = (Arc::new(disk), Arc::<Purges>::default());
    let store = Store::new(64 << 10, Some((Arc::clone(&disk), purges)));
    let body: &'static [u8] = &[b'x'; 8000];
    for number in 0..50_u8 {
        let entry = entry(&[KEY, &[number]].concat(), number.into(), body);
        store.insert(&entry.key, &Slot::Entry(Arc::clone(&entry)));
    }
    settle(&disk);
    assert_eq!(disk.report().entries, store.evicted());
    assert!(disk.report().entries >= 40);
}

#[tokio::test]
async fn a_replaced_answer_is_neither_an_eviction_nor_written() {
    let (_folder, disk) = open(1 << 20);
    let (disk, purges) = (Arc::new(disk), Arc::<Purges>::default());
    let store = Store::new(64 << 10, Some((Arc::clone(&disk), purges)));
    for id in 1..9 {
        store.insert(KEY, &Slot::Entry(entry(KEY, id, b"body")));
    }
    settle(&disk);
    assert_eq!((store.evicted(), disk.report().written), (0, 0));
    assert!(matches!(store.get(KEY), Some(Slot::Entry(kept)) if kept.id == 8));
    // Memory has no room for this one: it replaces the other, and goes to disk itself.
    let mut large = Arc::into_inner(entry(KEY, 9, b"")).unwrap();
    large.body = vec![b'x'; 128 << 10].into();
    store.insert(KEY, &Slot::Entry(Arc::new(large)));
    settle(&disk);
    assert_eq!((store.evicted(), disk.report().written), (1, 1));
    assert!(disk.has(&entry(KEY, 9, b"")) && store.get(KEY).is_none());
}

/// The number by which the copies of a target are found goes to disk, too.
#[tokio::test]
async fn copies_come_back_from_disk_and_are_invalidated_there() {
    let folder = tempfile::tempdir().unwrap();
    let options = CacheOptions {
        memory: 1 << 20,
        answer: 1 << 10,
        disk: Some(DiskOptions { folder: folder.path().into(), limit: 1 << 20 }),
        ignored_cookies: Vec::new(),
        status_header: false,
    };
    let cache = AnswerCache::new(&options).unwrap();
    let disk = cache.disk.as_ref().unwrap();
    let mut headers = HeaderMap::new();
    let key = |headers: &HeaderMap| {
        let (host, uri) = (&b"a.test"[..], "/x".parse().unwrap());
        let target = answer_cache::Target {
            application: 0,
            secure: false,
            port: 80,
            host,
            uri: &uri,
            headers,
        };
        Key::of(&target).unwrap()
    };
    let plain = key(&headers);
    headers.insert("x-forwarded-user", HeaderValue::from_static("a"));
    let copy = key(&headers);
    let found = async || cache.look(&copy, &HeaderMap::new()).await.map(|entry| entry.id);
    let base = cache.base_or_new(&copy, 0);
    cache.store.insert(&base, &Slot::Entry(entry(&base, 5, b"body")));
    let evict = || {
        for at in [&*base, &*copies_of(&copy)] {
            if let Some(slot) = cache.store.get(at) {
                disk.offer(at, &slot, cache.purges.settled());
                cache.store.remove(at);
            }
        }
        settle(disk);
    };
    assert_eq!(found().await, Some(5));
    evict();
    assert_eq!((cache.report().entries, found().await), (0, Some(5)));
    evict();
    cache.invalidate(&plain);
    assert_eq!(found().await, None);
    assert_ne!(cache.base_or_new(&copy, 0), base, "the next copies have another number");
}
