//! Provoked faults of the library itself: a program sees them as an error response.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::engine::Engine;
use crate::error::Kind;
use crate::in_flight::Kept;
use crate::request::Request;
use crate::response::Response;
use crate::target::Target;

fn get(engine: &Arc<Engine>, url: &str) -> Arc<Response> {
    let request = Arc::new(Request::new(Arc::clone(engine)).expect("a request"));
    let target = Target::parse(url.as_bytes()).expect("a URL");
    request
        .change(|spec| {
            spec.target = Some(target);
            Ok(())
        })
        .expect("idle");
    let kept = Kept::default();
    Arc::clone(&request).start(None, Some(Arc::clone(&kept))).expect("started");
    request.wait(None).expect("not on its thread");
    Arc::clone(kept.get().expect("it has completed"))
}

#[test]
fn an_engine_fault_ends_only_its_request() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let origin = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("a client");
        let _head = client.read(&mut [0; 4096]).expect("a request");
        client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").expect("sent");
    });
    let engine = Arc::new(Engine::new().expect("an engine"));

    let failed = get(&engine, &format!("{url}/provoke/a/fault"));
    let failure = failed.failure.as_ref().expect("no answer");
    assert_eq!((failure.kind, failed.status), (Kind::Internal, 0));
    assert_eq!(engine.numbers().expect("ours").panics.load(Relaxed), 1);

    let answer = get(&engine, &url);
    assert_eq!((answer.status, &answer.body[..]), (200, &b"ok"[..]));
    assert!(!engine.stop(std::time::Duration::from_secs(30)).expect("not on its thread"));
    assert_eq!(engine.numbers().expect("ours").active.load(Relaxed), 0);
    origin.join().expect("the origin");
}
