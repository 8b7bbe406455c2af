//! Tests that a second front takes the UDP socket over while connections of the first one go on.

use bytes::Bytes;
use front_http::{Address, Front, Listen, Options};
use http::{Request, StatusCode};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::http3::{Http3, head, read, url};
use crate::support::{App, LONG, until};
use crate::tls::certificates;

struct Process {
    app: App,
    front: Option<Front<App>>,
    succeeded: CancellationToken,
    stop: Option<oneshot::Sender<()>>,
    tasks: JoinSet<()>,
}

impl Process {
    /// Binds a front, with the sockets of another process if there is one.
    async fn start(root: &std::path::Path, before: Option<&Self>, address: &str) -> Self {
        let mut options = Options::new(root);
        options.listen = vec![Listen::tls(Address::Tcp(address.to_owned()))];
        options.tls = Some(certificates());
        options.http3 = true;
        let given = before.map_or_else(Vec::new, |before| {
            before.front.as_ref().expect("shared before it serves").share().unwrap()
        });
        let app = App::default();
        let front = Front::bind_with(options, given, app.clone()).await.unwrap();
        let succeeded = front.succeeded();
        Self { app, front: Some(front), succeeded, stop: None, tasks: JoinSet::new() }
    }

    fn serve(&mut self) {
        let front = self.front.take().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        self.stop = Some(stop);
        self.tasks.spawn(front.serve(async { drop(stopped.await) }));
    }

    async fn end(&mut self) {
        drop(self.stop.take());
        tokio::time::timeout(LONG, self.tasks.join_next()).await.expect("it ends");
    }
}

#[tokio::test]
async fn old_http3_connections_reach_the_old_process_after_upgrades() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("index.php"), "<?php").unwrap();
    let mut first = Process::start(root.path(), None, "127.0.0.1:0").await;
    let front_http::Bound::Tcp { address, .. } = first.front.as_ref().unwrap().addresses()[0]
    else {
        panic!("TCP")
    };
    let name = address.to_string();
    let mut second = Process::start(root.path(), Some(&first), &name).await;
    let mut third = Process::start(root.path(), Some(&second), &name).await;
    first.serve();

    // The first process has an upload under way and a request that waits.
    let mut old = Http3::to(address).await;
    let mut held = old.send(Request::get(url("/held")), b"").await;
    let mut upload = old.begin(Request::put(url("/upload"))).await;
    upload.send_data(Bytes::from_static(b"begin")).await.unwrap();
    until(&first.app.called, 1).await;

    first.succeeded.cancel();
    second.serve();
    let mut middle = Http3::to(address).await;
    let mut held_by_second = middle.send(Request::get(url("/held")), b"").await;
    until(&second.app.called, 1).await;
    second.succeeded.cancel();
    third.serve();

    let mut new = Http3::to(address).await;
    assert_eq!(new.get("/a").await.1, b"app /a");
    assert_eq!(third.app.called.load(std::sync::atomic::Ordering::SeqCst), 1);

    // By way of both newer processes.
    for _ in 0..64 {
        upload.send_data(vec![b'x'; 16 << 10].into()).await.unwrap();
    }
    upload.finish().await.unwrap();
    assert_eq!(head(&mut upload).await.status(), StatusCode::OK);
    assert_eq!(read(&mut upload).await.unwrap(), format!("{} bytes", 5 + (1 << 20)).into_bytes());
    first.app.release.notify_one();
    assert_eq!(read_answer(&mut held).await, b"held");
    second.app.release.notify_one();
    assert_eq!(read_answer(&mut held_by_second).await, b"held");
    // Old connections were told to go.
    let request = Request::get(url("/a")).body(()).unwrap();
    let again = old.requests.send_request(request).await;
    assert!(again.is_err() || again.unwrap().recv_response().await.is_err());
    first.end().await;
    second.end().await;
    assert_eq!(new.get("/b").await.1, b"app /b");
    assert_eq!(first.app.called.load(std::sync::atomic::Ordering::SeqCst), 2);
}

async fn read_answer(stream: &mut crate::http3::Stream) -> Vec<u8> {
    assert_eq!(head(stream).await.status(), StatusCode::OK);
    read(stream).await.unwrap()
}
