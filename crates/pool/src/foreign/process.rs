//! Other programs: started so that none outlives the server, and signalled without ever hitting another process.
//!
//! Invariants
//! - `PR_SET_PDEATHSIG` fires when the thread that started a program ends, so one thread that lives as long as the
//!   pool starts them all.
//! - A process that is not our child is signalled through a descriptor (`pidfd_open(2)`), never by a number that may
//!   be reused.

use std::io;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::{Arc, mpsc};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::io::unix::AsyncFd;
use tokio::process::{Child, Command};
use tokio::sync::oneshot;

use crate::sandbox::Confinement;
use crate::{Identity, Options, StartError, sys};

/// A command, and where to send its child.
type Job = (Command, oneshot::Sender<io::Result<Child>>);

/// Starts programs. They end when it is dropped, or when the server ends in any way.
#[derive(Debug)]
pub(crate) struct Spawner {
    jobs: mpsc::SyncSender<Job>,
    identity: Option<Identity>,
    confinement: Option<Arc<Confinement>>,
}

impl Spawner {
    /// Starts the thread. Must be called within a runtime, which reaps the children. They run with the identity and
    /// sandbox of `options`.
    pub(crate) fn new(options: &Options) -> Result<Self, StartError> {
        Ok(Self::with(options.identity.clone(), Confinement::of(options)?)?)
    }

    /// Starts the thread for programs with this identity and sandbox.
    pub(crate) fn with(
        identity: Option<Identity>,
        confinement: Option<Confinement>,
    ) -> io::Result<Self> {
        // Callers wait for their child, so the bound is never reached in practice.
        let (jobs, todo) = mpsc::sync_channel::<Job>(1024);
        let runtime = tokio::runtime::Handle::current();
        std::thread::Builder::new().name("hearth-spawner".into()).spawn(move || {
            let _inside = runtime.enter();
            for (mut command, reply) in todo {
                // The caller is gone: the child is dropped and thereby killed.
                drop(reply.send(command.spawn()));
            }
        })?;
        Ok(Self { jobs, identity, confinement: confinement.map(Arc::new) })
    }

    /// Starts a program that gets `signal` when the server is gone.
    pub(crate) async fn spawn(&self, mut command: Command, signal: Signal) -> io::Result<Child> {
        if let Some(identity) = &self.identity {
            identity.put_on(command.as_std_mut());
        }
        sys::end_with_thread(&mut command, signal);
        sys::ignore_usr1(&mut command);
        if let Some(confinement) = &self.confinement {
            sys::confine(&mut command, Arc::clone(confinement));
        }
        let (reply, child) = oneshot::channel();
        let full = |_full| io::Error::other("too many programs are being started");
        self.jobs.try_send((command, reply)).map_err(full)?;
        child.await.map_err(io::Error::other)?
    }
}

/// A process that has another parent.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    handle: AsyncFd<OwnedFd>,
}

impl Process {
    /// Opens a process; `pid` must be known to be alive.
    pub(crate) fn open(pid: u32) -> io::Result<Self> {
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let raw = raw.ok_or_else(|| io::Error::other("no process id"))?;
        let handle = pidfd_open(raw, PidfdFlags::NONBLOCK)?;
        Ok(Self { pid, handle: sys::watch(handle)? })
    }

    /// Waits for its end, and leaves its exit status to its parent. Cancel safe.
    pub(crate) async fn ended(&self) {
        if let Err(error) = self.handle.readable().await {
            tracing::warn!(worker.pid = self.pid, %error, "process cannot be watched");
        }
    }

    /// Sends it a signal, if it has not ended.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Err(error) = pidfd_send_signal(self.handle.get_ref(), signal) {
            tracing::debug!(worker.pid = self.pid, %error, "process had ended already");
        }
    }

    /// Kills it, if it has not ended.
    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL);
    }
}

/// Returns the PHP version that a program reports, e.g. `8.2.35`.
pub(crate) async fn version(options: &Options) -> Result<String, StartError> {
    let program = &options.program;
    let name = program.display().to_string();
    let mut command = Command::new(program);
    command.arg("-v").stdin(Stdio::null()).kill_on_drop(true);
    options.environment(&mut command);
    if let Some(identity) = &options.identity {
        identity.put_on(command.as_std_mut());
    }
    sys::ignore_usr1(&mut command);
    let output = command
        .output()
        .await
        .map_err(|cause| StartError::Program { program: name.clone(), cause })?;
    // `PHP 8.2.35 (fpm-fcgi) (built: …`
    let stdout = String::from_utf8_lossy(&output.stdout);
    let line = stdout.lines().find_map(|line| line.strip_prefix("PHP "));
    match line.and_then(|rest| rest.split(' ').next()) {
        Some(version) => Ok(version.to_owned()),
        None => Err(StartError::Zygote {
            program: name,
            output: format!(
                "`-v` printed no PHP version: {}{}",
                stdout.trim(),
                String::from_utf8_lossy(&output.stderr).trim()
            ),
        }),
    }
}
