//! What every command that runs on has in common: its runtime, its signals, its admin address, its descriptors.
//!
//! Invariants
//! - The first TERM or INT asks for an end in order, the second one ends it at once. HUP asks for a reload.

use std::num::NonZeroUsize;
use std::sync::Arc;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::admin::{Admin, State};
use crate::config::Settings;
use crate::failure::Failure;
use crate::plan::processors;
use crate::state::Ask;

/// Runs a command to its end, with as many descriptors as there may be.
pub(crate) fn run(
    settings: &Settings,
    command: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    raise_descriptor_limit();
    let runtime = runtime(settings)?;
    let outcome = runtime.block_on(command);
    // What still runs now was cut by a second signal: nothing is waited for.
    runtime.shutdown_background();
    outcome
}

/// Runs `serve` with what every command has beside it: the admin address, for as long as it runs, and signals. The first one cancels its
/// token, the second one cuts it short.
pub(crate) async fn attend(
    settings: &Settings,
    serve: impl AsyncFnOnce(&Arc<State>, &CancellationToken) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let end = Ending::default();
    let mut watchers = JoinSet::new();
    let state = State::starting();
    watchers.spawn(Signals::listen()?.watch(end.clone(), Arc::clone(&state)));

    let mut admin = JoinSet::new();
    let end_admin = CancellationToken::new();
    if let Some(bound) = Admin::as_set(settings, &state).await? {
        admin.spawn(bound.serve(end_admin.clone()));
    }

    let outcome = tokio::select! {
        outcome = serve(&state, &end.drain) => outcome,
        () = end.at_once.cancelled() => {
            tracing::warn!("second signal: ended at once");
            Ok(())
        }
    };
    end_admin.cancel();
    while admin.join_next().await.is_some() {}
    outcome
}

/// A runtime with as many threads as the settings say.
fn runtime(settings: &Settings) -> Result<Runtime, Failure> {
    let threads = settings.server.threads.0.unwrap_or_else(default_threads);
    let mut builder = if threads.get() == 1 {
        tokio::runtime::Builder::new_current_thread()
    } else {
        tokio::runtime::Builder::new_multi_thread()
    };
    if threads.get() > 1 {
        builder.worker_threads(threads.get());
    }
    builder.enable_all().build().map_err(|error| {
        Failure::caused_by(
            "cannot start the runtime",
            &error,
            "lower `server.threads`, or raise the limit of processes",
        )
    })
}

/// One thread is enough for PHP on few processors: the workers need them more.
fn default_threads() -> NonZeroUsize {
    let processors = processors();
    if processors.get() < 4 { NonZeroUsize::MIN } else { processors.midpoint(NonZeroUsize::MIN) }
}

/// Each connection is a descriptor; the soft limit of 1024 is for programs that use `select()`.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "limit of open files not raised");
    }
}

/// How far the end has come.
#[derive(Clone, Debug, Default)]
struct Ending {
    /// The first TERM or INT: finish what runs.
    drain: CancellationToken,
    /// The second: do not.
    at_once: CancellationToken,
}

/// The signals that ask for an end.
#[derive(Debug)]
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn listen() -> Result<Self, Failure> {
        let listen = || -> std::io::Result<Self> {
            Ok(Self {
                terminate: signal(SignalKind::terminate())?,
                interrupt: signal(SignalKind::interrupt())?,
                hang_up: signal(SignalKind::hangup())?,
            })
        };
        listen().map_err(|error| {
            Failure::caused_by("cannot listen for signals", &error, "please report this")
        })
    }

    /// Waits for them, until the second one.
    async fn watch(mut self, end: Ending, state: Arc<State>) {
        while !end.at_once.is_cancelled() {
            tokio::select! {
                Some(()) = self.terminate.recv() => end.one_more(),
                Some(()) = self.interrupt.recv() => end.one_more(),
                Some(()) = self.hang_up.recv() => {
                    if state.cannot_reload() {
                        tracing::warn!("HUP ignored: there is no application to reload here");
                    } else if !state.ask(Ask { why: "HUP".to_owned(), answer: None }) {
                        tracing::debug!("HUP: many wait for a reload already, or the server is shutting down");
                    }
                }
            }
        }
    }
}

impl Ending {
    fn one_more(&self) {
        if self.drain.is_cancelled() {
            self.at_once.cancel();
        } else {
            self.drain.cancel();
        }
    }
}
