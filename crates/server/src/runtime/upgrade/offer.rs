//! The running server's side: starts the program that is to take over, gives it the sockets, and lets go when it is ready.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use front_http::Given;
use rustix::process::geteuid;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::message::{self, Described, GO, LONGEST, Offered, Role, VERSION, Word};
use super::{SOCKET, Upgraded, VARIABLE};
use crate::config::{Environment, MAIN};
use crate::failure::Failure;
use crate::ops::notify;
use crate::ops::state::{AdminSocket, Served, State, UpgradeAsk};
use crate::system::run_dir::{Made, RunDir};
use crate::system::sys::hand_capabilities_on;

/// What a successor may need beyond the boot of its application.
const BEYOND_BOOT: Duration = Duration::from_secs(30);
/// How long a successor may take to put its sockets into their places.
const LETTING_GO: Duration = Duration::from_secs(10);
/// How long a process that has hung up may take to end.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// What is offered, and all that is needed to do so.
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
    /// It needs what we may.
    hands_capabilities_on: bool,
}

impl Offer {
    /// Makes the socket. `sockets`: those of the front; `succeeded`: how it hears that they are somebody else's now; `boot`: what the
    /// boot of all applications may take; `hands_on`: a successor needs what this process may, to run PHP as somebody else.
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
            admin: state.admin_socket(),
            activated,
            state: Arc::clone(state),
            asked: state.upgrades_asked(),
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

    /// Upgrades whenever somebody asks for it, until one has come to something, or until `end`. When the server drains it lets go of the
    /// sockets: nobody is to wait in their queues.
    pub(crate) async fn serve(mut self, end: CancellationToken) {
        let drain = self.state.ending().drain.clone();
        loop {
            let answer = tokio::select! {
                () = end.cancelled() => return,
                () = drain.cancelled() => return,
                Some(answer) = self.asked.recv() => answer,
            };
            let given_up = async {
                drain.cancelled().await;
                // What has let go goes on: it is the other one that serves.
                if self.succeeded.is_cancelled() {
                    std::future::pending::<()>().await;
                }
            };
            let outcome = tokio::select! {
                biased;
                // Done first: it ends with the beginning of our own drain.
                outcome = self.upgrade() => outcome,
                () = given_up => Err(Failure::failed("the server is shutting down", "start it again")),
            };
            let done = outcome.is_ok();
            self.state.upgrade_ended();
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
                    tracing::error!(reason, hint, "upgrade failed, what ran goes on");
                }
            }
            // A command that was interrupted does not wait any more.
            drop(answer.send(outcome));
            if done {
                return;
            }
        }
    }

    async fn upgrade(&self) -> Result<Upgraded, Failure> {
        let began = Instant::now();
        if self.state.phase() != "ready" {
            return Err(Failure::failed("the server is not ready itself", "ask again when it is"));
        }
        if std::process::id() == 1 {
            let hint = "start a container of the new image, and stop this one";
            return Err(Failure::failed("process 1 of a container cannot end without it", hint));
        }
        let program = self.program.display();
        tracing::info!(%program, "upgrade");
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .current_dir(&self.current_dir)
            .env(VARIABLE, self.made.path())
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
            Err(Told::Failed(failure)) => Err(failure.of_server()),
            Err(Told::Nothing(error)) => {
                if let Ok(ended) = timeout(LAST_WORDS, child.wait()).await {
                    return Err(ended_early(ended));
                }
                let hint = "its log says what it did";
                Err(Failure::caused_by("the new program broke off", &error, hint))
            }
        }
    }

    /// Gives our own child the sockets, and waits until it is ready.
    async fn talk(&self, child: u32) -> Result<(String, UnixStream), Told> {
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
            Word::Ready { version } => Ok((version, stream)),
            Word::Failed(failure) => Err(Told::Failed(failure)),
        }
    }

    fn give(&self, stream: &UnixStream) -> io::Result<()> {
        let mut described = Vec::new();
        let mut descriptors: Vec<BorrowedFd<'_>> = Vec::new();
        for given in &self.sockets {
            let takes_file_away = matches!(given, Given::Unix { takes_file_away: true, .. });
            described.push(Described { role: Role::Http, takes_file_away, passed: self.activated });
            descriptors.push(match given {
                Given::Tcp(listener) => listener.as_fd(),
                Given::Unix { listener, .. } => listener.as_fd(),
            });
        }
        if let Some(admin) = &self.admin {
            let passed = admin.passed;
            described.push(Described { role: Role::Admin, takes_file_away: false, passed });
            descriptors.push(admin.listener.as_fd());
        }
        let wanted: BTreeMap<String, usize> =
            self.state.pools().iter().map(|(name, pool)| (name.to_string(), pool.wanted)).collect();
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

    /// From here on the successor serves, whatever becomes of us.
    async fn let_go(&self, pid: u32, mut stream: UnixStream, child: Child) {
        // First of all: were this cut, it would be killed.
        orphan(child);
        // Said by the process that the manager knows: afterwards it listens to the other one.
        notify::notify(self.manager.as_deref(), &format!("MAINPID={pid}")).await;
        self.state.succeeded().cancel();
        self.succeeded.cancel();
        if let Err(error) = stream.write_all(GO).await {
            tracing::warn!(%error, "the successor was not told to go");
        }
        // Until it has put its sockets where ours are, both accept, and no name is missing. It hangs up then.
        let mut nothing = [0];
        if timeout(LETTING_GO, stream.read(&mut nothing)).await.is_err() {
            tracing::warn!("the successor has not said that it is in our place");
        }
        self.state.ending().drain.cancel();
    }
}

/// It lives on without us.
#[expect(clippy::mem_forget, reason = "tokio would kill the process when its handle is dropped")]
fn orphan(child: Child) {
    std::mem::forget(child);
}

/// Why a successor is not ready.
#[derive(Debug)]
enum Told {
    Failed(Failure),
    Nothing(io::Error),
}

impl From<io::Error> for Told {
    fn from(error: io::Error) -> Self {
        Self::Nothing(error)
    }
}

fn ended_early(ended: io::Result<std::process::ExitStatus>) -> Failure {
    let how = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
    let hint = "its words are in the log of this server";
    Failure::failed(format!("the new program ended before it was ready ({how})"), hint)
}
