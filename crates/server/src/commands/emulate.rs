//! `hearth lambda --emulate`: the emulator beside the runtime, in one process, so that an application can be tried as it will be on Lambda.
//!
//! Invariants
//! - The runtime is the same as on Lambda: it gets everything over the Runtime API, through a socket.
//! - The ready line comes when the runtime has asked for its first event.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use front_lambda::emulator::{Emulator, Function, FunctionError, LogTail, Options};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::app::target::LambdaTarget;
use crate::commands::lambda;
use crate::config::{Environment, Raw, Settings};
use crate::failure::Failure;
use crate::ops::log;
use crate::ops::notify;
use crate::runtime::process;

/// Serves both sides until a signal ends it.
pub(crate) fn run(
    target: LambdaTarget,
    address: SocketAddr,
    environment: &Environment,
) -> Result<(), Failure> {
    let began = Instant::now();
    let (settings, path) = lambda::settings(target, environment)?;
    let tail = LogTail::default();
    log::keep_tail(tail.clone());
    let options = options(&settings, address, began, tail, environment);
    process::run_alone(&settings, async |state, drain| {
        let emulator = Emulator::bind(options).await.map_err(|error| {
            Failure::caused_by(
                format!("cannot listen on {address}"),
                &error,
                "choose another address with `--emulate`, or port 0 for any free one",
            )
        })?;
        let (api, handle) = (emulator.address().to_string(), emulator.handle());
        let over = CancellationToken::new();
        let mut beside = JoinSet::new();
        beside.spawn(emulator.serve(over.clone()));
        {
            let (handle, api) = (handle.clone(), api.clone());
            let socket = environment.notify_socket().map(ToOwned::to_owned);
            let integration = settings.emulator.integration;
            let over = over.clone();
            beside.spawn(async move {
                tokio::select! {
                    () = handle.ready() => {}
                    () = over.cancelled() => return,
                }
                log::line(&format!("HTTP requests come as events of {integration}"));
                log::ready(&[format!("http://{api}")], None);
                notify::notify(socket.as_deref(), "READY=1").await;
            });
        }
        let outcome =
            lambda::serve_and_drain(&settings, &path, &api, environment, state, drain).await;
        if let Err(failure) = &outcome {
            handle.exited(&FunctionError::new("Runtime.ExitError", &failure.message()));
        }
        over.cancel();
        while beside.join_next().await.is_some() {}
        outcome
    })
}

/// Returns the emulator's settings from AWS's own variables in the environment.
pub(crate) fn platform(environment: &Environment) -> Vec<(&'static str, &'static str, Raw)> {
    const TIMEOUT: &str = "AWS_LAMBDA_FUNCTION_TIMEOUT";
    const MEMORY: &str = "AWS_LAMBDA_FUNCTION_MEMORY_SIZE";
    let mut platform = Vec::new();
    if let Some(seconds) = environment.variable(TIMEOUT) {
        platform.push(("emulator.timeout", TIMEOUT, Raw::Text(format!("{seconds}s"))));
    }
    if let Some(megabytes) = environment.variable(MEMORY) {
        platform.push(("emulator.memory_size", MEMORY, Raw::Text(megabytes.into())));
    }
    platform
}

fn options(
    settings: &Settings,
    listen: SocketAddr,
    began: Instant,
    tail: LogTail,
    environment: &Environment,
) -> Options {
    let named = |variable: &str, default: String| {
        environment.variable(variable).map_or(default, str::to_owned)
    };
    let defaults = Function::default();
    let peak = AtomicU64::new(0);
    Options {
        listen,
        integration: settings.emulator.integration,
        streams: settings.lambda.streaming,
        timeout: settings.emulator.timeout,
        memory_size: u32::try_from(settings.emulator.memory_size.get()).unwrap_or(u32::MAX),
        concurrency: settings.lambda.concurrency.0.unwrap_or(std::num::NonZeroUsize::MIN),
        backlog: settings.emulator.backlog,
        snap_start: environment.variable("AWS_LAMBDA_INITIALIZATION_TYPE") == Some("snap-start"),
        external_extensions: settings.emulator.external_extensions.clone(),
        function: Function {
            name: named("AWS_LAMBDA_FUNCTION_NAME", defaults.name),
            version: named("AWS_LAMBDA_FUNCTION_VERSION", defaults.version),
            handler: named("_HANDLER", defaults.handler),
            region: named("AWS_REGION", defaults.region),
        },
        began,
        memory_used: Arc::new(move || {
            let now = memory(std::process::id());
            peak.fetch_max(now, Ordering::Relaxed).max(now)
        }),
        say: Arc::new(log::plain),
        tail,
    }
}

/// Returns the memory of a process and its descendants in bytes: the private memory of each, and the largest shared part. 0 if /proc cannot
/// be read.
fn memory(root: u32) -> u64 {
    let (mut own, mut shared) = (0, 0);
    let mut left = vec![root];
    while let Some(pid) = left.pop() {
        let statm = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
        let mut pages = statm.split(' ').skip(1).map_while(|field| field.parse::<u64>().ok());
        if let (Some(resident), Some(with_files)) = (pages.next(), pages.next()) {
            own += resident.saturating_sub(with_files);
            shared = shared.max(with_files);
        }
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
        for task in tasks.filter_map(Result::ok) {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            left.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
    }
    (own + shared) * rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_this_process_is_readable() {
        let bytes = memory(std::process::id());
        assert!(bytes > 1 << 20, "{bytes}");
        assert_eq!(memory(u32::MAX), 0);
    }
}
