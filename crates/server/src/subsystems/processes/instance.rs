//! One instance of a supervised command: its start, its output, and its end.
//!
//! Invariants
//! - Its group has no process left when it was stopped or has failed.
//! - Each line of its output is a line of the log, as long as any process writes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use pool::{Level, Program, each_line, own_level};
use rustix::process::Signal;
use tokio::io::AsyncRead;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::Definition;
use super::guards::Guards;
use super::table::{ProcessTable, how};
use crate::system::guard::Guard;

/// After SIGKILL a process may still be in an uninterruptible system call: its end is not awaited then.
const AFTER_KILL: Duration = Duration::from_secs(2);

/// The variables by which an instance knows itself: consumers of a group need different names.
const NAME: &str = "HEARTH_PROCESS";
const NUMBER: &str = "HEARTH_PROCESS_NUMBER";

/// An instance that runs.
#[derive(Debug)]
pub(super) struct Instance {
    pub(super) definition: Arc<Definition>,
    number: usize,
    program: Program,
    guard: Option<Arc<Guard>>,
    began: Instant,
    table: Arc<ProcessTable>,
}

impl Instance {
    /// Starts the command, and has its output read by a task of `readers`.
    pub(super) async fn start(
        definition: &Arc<Definition>,
        number: usize,
        (table, guards): (&Arc<ProcessTable>, &Guards),
        readers: &mut JoinSet<()>,
    ) -> io::Result<Self> {
        let launcher = definition.launcher.as_ref();
        let launcher = launcher.map_err(|failure| io::Error::other(failure.message()))?;
        let own = [(NAME, definition.name.to_string()), (NUMBER, number.to_string())];
        let mut program = launcher.start(&own).await?;
        let pid = program.pid();
        let guard = guards.of(launcher.identity());
        if let Some(guard) = &guard {
            guard.add(pid);
        }
        if let Some((stdout, stderr)) = program.output() {
            readers.spawn(log(Arc::clone(definition), number, pid, stdout, "stdout"));
            readers.spawn(log(Arc::clone(definition), number, pid, stderr, "stderr"));
        }
        table.of(definition, |entry| entry.started(number, pid, definition.generation));
        tracing::info!(
            process.name = &*definition.name,
            process.number = number,
            process.pid = pid,
            generation = definition.generation,
            "process started"
        );
        let definition = Arc::clone(definition);
        let table = Arc::clone(table);
        Ok(Self { definition, number, program, guard, began: Instant::now(), table })
    }

    /// Returns the number of its process, and of its group.
    pub(super) fn pid(&self) -> u32 {
        self.program.pid()
    }

    /// Waits for its end. Cancel safe.
    pub(super) async fn ended(&self) {
        self.program.ended().await;
    }

    /// Returns the guard that knows its group.
    pub(super) fn guard(&self) -> Option<Arc<Guard>> {
        self.guard.clone()
    }

    /// Returns how long it has run.
    pub(super) fn ran(&self) -> Duration {
        self.began.elapsed()
    }

    /// Takes note of its end. What it has left running is killed, unless `keeps_group`. `again_in`: the delay until it
    /// is started again.
    pub(super) async fn finish(self, keeps_group: bool, again_in: Option<Duration>) {
        if !keeps_group {
            self.program.signal_group(Signal::KILL);
            if let Some(guard) = &self.guard {
                guard.remove(self.pid());
            }
        }
        let Self { definition, number, program, began, table, .. } = self;
        let (pid, seconds) = (program.pid(), began.elapsed().as_secs_f64());
        let status = program.reap().await.unwrap_or_default();
        table.of(&definition, |entry| entry.ended(number, status));
        let name = &*definition.name;
        let how = how(status);
        let again_in = again_in.map(|delay| delay.as_secs_f64());
        // A signal that was asked for is no failure.
        if status.success() || again_in.is_none() && !keeps_group {
            tracing::info!({ process.name = name, process.number = number, process.pid = pid, how, seconds, again_in }, "process ended");
        } else {
            tracing::warn!({ process.name = name, process.number = number, process.pid = pid, how, seconds, again_in }, "process ended");
        }
    }

    /// Asks it to end.
    pub(super) fn ask_to_end(&self) {
        self.program.signal(self.definition.stop_signal);
        self.note_stopping();
    }

    /// Marks it as one that is to end.
    pub(super) fn note_stopping(&self) {
        self.table.of(&self.definition, |entry| entry.stopping(self.number));
    }

    /// Asks it to end, and kills its group when the time is over.
    pub(super) async fn stop(self) {
        self.ask_to_end();
        if timeout(self.definition.stop_timeout, self.ended()).await.is_err() {
            return self.kill().await;
        }
        self.finish(false, None).await;
    }

    /// Kills its group, as it did not end in time.
    pub(super) async fn kill(self) {
        let limit = self.definition.stop_timeout;
        tracing::warn!(
            process.name = &*self.definition.name,
            process.number = self.number,
            process.pid = self.pid(),
            "process did not end within {limit:?} (`stop_timeout`), and is killed"
        );
        self.program.signal_group(Signal::KILL);
        self.table.of(&self.definition, |entry| entry.killed += 1);
        if timeout(AFTER_KILL, self.ended()).await.is_ok() {
            self.finish(false, None).await;
        }
    }
}

/// Logs each line of an instance's output.
async fn log(
    definition: Arc<Definition>,
    number: usize,
    pid: u32,
    output: impl AsyncRead + Unpin,
    source: &'static str,
) {
    let name = &*definition.name;
    each_line(output, |line| match own_level(line) {
        Some(Level::Error) => {
            tracing::error!(target: "process", { process.name = name, process.number = number, process.pid = pid, source }, "{line}");
        }
        Some(Level::Warning) => {
            tracing::warn!(target: "process", { process.name = name, process.number = number, process.pid = pid, source }, "{line}");
        }
        None => {
            tracing::info!(target: "process", { process.name = name, process.number = number, process.pid = pid, source }, "{line}");
        }
    })
    .await;
}
