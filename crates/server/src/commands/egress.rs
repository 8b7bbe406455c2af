//! `hearth egress`: the egress broker alone.

use std::path::Path;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::config::{self, Environment, Raw, Settings};
use crate::failure::Failure;
use crate::ops::state::{Serving, State};
use crate::ops::{log, notify};
use crate::runtime::process;
use crate::subsystems::egress::{Broker, SOCKET, Users};
use crate::subsystems::traces::Collector;

/// `hearth egress`: the broker alone, until a signal ends it.
pub(crate) fn run(
    config: Option<&Path>,
    flags: Vec<(&'static str, Raw)>,
    environment: &Environment,
) -> Result<(), Failure> {
    let settings = config::load(&environment.current_dir, config, flags, environment)?;
    log::start(&settings, environment)?;
    process::run_alone(&settings, async |state, drain| {
        serve_and_drain(&settings, environment, state, drain).await
    })
}

async fn serve_and_drain(
    settings: &Settings,
    environment: &Environment,
    state: &State,
    drain: &CancellationToken,
) -> Result<(), Failure> {
    let admin = state.admin_address();
    let mut broker = Broker::bind(settings, Path::new(SOCKET), Users::default(), false, admin)?;
    let collector = Collector::start(settings, environment, "egress")?;
    broker.trace(collector.tracer());
    state.register(collector.watch());
    let watch = broker.watch();
    let listener = format!("unix:{}", watch.socket().display());
    state.ready(Serving {
        listeners: vec![listener.clone()],
        explanation: "egress broker".to_owned(),
        broker: Some(watch.place().to_owned()),
        subsystems: vec![Arc::new(watch)],
        ..Serving::default()
    });
    log::ready(&[listener], None);
    notify::notify(environment.notify_socket(), "READY=1").await;
    let draining = async {
        drain.cancelled().await;
        state.lifecycle.draining();
        notify::notify(environment.notify_socket(), "STOPPING=1").await;
        tracing::info!("draining");
        tokio::time::sleep(settings.server.shutdown_patience).await;
    };
    tokio::select! {
        () = broker.serve(drain.clone()) => tracing::info!("drained"),
        () = draining => tracing::warn!("calls were cut: they took longer than `server.shutdown_patience`"),
    }
    collector.end().await;
    Ok(())
}
