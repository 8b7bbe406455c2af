use std::io;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll};

use http::{HeaderMap, Request, Uri};
use http_body_util::Full;
use pool::{DispatchError, RequestContext, RequestId, Scheme, Script};
use tokio::io::ReadBuf;

use super::super::routes::WebSocketOptions;
use super::*;
use crate::forwarded::ForwardedInfo;
use crate::front::Front;
use crate::options::Options;
use crate::request_body::RequestBody;
use crate::websocket::events::Fields;

/// An application that answers every event with an empty body.
#[derive(Clone, Default)]
struct App {
    closed: Arc<AtomicBool>,
}

impl Application for App {
    type Body = Full<Bytes>;

    async fn call(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<Full<Bytes>>, DispatchError> {
        let context = request.extensions().get::<RequestContext>().expect("the front gives it");
        let closes = ("HEARTH_SOCKET_EVENT", Bytes::from_static(b"close"));
        self.closed.fetch_or(context.variables.contains(&closes), Relaxed);
        Ok(Response::new(Full::default()))
    }
}

/// A TLS stream of a client that does not read: `close_notify` cannot be written.
struct Unread;

impl AsyncRead for Unread {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl AsyncWrite for Unread {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

fn visitor(seat: &Seat) -> Visitor {
    let address = ([127, 0, 0, 1], 80).into();
    let context = RequestContext {
        script: Script {
            filename: Arc::from(std::path::Path::new("")),
            name: Arc::from(""),
            path_info: Arc::from(""),
            document_root: Arc::from(std::path::Path::new("")),
        },
        remote: address,
        local: address,
        scheme: Scheme::Https,
        server_name: Arc::from("a.example"),
        server_port: 443,
        remote_user: None,
        id: RequestId(Arc::from("1")),
        hints: None,
        observer: None,
        deadline: None,
        trace: None,
        variables: Vec::new(),
    };
    Visitor {
        id: seat.id(),
        uri: Uri::from_static("/chat"),
        handler: "/index.php".to_owned(),
        fields: Fields::of(&HeaderMap::new()),
        forwarded: ForwardedInfo::default(),
        context,
        protocol: None,
        limits: WebSocketOptions::default().limits,
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_take_the_end_of_tls_is_cut_and_its_close_is_reported() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("index.php"), "<?php").unwrap();
    let mut options = Options::new(root.path());
    options.listen.clear();
    options.forwarded_connections = true;
    let app = App::default();
    let front = Front::bind(options, app.clone()).await.unwrap().shared();
    let limits = WebSocketOptions::default().limits;
    let seat = front.websockets.seat(&Arc::from("main"), None, &limits).unwrap();
    let accepted = Box::new(Accepted { visitor: visitor(&seat), seat, deflate: false });
    // A close frame of the client, masked with zeros.
    let close = [0x88, 0x80, 0, 0, 0, 0];
    let began = Instant::now();
    let session = begin(front, accepted, Unread, &close, CancellationToken::new());
    tokio::time::timeout(Duration::from_mins(1), session).await.expect("it ends");
    assert_eq!(began.elapsed().as_secs(), CLOSE_PATIENCE.as_secs());
    assert!(app.closed.load(Relaxed));
}
