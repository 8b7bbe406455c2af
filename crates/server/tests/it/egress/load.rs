//! The broker under load: large bodies, a thousand callers, no place left.

use super::*;

#[test]
fn bodies_of_100_mb_pass_both_ways_in_bounded_memory() {
    const LENGTH: u64 = 100_000_000;
    let broker = Broker::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("body");
    let bytes: Vec<u8> = (0..LENGTH).map(testkit::pattern).collect();
    std::fs::write(&file, &bytes).unwrap();
    let upload = format!("@{}", file.display());
    for origin in [Origin::plain(routes), Origin::tls(routes)] {
        let before = ProcessFacts::of(broker.process.pid()).unwrap().resident;
        let over = AtomicBool::new(false);
        let (answer, most) = std::thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let mut most = 0;
                while !over.load(Ordering::Relaxed) {
                    most = most.max(ProcessFacts::of(broker.process.pid()).unwrap().resident);
                    std::thread::sleep(Duration::from_millis(10));
                }
                most
            });
            let arguments = ["--max-time", "120", "--data-binary", &upload];
            let answer = broker.curl(&arguments, &origin.url("/echo"));
            over.store(true, Ordering::Relaxed);
            (answer, watcher.join().unwrap())
        });
        assert_eq!(answer.status, 0, "{}", answer.heads);
        assert!(answer.body == bytes, "{} bytes came back changed", answer.body.len());
        let grown = most.saturating_sub(before);
        assert!(grown < 16 << 20, "{before} bytes resident have grown by {grown}");
    }
}

#[test]
fn a_thousand_callers_at_once_are_all_answered() {
    const CALLERS: usize = 1000;
    let broker = Broker::start(&[]);
    let origin = Origin::tls(|_| Reply::text("done").delayed(Duration::from_millis(300)).into());
    let request = format!("GET {} HTTP/1.1\r\nHost: hearth\r\n\r\n", origin.url("/"));
    let mut callers: Vec<UnixStream> = (0..CALLERS)
        .map(|_| {
            let mut stream = UnixStream::connect(broker.socket()).unwrap();
            stream.set_read_timeout(Some(LIMIT)).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            stream
        })
        .collect();
    let mut answered = 0;
    for caller in &mut callers {
        let mut answer = String::new();
        caller.read_to_string(&mut answer).unwrap();
        if answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("done") {
            answered += 1;
        } else {
            // A declined call is answered too: the caller makes the call itself.
            assert!(answer.contains("hearth-declined: queue;"), "{answer}");
        }
    }
    assert!(answered > CALLERS / 2, "{answered} of {CALLERS}");
    assert!(origin.connections().len() <= 8, "{}", origin.connections().len());
}

#[test]
fn a_full_broker_declines_and_recovers() {
    let broker = Broker::start_with(&[("HEARTH_EGRESS_CALLERS", "2")], &[]);
    let origin = Origin::plain(|seen| match seen.path() {
        "/hold" => Turn::Never,
        _ => routes(seen),
    });
    let hold = format!("GET {} HTTP/1.1\r\nHost: hearth\r\n\r\n", origin.url("/hold"));
    let mut held: Vec<UnixStream> = (0..2)
        .map(|_| {
            let mut stream = UnixStream::connect(broker.socket()).unwrap();
            stream.write_all(hold.as_bytes()).unwrap();
            stream
        })
        .collect();
    eventually("both calls have reached the origin", LIMIT, || origin.requests().len() == 2);
    let answer = broker.curl(&[], &origin.url("/bytes/1"));
    assert!(answer.field("hearth-declined").unwrap().starts_with("full;"), "{answer:?}");
    held.pop();
    eventually("there is room again", LIMIT, || {
        broker.curl(&[], &origin.url("/bytes/1")).body.len() == 1
    });
}
