//! Programs that an application needs beside its workers, such as a queue's consumers: started with the same user,
//! sandbox and environment.
//!
//! Invariants
//! - Each leads a process group of its own. It is killed when the server ends in any way, and its group when it is dropped.
//! - Its group is signalled only while the program has not been reaped: until then no other group has its number.

use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};

use crate::foreign::process::{Process, Spawner};
use crate::sandbox::{Confinement, Places};
use crate::{Identity, Sandbox, SandboxError};

/// Variables of the server that would make a program take itself for the service: its notifications, its sockets.
const NOT_INHERITED: &[&str] = &[
    "LISTEN_FDNAMES",
    "LISTEN_FDS",
    "LISTEN_PID",
    "NOTIFY_SOCKET",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
];

/// The surroundings in which a program runs.
#[derive(Clone, Debug, Default)]
pub struct ProgramOptions {
    /// Absolute path of the program.
    pub program: PathBuf,
    /// The program's arguments.
    pub arguments: Vec<String>,
    /// The program's working directory.
    pub directory: PathBuf,
    /// Environment variables in addition to the server's own environment.
    pub env: Vec<(String, String)>,
    /// Variables of the server's own environment that are hidden from it.
    pub hidden: Vec<String>,
    /// The user that it runs as; `None` for the server's user.
    pub identity: Option<Identity>,
    /// The program's restrictions; `None` for those of its user only.
    pub sandbox: Option<Sandbox>,
}

/// Starts a program, any number of times. Programs that it has started are killed when it is dropped.
#[derive(Debug)]
pub struct Launcher {
    options: ProgramOptions,
    spawner: Spawner,
}

impl Launcher {
    /// Prepares the sandbox. Must be called within a runtime.
    pub fn new(options: ProgramOptions) -> Result<Self, LaunchError> {
        let places = Places {
            program: &options.program,
            script: None,
            directory: &options.directory,
            run_dir: None,
        };
        let confinement = match &options.sandbox {
            Some(sandbox) => Some(Confinement::new(sandbox, &places)?),
            None => None,
        };
        let spawner = Spawner::with(options.identity.clone(), confinement)?;
        Ok(Self { options, spawner })
    }

    /// Returns the user that the program runs as, if that is not the server's own user.
    pub fn identity(&self) -> Option<&Identity> {
        self.options.identity.as_ref()
    }

    /// Starts the program, with these further variables. Its input is empty.
    pub async fn start(&self, further: &[(&str, String)]) -> io::Result<Program> {
        let ProgramOptions { program, arguments, directory, env, hidden, .. } = &self.options;
        let mut command = Command::new(program);
        for name in NOT_INHERITED.iter().map(OsStr::new).chain(hidden.iter().map(OsStr::new)) {
            command.env_remove(name);
        }
        command
            .args(arguments)
            .envs(env.iter().map(|(name, value)| (name, value)))
            .envs(further.iter().map(|(name, value)| (name, value)))
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let child = self.spawner.spawn(command, Signal::KILL).await?;
        // It is reaped only by `Program::reap`, so the number is its own.
        let pid = child.id().ok_or_else(|| io::Error::other("it has no process id"))?;
        Ok(Program { process: Process::open(pid)?, child })
    }
}

/// Reasons why a program cannot be prepared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The sandbox cannot be created.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The system starts no further thread.
    #[error("cannot start a thread")]
    Thread(#[from] io::Error),
}

/// A program that was started.
#[derive(Debug)]
pub struct Program {
    process: Process,
    child: Child,
}

impl Program {
    /// Returns its process id, which is the number of its group, too.
    pub fn pid(&self) -> u32 {
        self.process.pid
    }

    /// Returns its output; once.
    pub fn output(&mut self) -> Option<(ChildStdout, ChildStderr)> {
        Some((self.child.stdout.take()?, self.child.stderr.take()?))
    }

    /// Waits for its end. Cancel safe.
    pub async fn ended(&self) {
        self.process.ended().await;
    }

    /// Sends it a signal, if it has not ended.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Sends a signal to every process of its group: to itself, and to what it has started.
    pub fn signal_group(&self, signal: Signal) {
        let group = i32::try_from(self.process.pid).ok().and_then(Pid::from_raw);
        let group = group.expect("the kernel's numbers of processes are positive");
        // It may have no process any more.
        if let Err(error) = kill_process_group(group, signal) {
            tracing::debug!(process.pid = self.process.pid, %error, "group not signalled");
        }
    }

    /// Takes its exit status, and waits for its end if need be.
    pub async fn reap(mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It was not reaped.
        if self.child.id().is_some() {
            self.signal_group(Signal::KILL);
        }
    }
}
