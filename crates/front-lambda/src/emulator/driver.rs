//! Runs the emulator: its socket, its connections and its tasks.
//!
//! Invariants
//! - Every task belongs to [`Emulator::serve`] and ends with it.
//! - Invocations in progress may end after the drain began, for as long as on AWS.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::answer::{Body, BrokenOff};
use super::shared::{Afterwards, PATIENCE, Shared};
use super::{FunctionError, Options, extensions_api, invocations, runtime_api, web};

/// Maximum number of connections; further ones wait in the system's queue.
const CONNECTIONS: usize = 1024;
/// How long connections may take to close after that.
const GRACE: Duration = Duration::from_millis(500);
/// A bound emulator.
#[derive(Debug)]
pub struct Emulator {
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
    lines: mpsc::Receiver<Afterwards>,
}

/// Informs a running emulator of what the Runtime API does not show.
#[derive(Clone, Debug)]
pub struct Handle(Arc<Shared>);

impl Handle {
    /// Reports that the runtime has exited: its invocations fail with this error, and waiting ones wait for another
    /// runtime.
    pub fn exited(&self, error: &FunctionError) {
        self.0.act(|environment, now| environment.exited(now, error));
    }

    /// Waits until the runtime has asked for its first event.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn ready(&self) {
        self.0.ready.cancelled().await;
    }
}

impl Emulator {
    /// Binds the address.
    pub async fn bind(options: Options) -> io::Result<Self> {
        let listener = TcpListener::bind(options.listen).await?;
        let address = listener.local_addr()?;
        let (shared, lines) = Shared::new(options, address);
        Ok(Self { listener, address, shared, lines })
    }

    /// Returns the listening address with its port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a handle for what the Runtime API does not show.
    pub fn handle(&self) -> Handle {
        Handle(Arc::clone(&self.shared))
    }

    /// Serves until `drain` is cancelled; then invocations in progress may end, and extensions are notified.
    pub async fn serve(self, drain: CancellationToken) {
        let Self { listener, shared, mut lines, .. } = self;
        let mut tasks = JoinSet::new();
        let mut writer = JoinSet::new();
        {
            let shared = Arc::clone(&shared);
            writer.spawn(async move {
                while let Some(action) = lines.recv().await {
                    if let Afterwards::Over = action {
                        break;
                    }
                    shared.afterwards(action);
                }
            });
        }
        {
            let shared = Arc::clone(&shared);
            tasks.spawn(async move { shared.keep_time().await });
        }
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let accepted = tokio::select! {
                accepted = async {
                    let place = Arc::clone(&places).acquire_owned().await;
                    let place = place.expect("the semaphore is never closed");
                    listener.accept().await.map(|(stream, remote)| (place, stream, remote))
                } => accepted,
                () = drain.cancelled() => break,
            };
            match accepted {
                Ok((place, stream, remote)) => {
                    let shared = Arc::clone(&shared);
                    tasks.spawn(async move {
                        connection(shared, stream, remote).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "the emulator cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
            while tasks.try_join_next().is_some() {}
        }
        shared.act(|environment, _now| environment.shut_down());
        let deadline = Instant::now() + PATIENCE;
        while !shared.is_idle() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        shared.act(|environment, now| {
            let error = FunctionError::new("Sandbox.Shutdown", "the emulator is shutting down");
            environment.exited(now, &error);
        });
        // Waiting callers are dropped; responses in progress are completed.
        shared.drop_calls();
        shared.closing.cancel();
        let closed = async { while tasks.join_next().await.is_some() {} };
        drop(tokio::time::timeout(GRACE, closed).await);
        tasks.shutdown().await;
        // The last lines are written too; a slow writer is not awaited.
        if shared.log.try_send(Afterwards::Over).is_ok() {
            while writer.join_next().await.is_some() {}
        }
    }
}

/// Serves one connection until it ends, or until connections must close.
async fn connection(shared: Arc<Shared>, stream: TcpStream, remote: SocketAddr) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "the connection is slower than it could be");
    }
    let service = service_fn(|request| respond(Arc::clone(&shared), request, remote));
    let mut builder = http1::Builder::new();
    // A client that closes its sending side is gone: its waiting `next` must get nothing.
    builder.half_close(false).header_read_timeout(None);
    let mut served = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let outcome = tokio::select! {
        outcome = &mut served => outcome,
        () = shared.closing.cancelled() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "connection broke off");
    }
}

/// Passes a request to the API that its path names, and any other to the function.
async fn respond(
    shared: Arc<Shared>,
    request: Request<Incoming>,
    remote: SocketAddr,
) -> Result<Response<Body>, BrokenOff> {
    let path = request.uri().path();
    if let Some(call) = path.strip_prefix(runtime_api::BASE) {
        let call = call.to_owned();
        runtime_api::respond(&shared, &call, request).await
    } else if let Some(call) = path.strip_prefix(extensions_api::BASE) {
        let call = call.to_owned();
        extensions_api::respond(&shared, &call, request).await
    } else if extensions_api::is_telemetry(path) {
        Ok(extensions_api::telemetry(path))
    } else if invocations::is_one(path) {
        invocations::respond(&shared, request).await
    } else {
        web::respond(&shared, request, remote).await
    }
}
