//! The parts that all long-running commands share: async runtime, signals, admin address and descriptors.
//!
//! Invariants
//! - The first TERM or INT asks for an end in order, the second one ends it at once. HUP asks for a reload, USR2 for an upgrade.
//! - HUP and USR1 open the access log's file again; USR1 ends nothing, at whatever moment it comes.

use std::num::NonZeroUsize;
use std::pin::pin;
use std::sync::Arc;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::config::Settings;
use crate::failure::Failure;
use crate::ops::admin::Admin;
use crate::ops::lifecycle::Ending;
use crate::ops::reloads::Ask;
use crate::ops::state::State;
use crate::ops::upgrades::AdminSocket;
use crate::system::async_runtime;
use crate::system::machine::processors;

/// Runs a command to its end, with as many descriptors as there may be.
pub(crate) fn run(
    settings: &Settings,
    command: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    raise_descriptor_limit();
    let threads = settings.server.threads.0.unwrap_or_else(default_threads);
    let runtime = async_runtime::start(threads)?;
    let outcome = runtime.block_on(command);
    // A second signal has ended everything else: nothing is awaited.
    runtime.shutdown_background();
    outcome
}

/// Runs `serve` with what every command has beside it: the admin address and signals. The first signal cancels its token, the second one
/// cuts it short. `admin` is a socket for the admin address that another process has bound; it accepts nothing before `alone`, for as long
/// as that process does.
pub(crate) async fn attend(
    settings: &Settings,
    admin: Option<AdminSocket>,
    alone: CancellationToken,
    serve: impl AsyncFnOnce(&Arc<State>, &CancellationToken) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut watchers = JoinSet::new();
    let state = State::starting();
    let end = state.lifecycle.ending().clone();
    watchers.spawn(Signals::listen()?.watch(end.clone(), Arc::clone(&state)));

    let passed = admin.as_ref().is_some_and(|admin| admin.passed);
    let bound = Admin::as_set(settings, admin, &state).await?;
    let mut admin = JoinSet::new();
    let end_admin = CancellationToken::new();
    if let Some(bound) = bound {
        match bound.share() {
            Ok(listener) => {
                if let Ok(address) = listener.local_addr() {
                    state.admin_listens(address);
                }
                state.upgrades.keep_admin(AdminSocket { listener, passed });
            }
            Err(error) => {
                tracing::warn!(%error, "an upgrade will have to find another admin address");
            }
        }
        let (end, succeeded) = (end_admin.clone(), state.upgrades.succeeded().clone());
        admin.spawn(async move {
            let mut over = pin!(async {
                tokio::select! {
                    () = end.cancelled() => {}
                    // It answers there from now on.
                    () = succeeded.cancelled() => {}
                }
            });
            tokio::select! {
                () = alone.cancelled() => {}
                () = &mut over => return,
            }
            bound.serve(over).await;
        });
    }

    let outcome = tokio::select! {
        outcome = serve(&state, &end.drain) => outcome,
        () = end.at_once.cancelled() => {
            tracing::warn!("ended at once: a second signal, or `hearth stop --now`");
            admin.abort_all();
            Ok(())
        }
    };
    end_admin.cancel();
    while admin.join_next().await.is_some() {}
    outcome
}

/// Runs a command that takes no other process's place and reloads nothing, with what [`attend`] has, until a signal ends it.
pub(crate) fn run_alone(
    settings: &Settings,
    serve: impl AsyncFnOnce(&Arc<State>, &CancellationToken) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let attended = attend(settings, None, alone(), async |state, drain| {
        state.reloads.switch_off();
        serve(state, drain).await
    });
    run(settings, attended)
}

/// Returns a cancelled token: this process takes no other process's place.
pub(crate) fn alone() -> CancellationToken {
    let alone = CancellationToken::new();
    alone.cancel();
    alone
}

/// Returns the default number of threads: one on few processors, which PHP needs more.
fn default_threads() -> NonZeroUsize {
    let processors = processors();
    if processors.get() < 4 { NonZeroUsize::MIN } else { processors.midpoint(NonZeroUsize::MIN) }
}

/// Raises the limit of descriptors: each connection is one. The soft limit of 1024 is for programs that use `select()`.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "limit of open files not raised");
    }
}

/// The signals that ask for something.
#[derive(Debug)]
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    reopen: Signal,
    upgrade: Signal,
}

impl Signals {
    fn listen() -> Result<Self, Failure> {
        let listen = || -> std::io::Result<Self> {
            Ok(Self {
                terminate: signal(SignalKind::terminate())?,
                interrupt: signal(SignalKind::interrupt())?,
                hang_up: signal(SignalKind::hangup())?,
                reopen: signal(SignalKind::user_defined1())?,
                upgrade: signal(SignalKind::user_defined2())?,
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
                Some(()) = self.upgrade.recv() => {
                    // Its outcome is in the log.
                    let (answer, _outcome) = oneshot::channel();
                    if let Err(refused) = state.upgrades.ask(answer) {
                        tracing::warn!(reason = refused.message(), "USR2 ignored");
                    }
                }
                Some(()) = self.reopen.recv() => {
                    if !state.reopen_access_log() {
                        tracing::info!("USR1 ignored: no access log file to reopen");
                    }
                }
                Some(()) = self.hang_up.recv() => {
                    let reopened = state.reopen_access_log();
                    if !state.reloads.is_on() {
                        if !reopened {
                            tracing::warn!("HUP ignored: this command reloads nothing");
                        }
                    } else if !state.reloads.ask(Ask { why: "HUP".to_owned(), answer: None }) {
                        tracing::debug!("HUP: many wait for a reload already, or the server is shutting down");
                    }
                }
            }
        }
    }
}
