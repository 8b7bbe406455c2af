//! `hearth lambda`: the bootstrap of an AWS Lambda function. Boots the pool in the init phase and has the Lambda front serve events.
//!
//! Invariants
//! - A failure before the first event is reported to the Runtime API as an init error before the program ends.
//! - Lambda's environment is weaker than every setting and stronger than every default.

mod boot;
mod settings;
pub(crate) mod unapplied;

use std::cell::{Cell, OnceCell};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::Path;

use front_lambda::{Report, Runtime};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::boot::{boot, restored};
pub(crate) use self::settings::{handler, lanes, settings};
use crate::app::boot::service_of;
use crate::app::target::LambdaTarget;
use crate::app::user::prepare_for_php;
use crate::commands::emulate;
use crate::config::{Environment, Settings};
use crate::failure::{self, Failure};
use crate::ops::state::State;
use crate::runtime::process;
use crate::subsystems::egress::Inside;
use crate::subsystems::traces::Collector;
use crate::system::async_runtime;

/// The variable with the initialization type: `on-demand`, `provisioned-concurrency`, `snap-start` or [`MANAGED_INSTANCES`].
const INITIALIZATION: &str = "AWS_LAMBDA_INITIALIZATION_TYPE";
const MANAGED_INSTANCES: &str = "lambda-managed-instances";

/// Serves events until a signal ends it.
pub(crate) fn run(
    target: LambdaTarget,
    emulate: Option<SocketAddr>,
    environment: &Environment,
) -> Result<(), Failure> {
    if let Some(address) = emulate {
        return emulate::run(target, address, environment);
    }
    let api =
        environment.variable("AWS_LAMBDA_RUNTIME_API").map(str::to_owned).ok_or_else(|| {
            Failure::misused(
                "AWS_LAMBDA_RUNTIME_API is not set, so there is no Runtime API to ask for events",
                "on AWS Lambda it is; to try an event here, add `--emulate 127.0.0.1:9000`",
            )
        })?;
    let (settings, path) = match settings(target, environment) {
        Ok(settings) => settings,
        Err(failure) => return Err(report_init_error(&api, failure)),
    };
    if let Err(failure) = prepare_for_php(&settings, environment) {
        return Err(report_init_error(&api, failure));
    }
    let begun = Cell::new(false);
    let outcome = process::run_alone(&settings, async |state, drain| {
        begun.set(true);
        serve_and_drain(&settings, &path, &api, environment, state, drain).await
    });
    // From there on the command itself reports init errors.
    outcome.map_err(|failure| if begun.get() { failure } else { report_init_error(&api, failure) })
}

/// Reports an init error to the Runtime API before there is an async runtime.
fn report_init_error(api: &str, failure: Failure) -> Failure {
    if let Ok(runtime) = async_runtime::start(NonZeroUsize::MIN) {
        runtime.block_on(report(api, &failure));
    }
    failure
}

/// Reports to the Runtime API why there will be no events.
async fn report(api: &str, failure: &Failure) {
    let report = Report::of_hearth("InitError", failure.message());
    if let Err(error) = front_lambda::report_init_error(api, &report).await {
        tracing::warn!(error = %failure::in_one_line(&error), "init error not reported");
    }
}

pub(crate) async fn serve_and_drain(
    settings: &Settings,
    path: &Path,
    api: &str,
    environment: &Environment,
    state: &State,
    drain: &CancellationToken,
) -> Result<(), Failure> {
    let service = environment.variable("AWS_LAMBDA_FUNCTION_NAME").map(str::to_owned);
    let service = service.unwrap_or_else(|| service_of(path));
    let collector = match Collector::start(settings, environment, &service) {
        Ok(collector) => collector,
        Err(failure) => {
            report(api, &failure).await;
            return Err(failure);
        }
    };
    state.register(collector.watch());
    let mut broker = Inside::traced(collector.tracer());
    let booted = tokio::select! {
        booted = boot(settings, path, environment, state, &mut broker) => booted,
        () = drain.cancelled() => return Ok(()),
    };
    let mut booted = match booted {
        Ok(booted) => booted,
        Err(failure) => {
            report(api, &failure).await;
            return Err(failure);
        }
    };
    let initialization = environment.variable(INITIALIZATION).unwrap_or_default();
    if initialization == "snap-start" {
        tokio::select! {
            restored = restored(settings, api, &mut booted, &mut broker, collector.tracer()) => restored?,
            () = drain.cancelled() => {}
        }
    }
    let options = front_lambda::Options {
        api: api.to_owned(),
        target: booted.target,
        lanes: lanes(settings),
        deadline_margin: settings.lambda.deadline_margin,
        streaming: settings.lambda.streaming,
        stage_prefix: settings.lambda.stage_prefix,
        websocket_script: booted.websocket_script,
        websocket: settings.websockets.routes.0.first().map(|route| route.target().to_owned()),
        extension: settings.lambda.extension.0.unwrap_or(initialization != MANAGED_INSTANCES),
        api_timeout: settings.lambda.api_timeout,
        tracer: collector.tracer().cloned(),
    };
    let patience = settings.server.shutdown_patience;
    // One patience for all: what an invocation has used up is not given again.
    let deadline = OnceCell::new();
    let draining = async {
        drain.cancelled().await;
        state.lifecycle.draining();
        tracing::info!("draining");
        let deadline = deadline.get_or_init(|| Instant::now() + patience);
        tokio::time::sleep_until(*deadline).await;
        tracing::warn!("invocations were cut: they took longer than `server.shutdown_patience`");
    };
    let outcome = tokio::select! {
        outcome = Runtime::new(options).serve(booted.pool.clone(), drain.clone()) => outcome,
        () = draining => Ok(()),
    };
    let deadline = *deadline.get_or_init(|| Instant::now() + patience);
    booted.pool.drain(deadline.saturating_duration_since(Instant::now())).await;
    broker.drain(deadline.saturating_duration_since(Instant::now())).await;
    collector.end().await;
    tracing::info!("drained");
    outcome.map_err(|error| {
        Failure::caused(&error, "Lambda starts the function again; its platform logs say more")
    })
}
