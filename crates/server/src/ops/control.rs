//! The control socket of a running server, for `hearth reload` and similar commands.
//!
//! It speaks HTTP, with the paths of the admin address, those of the debug console among them, `POST /reload`, `POST /upgrade` and `POST /stop`
//! besides: `curl --unix-socket DIR/control.sock http://hearth/status`.
//!
//! Invariants
//! - Only the server's own user and root are answered.
//! - The answer comes when the change has happened or failed.

use std::io;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::failure::Failure;
use crate::ops::admin::{self, Answer};
use crate::ops::reloads::{Ask, Reloaded};
use crate::ops::state::State;
use crate::ops::upgrades::Upgraded;
use crate::system::run_dir::{Made, RunDir};

/// The name of the socket in the run folder.
pub(crate) const SOCKET: &str = "control.sock";
/// Commands at once; further ones wait in the system's queue.
const CONNECTIONS: usize = 64;

/// The bound socket.
#[derive(Debug)]
pub(crate) struct Control {
    listener: UnixListener,
    made: Made,
    state: Arc<State>,
    /// The application that the server serves, as it was named.
    target: PathBuf,
    patience: Duration,
}

impl Control {
    /// Makes the socket. It replaces the socket of a server that has ended, and that of the previous server (`replaces`).
    /// `patience` is `server.shutdown_patience`.
    pub(crate) fn bind(
        run_dir: &RunDir,
        state: Arc<State>,
        target: PathBuf,
        patience: Duration,
        replaces: bool,
    ) -> io::Result<Self> {
        if !replaces && StdUnixStream::connect(run_dir.path().join(SOCKET)).is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let (listener, made) = run_dir.listen(SOCKET)?;
        Ok(Self { listener, made, state, target, patience })
    }

    /// Answers until `end` is cancelled, and then the commands that wait.
    pub(crate) async fn serve(self, end: CancellationToken) {
        let mut connections = JoinSet::new();
        let who = Arc::new(Identity { target: self.target.clone(), patience: self.patience });
        loop {
            tokio::select! {
                () = end.cancelled() => break,
                Some(_) = connections.join_next() => {}
                accepted = self.listener.accept(), if connections.len() < CONNECTIONS => match accepted {
                    Ok((socket, _)) if is_ours(&socket) => {
                        let (state, who) = (Arc::clone(&self.state), Arc::clone(&who));
                        let ends = (CancellationToken::new(), end.clone());
                        connections.spawn(admin::speak(socket, ends, move |request| {
                            let (state, who) = (Arc::clone(&state), Arc::clone(&who));
                            async move { answer(request, &state, &who).await }
                        }));
                    }
                    Ok(_) => tracing::warn!("another user came to the control socket, and was not heard"),
                    Err(error) => {
                        tracing::warn!(%error, "control connection not accepted");
                        // Out of descriptors, most likely: do not spin.
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
            }
        }
        // From now on commands do not find this server.
        drop(self.made);
        let rest = async { while connections.join_next().await.is_some() {} };
        // Each of them has its answer by now; a client that does not read it is not waited for.
        drop(tokio::time::timeout(Duration::from_millis(200), rest).await);
    }
}

fn is_ours(socket: &UnixStream) -> bool {
    let ours = geteuid().as_raw();
    socket.peer_cred().is_ok_and(|peer| peer.uid() == ours || peer.uid() == 0)
}

/// The identity of this server, for as long as it runs.
#[derive(Debug)]
struct Identity {
    target: PathBuf,
    patience: Duration,
}

/// The introduction of a server: `GET /who`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Introduction {
    pub(crate) pid: u32,
    pub(crate) target: PathBuf,
    /// The server drains and ends.
    #[serde(default)]
    pub(crate) draining: bool,
    /// The addresses it listens on, as URLs.
    #[serde(default)]
    pub(crate) listens: Vec<String>,
}

/// `POST /stop`: it will end.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Stopping {
    /// `server.shutdown_patience`, or the longest `stop_timeout` of a process.
    pub(crate) patience_seconds: u64,
}

async fn answer<B>(request: Request<B>, state: &Arc<State>, who: &Identity) -> Answer
where
    B: Body<Data = Bytes, Error: std::error::Error + Send + Sync + 'static> + Send + 'static,
{
    if admin::is_console(request.uri().path()) {
        return admin::console(request, state).await;
    }
    command(&request, state, who).await.map(BodyExt::boxed_unsync)
}

async fn command<B>(
    request: &Request<B>,
    state: &Arc<State>,
    who: &Identity,
) -> Response<Full<Bytes>> {
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/who") => {
            let draining = state.lifecycle.ending().drain.is_cancelled();
            let (pid, target) = (std::process::id(), who.target.clone());
            let listens = state.listens_on();
            json(StatusCode::OK, &Introduction { pid, target, draining, listens })
        }
        (&Method::POST, "/stop") => {
            let now = request.uri().query() == Some("now");
            tracing::info!(now, "stop requested");
            let processes = state.status().processes;
            let longest = processes.iter().map(|process| process.stop_timeout_seconds).max();
            let patience_seconds = who.patience.as_secs().max(longest.unwrap_or_default());
            if now {
                state.lifecycle.ending().at_once();
            } else {
                state.lifecycle.ending().drain.cancel();
            }
            json(StatusCode::OK, &Stopping { patience_seconds })
        }
        (&Method::POST, "/reload") => match new_generation(state).await {
            Ok(reloaded) => json(StatusCode::OK, &reloaded),
            Err(failure) => json(StatusCode::CONFLICT, &failure),
        },
        (&Method::POST, "/upgrade") => match successor(state).await {
            Ok(upgraded) => json(StatusCode::OK, &upgraded),
            Err(failure) => json(StatusCode::CONFLICT, &failure),
        },
        (&Method::POST, "/cache/purge") => {
            match admin::purge::remove(request.uri().query(), state) {
                Ok(purged) => json(StatusCode::OK, &purged),
                Err(refused) => json(refused.0, &admin::purge::failure(refused)),
            }
        }
        _ => admin::look(request, None, state),
    }
}

fn json(status: StatusCode, value: &impl Serialize) -> Response<Full<Bytes>> {
    let text = serde_json::to_string(value).expect("it has only plain types");
    admin::typed(status, "application/json", text + "\n")
}

async fn new_generation(state: &State) -> Result<Reloaded, Failure> {
    // As at HUP: log rotation may use either.
    state.reopen_access_log();
    let (answer, outcome) = oneshot::channel();
    let ending = || Failure::failed("the server is shutting down", "start it again");
    if !state.reloads.ask(Ask { why: "hearth reload".to_owned(), answer: Some(answer) }) {
        return Err(ending());
    }
    outcome.await.map_err(|_dropped| ending())?
}

async fn successor(state: &State) -> Result<Upgraded, Failure> {
    let (answer, outcome) = oneshot::channel();
    state.upgrades.ask(answer)?;
    let ending = |_dropped| Failure::failed("the server is shutting down", "start it again");
    outcome.await.map_err(ending)?
}
