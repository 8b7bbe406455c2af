//! The running server's side: starts the program that is to take over, gives it the sockets, and stops accepting when it is ready.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use front_http::{Given, GivenQuic};
use rustix::process::{Pid, geteuid, getppid};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::SOCKET;
use super::message::{self, Described, GO, LONGEST, Offered, Role, SuccessorMessage, VERSION};
use crate::config::{Environment, MAIN, TAKE_OVER};
use crate::failure::Failure;
use crate::ops::notify;
use crate::ops::state::State;
use crate::ops::upgrades::{AdminSocket, UpgradeAsk, Upgraded};
use crate::ops::workers::Served;
use crate::system::run_dir::{Made, RunDir};
use crate::system::sys::hand_capabilities_on;

/// The time that a successor may need beyond the boot of its application.
const BEYOND_BOOT: Duration = Duration::from_secs(30);
/// The time that a successor may take to put its sockets into their places.
const LETTING_GO: Duration = Duration::from_secs(10);
/// The time that a process may take to end after it has hung up.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// The sockets on offer, and what an upgrade needs.
#[derive(Debug)]
pub(crate) struct Offer {
    listener: UnixListener,
    made: Made,
    sockets: Vec<Given>,
    admin: Option<AdminSocket>,
    /// A service manager has passed the sockets.
    activated: bool,
    state: Arc<State>,
    asked: mpsc::Receiver<UpgradeAsk>,
    succeeded: CancellationToken,
    program: PathBuf,
    arguments: Vec<OsString>,
    current_dir: PathBuf,
    manager: Option<PathBuf>,
    patience: Duration,
    /// A successor needs the capabilities of this process.
    hands_capabilities_on: bool,
}

/// Whether this is process 1, or the child of an init that ends when its child does. Such an init may have another above it.
fn ends_a_container() -> bool {
    const INITS: [&str; 4] = ["tini", "docker-init", "catatonit", "dumb-init"];
    let is_init = |name: String| INITS.contains(&name.trim_end());
    let name =
        |parent: Pid| std::fs::read_to_string(format!("/proc/{}/comm", parent.as_raw_nonzero()));
    std::process::id() == 1 || getppid().is_some_and(|parent| name(parent).is_ok_and(is_init))
}

impl Offer {
    /// Makes the socket. `sockets` are those of the front; `succeeded` is cancelled when another process has taken over; `boot` is the time
    /// limit for the boot of all applications; `hands_on`: a successor needs the capabilities of this process, to run PHP as another user.
    pub(crate) fn new(
        run_dir: &RunDir,
        (sockets, activated): (Vec<Given>, bool),
        succeeded: CancellationToken,
        state: &Arc<State>,
        environment: &Environment,
        (boot, hands_on): (Duration, bool),
    ) -> io::Result<Self> {
        let (listener, made) = run_dir.listen(SOCKET)?;
        Ok(Self {
            listener,
            made,
            sockets,
            admin: state.upgrades.admin_socket(),
            activated,
            state: Arc::clone(state),
            asked: state.upgrades.asked(),
            succeeded,
            program: environment.started_as.clone(),
            arguments: environment.arguments.clone(),
            current_dir: environment.current_dir.clone(),
            manager: environment.notify_socket().map(ToOwned::to_owned),
            // Its boot, then that of all its workers.
            patience: boot.saturating_mul(2).saturating_add(BEYOND_BOOT),
            hands_capabilities_on: hands_on && !geteuid().is_root(),
        })
    }

    /// Upgrades at each request, until one succeeds, or until `end`. It closes the sockets when the server drains: no connection is to wait
    /// in their queues.
    pub(crate) async fn serve(mut self, end: CancellationToken) {
        let drain = self.state.lifecycle.ending().drain.clone();
        loop {
            let answer = tokio::select! {
                () = end.cancelled() => return,
                () = drain.cancelled() => return,
                Some(answer) = self.asked.recv() => answer,
            };
            let given_up = async {
                drain.cancelled().await;
                // After the hand-over the upgrade continues, because the other process serves.
                if self.succeeded.is_cancelled() {
                    std::future::pending::<()>().await;
                }
            };
            let outcome = tokio::select! {
                biased;
                // Checked first: it ends when our own drain starts.
                outcome = self.upgrade() => outcome,
                () = given_up => Err(Failure::failed("the server is shutting down", "start it again")),
            };
            let done = outcome.is_ok();
            self.state.upgrades.ended();
            match &outcome {
                Ok(Upgraded { pid, version, milliseconds }) => {
                    tracing::info!(
                        successor = pid,
                        version,
                        milliseconds,
                        "another process took over"
                    );
                }
                Err(failure) => {
                    let (reason, hint) = (failure.message(), failure.hint());
                    tracing::error!(reason, hint, "upgrade failed, the server continues");
                }
            }
            // An interrupted command no longer waits.
            drop(answer.send(outcome));
            if done {
                return;
            }
        }
    }

    async fn upgrade(&self) -> Result<Upgraded, Failure> {
        let began = Instant::now();
        if self.state.lifecycle.phase() != "ready" {
            return Err(Failure::failed("the server is not ready itself", "ask again when it is"));
        }
        if ends_a_container() {
            let hint = "start a container of the new image, and stop this one";
            return Err(Failure::failed("a container ends with this process", hint));
        }
        let program = self.program.display();
        tracing::info!(%program, "upgrade");
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .current_dir(&self.current_dir)
            .env(TAKE_OVER, self.made.path())
            // Of this process (sd_watchdog_enabled(3)).
            .env_remove("WATCHDOG_PID")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        if self.hands_capabilities_on {
            hand_capabilities_on(&mut command);
        }
        let mut child = command.spawn().map_err(|error| {
            let hint = "put the new program where the old one was";
            Failure::caused_by(format!("cannot start {program}"), &error, hint)
        })?;
        let pid = child.id().unwrap_or_default();
        let talk = tokio::select! {
            biased;
            talk = self.talk(pid) => talk,
            ended = child.wait() => return Err(ended_early(ended)),
            () = tokio::time::sleep(self.patience) => {
                let message = format!("the new program was not ready within {:?}", self.patience);
                return Err(Failure::failed(message, "`php.boot_timeout` bounds this; its log says what it did"));
            }
        };
        match talk {
            Ok((version, stream)) => {
                self.let_go(pid, stream, child).await;
                let milliseconds = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
                Ok(Upgraded { pid, version, milliseconds })
            }
            Err(NotReady::Failed(failure)) => Err(failure.of_server()),
            Err(NotReady::Nothing(error)) => {
                if let Ok(ended) = timeout(LAST_WORDS, child.wait()).await {
                    return Err(ended_early(ended));
                }
                let hint = "its log says what it did";
                Err(Failure::caused_by("the new program broke off", &error, hint))
            }
        }
    }

    /// Gives our own child the sockets, and waits until it is ready.
    async fn talk(&self, child: u32) -> Result<(String, UnixStream), NotReady> {
        let mut stream = loop {
            let (stream, _) = self.listener.accept().await?;
            let peer = stream.peer_cred()?;
            let is_child = peer.pid().and_then(|pid| u32::try_from(pid).ok()) == Some(child);
            if is_child && (peer.uid() == geteuid().as_raw() || peer.uid() == 0) {
                break stream;
            }
            tracing::warn!(
                pid = peer.pid(),
                "a process that we have not started came for our sockets, and got none"
            );
        };
        self.give(&stream)?;
        let mut line = Vec::new();
        let limit = LONGEST as u64;
        BufReader::new(&mut stream).take(limit).read_until(b'\n', &mut line).await?;
        if line.is_empty() {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        match serde_json::from_slice(&line).map_err(io::Error::from)? {
            SuccessorMessage::Ready { version } => Ok((version, stream)),
            SuccessorMessage::Failed(failure) => Err(NotReady::Failed(failure)),
        }
    }

    fn give(&self, stream: &UnixStream) -> io::Result<()> {
        let mut described = Vec::new();
        let mut descriptors: Vec<BorrowedFd<'_>> = Vec::new();
        for given in &self.sockets {
            let http = Described { passed: self.activated, ..Described::new(Role::Http) };
            match given {
                Given::Tcp(listener) => {
                    described.push(http);
                    descriptors.push(listener.as_fd());
                }
                Given::Unix { listener, takes_file_away } => {
                    described.push(Described { takes_file_away: *takes_file_away, ..http });
                    descriptors.push(listener.as_fd());
                }
                Given::Quic(GivenQuic { socket, relay }) => {
                    let Some((relay, processes)) = relay else { continue };
                    let processes = processes.clone();
                    described.push(Described { processes, ..Described::new(Role::Quic) });
                    descriptors.push(socket.as_fd());
                    described.push(Described::new(Role::Relay));
                    descriptors.push(relay.as_fd());
                }
            }
        }
        if let Some(admin) = &self.admin {
            described.push(Described { passed: admin.passed, ..Described::new(Role::Admin) });
            descriptors.push(admin.listener.as_fd());
        }
        let wanted: BTreeMap<String, usize> = self
            .state
            .workers
            .pools()
            .iter()
            .map(|(name, pool)| (name.to_string(), pool.wanted))
            .collect();
        let serving = self.state.serving();
        let model = |served: &Served| Some((served.name.to_string(), served.model?.to_owned()));
        let models =
            serving.iter().flat_map(|serving| serving.applications.iter().filter_map(model));
        let offered = Offered {
            version: VERSION,
            pid: std::process::id(),
            activated: self.activated,
            sockets: described,
            workers: wanted.get(MAIN).copied(),
            workers_of: wanted,
            models_of: models.collect(),
        };
        message::send(stream.as_fd(), &message::line(&offered), &descriptors)
    }

    /// Hands over to the successor, which serves from here on, whatever happens to this process.
    async fn let_go(&self, pid: u32, mut stream: UnixStream, child: Child) {
        // This comes first: without it, the successor would be killed.
        orphan(child);
        // The manager accepts it only from the current main process; afterwards it accepts messages of the successor.
        notify::notify(self.manager.as_deref(), &format!("MAINPID={pid}")).await;
        self.state.upgrades.succeeded().cancel();
        self.succeeded.cancel();
        if let Err(error) = stream.write_all(GO).await {
            tracing::warn!(%error, "the successor could not be told to take over");
        }
        // Until it has replaced our socket files, both processes accept. Then it closes the connection.
        let mut nothing = [0];
        if timeout(LETTING_GO, stream.read(&mut nothing)).await.is_err() {
            tracing::warn!("the successor has not reported that it has taken over");
        }
        self.state.lifecycle.ending().drain.cancel();
    }
}

/// Leaves the child running without its handle.
#[expect(clippy::mem_forget, reason = "tokio would kill the process when its handle is dropped")]
fn orphan(child: Child) {
    std::mem::forget(child);
}

/// The reason why a successor is not ready.
#[derive(Debug)]
enum NotReady {
    Failed(Failure),
    Nothing(io::Error),
}

impl From<io::Error> for NotReady {
    fn from(error: io::Error) -> Self {
        Self::Nothing(error)
    }
}

fn ended_early(ended: io::Result<std::process::ExitStatus>) -> Failure {
    let how = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
    let hint = "its words are in the log of this server";
    Failure::failed(format!("the new program ended before it was ready ({how})"), hint)
}
