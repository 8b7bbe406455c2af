//! The control socket: by which `hearth reload` and its kin find a running server and speak to it.
//!
//! It speaks HTTP, with the paths of the admin address, and `POST /reload` besides: `curl --unix-socket DIR/control.sock http://hearth/status`.
//!
//! Invariants
//! - Only the server's own user and root are heard.
//! - Nothing here is guessed: a command that does not say exactly one server is told which there are.

use std::fmt::Write as _;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::admin::{self, State};
use crate::cli::Target;
use crate::config::{self, Environment};
use crate::detect;
use crate::failure::Failure;
use crate::run_dir::{RunDir, SERVERS};
use crate::state::{Ask, Reloaded};

/// The name of the socket in the run folder.
const SOCKET: &str = "control.sock";
/// Commands at once; further ones wait in the system's queue.
const CONNECTIONS: usize = 64;
/// How long a server may take to say who it is.
const INTRODUCTION: Duration = Duration::from_secs(5);

/// The bound socket.
#[derive(Debug)]
pub(crate) struct Control {
    listener: UnixListener,
    path: PathBuf,
    state: Arc<State>,
    /// What it serves, as it was named.
    target: PathBuf,
}

impl Control {
    /// Makes the socket. One that is left over from a server that is gone is replaced.
    pub(crate) fn bind(run_dir: &RunDir, state: Arc<State>, target: PathBuf) -> io::Result<Self> {
        let path = run_dir.path().join(SOCKET);
        let listener = match UnixListener::bind(&path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                if StdUnixStream::connect(&path).is_ok() {
                    return Err(error);
                }
                std::fs::remove_file(&path)?;
                UnixListener::bind(&path)?
            }
            bound => bound?,
        };
        // Who comes is looked at in any case.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        Ok(Self { listener, path, state, target })
    }

    /// Answers until `end` is cancelled, and those who wait then.
    pub(crate) async fn serve(self, end: CancellationToken) {
        let mut connections = JoinSet::new();
        let who = Arc::new(Introduction { pid: std::process::id(), target: self.target });
        loop {
            tokio::select! {
                () = end.cancelled() => break,
                Some(_) = connections.join_next() => {}
                accepted = self.listener.accept(), if connections.len() < CONNECTIONS => match accepted {
                    Ok((socket, _)) if is_ours(&socket) => {
                        let (state, who) = (Arc::clone(&self.state), Arc::clone(&who));
                        connections.spawn(admin::speak(socket, move |request| {
                            let (state, who) = (Arc::clone(&state), Arc::clone(&who));
                            async move { answer(&request, &state, &who).await }
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
        drop(std::fs::remove_file(&self.path));
        let rest = async { while connections.join_next().await.is_some() {} };
        // Each of them has its answer by now; whoever does not take it is not waited for.
        drop(tokio::time::timeout(Duration::from_millis(200), rest).await);
    }
}

fn is_ours(socket: &UnixStream) -> bool {
    let ours = geteuid().as_raw();
    socket.peer_cred().is_ok_and(|peer| peer.uid() == ours || peer.uid() == 0)
}

/// Who a server is.
#[derive(Debug, Serialize, Deserialize)]
struct Introduction {
    pid: u32,
    target: PathBuf,
}

async fn answer<B>(
    request: &Request<B>,
    state: &Arc<State>,
    who: &Introduction,
) -> Response<Full<Bytes>> {
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/who") => json(StatusCode::OK, who),
        (&Method::POST, "/reload") => match reload(state).await {
            Ok(reloaded) => json(StatusCode::OK, &reloaded),
            Err(failure) => json(StatusCode::CONFLICT, &failure),
        },
        _ => admin::answer(request, None, state),
    }
}

fn json(status: StatusCode, value: &impl Serialize) -> Response<Full<Bytes>> {
    let text = serde_json::to_string(value).expect("it has only plain types");
    admin::typed(status, "application/json", text + "\n")
}

async fn reload(state: &State) -> Result<Reloaded, Failure> {
    let (answer, outcome) = oneshot::channel();
    let ending = || Failure::failed("the server is shutting down", "start it again");
    if !state.ask(Ask { why: "hearth reload".to_owned(), answer: Some(answer) }) {
        return Err(ending());
    }
    outcome.await.map_err(|_dropped| ending())?
}

/// `hearth reload`: has the server of an application boot a new generation, and says what became of it.
pub(crate) fn run_reload(target: &Target, environment: &Environment) -> Result<String, Failure> {
    let server = find(target, environment)?;
    let (status, body) =
        call(&server.socket, "POST", "/reload", None).map_err(|error| lost(&server, &error))?;
    if status != 200 {
        let failure = serde_json::from_slice::<Failure>(&body);
        return Err(failure.map_or_else(|error| lost(&server, &error), Failure::of_server));
    }
    let reloaded: Reloaded =
        serde_json::from_slice(&body).map_err(|error| lost(&server, &error))?;
    let mut text = format!(
        "generation {} after {} ms: {}\n",
        reloaded.generation, reloaded.milliseconds, reloaded.explanation
    );
    if !reloaded.restart_for.is_empty() {
        let names = reloaded.restart_for.join(", ");
        writeln!(text, "not applied, restart for it: {names}").expect("a String takes all");
    }
    Ok(text)
}

fn lost(server: &Server, error: &(dyn std::error::Error + 'static)) -> Failure {
    let message = format!("no answer from the server (process {})", server.who.pid);
    Failure::caused_by(message, error, "its log says what it does")
}

/// A running server.
#[derive(Debug)]
struct Server {
    socket: PathBuf,
    who: Introduction,
}

/// The server that serves `target`.
fn find(target: &Target, environment: &Environment) -> Result<Server, Failure> {
    let wanted = environment.current_dir.join(&target.path);
    let folder = detect::folder_of(&wanted)?;
    let settings =
        config::load(&folder, target.config.as_deref(), target.flags.clone(), environment)?;
    if let Some(run_dir) = &settings.server.run_dir.0 {
        let socket = run_dir.join(SOCKET);
        return introduce(&socket).map(|who| Server { socket: socket.clone(), who }).map_err(
            |error| {
                Failure::caused_by(
                    format!("no server answers at {}", socket.display()),
                    &error,
                    "`server.run_dir` says where it is looked for; start one with `hearth serve`",
                )
            },
        );
    }
    let mut running = running(&environment.temporary_folder());
    let same = |server: &Server| {
        server.who.target == wanted
            || matches!((server.who.target.canonicalize(), wanted.canonicalize()), (Ok(a), Ok(b)) if a == b)
            || detect::folder_of(&server.who.target).is_ok_and(|of_it| of_it == folder)
    };
    let mut found: Vec<Server> = running.extract_if(.., |server| same(server)).collect();
    match (found.pop(), found.len()) {
        (Some(server), 0) => Ok(server),
        (Some(_), _) => Err(Failure::failed(
            format!("several servers serve {}", wanted.display()),
            "give each its own `server.run_dir`, and name it with `--run-dir`",
        )),
        (None, _) if running.is_empty() => Err(Failure::failed(
            format!("no server of yours serves {}", wanted.display()),
            "start one with `hearth serve`; one that has a `server.run_dir` is found by `--run-dir`",
        )),
        (None, _) => {
            let others: Vec<String> =
                running.iter().map(|server| server.who.target.display().to_string()).collect();
            Err(Failure::failed(
                format!("no server of yours serves {}", wanted.display()),
                format!("name what is served: {}", others.join(", ")),
            ))
        }
    }
}

/// The servers of our user, or of any for root, that have a run folder of their own making.
fn running(temporary: &Path) -> Vec<Server> {
    let Ok(entries) = std::fs::read_dir(temporary) else { return Vec::new() };
    let ours = geteuid().as_raw();
    let mut servers = Vec::new();
    for entry in entries.filter_map(Result::ok) {
        // Killed servers leave theirs behind.
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(SERVERS)?.split('-').next());
        let lives = pid
            .is_some_and(|pid| pid.parse::<u32>().is_ok() && Path::new("/proc").join(pid).is_dir());
        // Anybody can make such a folder; who is in it must be who may command us.
        let may = |owner: u32| owner == ours || ours == 0;
        if !lives || !entry.metadata().is_ok_and(|entry| entry.is_dir() && may(entry.uid())) {
            continue;
        }
        let socket = entry.path().join(SOCKET);
        if let Ok(who) = introduce(&socket) {
            servers.push(Server { socket, who });
        }
    }
    servers
}

fn introduce(socket: &Path) -> io::Result<Introduction> {
    let (_, body) = call(socket, "GET", "/who", Some(INTRODUCTION))?;
    Ok(serde_json::from_slice(&body)?)
}

/// One call; `patience` for none: it takes as long as it takes.
fn call(
    socket: &Path,
    method: &str,
    path: &str,
    patience: Option<Duration>,
) -> io::Result<(u16, Vec<u8>)> {
    let mut stream = StdUnixStream::connect(socket)?;
    stream.set_read_timeout(patience)?;
    // HTTP/1.0: no chunks, the body ends with the connection.
    stream.write_all(format!("{method} {path} HTTP/1.0\r\nHost: hearth\r\n\r\n").as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let malformed = || io::Error::other("the answer is no HTTP, or not whole");
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").ok_or_else(malformed)?;
    let body = answer.split_off(end + 4);
    let head = String::from_utf8(answer).map_err(io::Error::other)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.ok_or_else(malformed)?, body))
}
