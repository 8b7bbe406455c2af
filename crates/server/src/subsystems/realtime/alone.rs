//! `hearth channels`: channels and nothing else.
//!
//! The hub has the listeners, one for each event loop, and hands over what is no WebSocket. With TLS, or where a proxy's word counts, the HTTP front has them.

use std::path::Path;
use std::sync::Arc;

use channels::hub::Listen;
use front_http::{Application, Front, Options, RequestBody};
use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use pool::DispatchError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Own, Realtime, apps};
use crate::config::{
    self, Address, Environment, LookupTarget, NamedApp, Raw, Settings, WebhookTarget,
};
use crate::failure::Failure;
use crate::ops::admin::{Serving, State};
use crate::ops::log;
use crate::ops::notify;
use crate::runtime::process;
use crate::subsystems::front;
use crate::subsystems::tls::Tls;

/// `hearth channels`: until a signal ends it.
pub(crate) fn run(
    config: Option<&Path>,
    flags: Vec<(&'static str, Raw)>,
    environment: &Environment,
) -> Result<(), Failure> {
    let settings = config::load(&environment.current_dir, config, flags, environment)?;
    log::start(&settings, environment)?;
    process::run(&settings, alone(&settings, environment))
}

async fn alone(settings: &Settings, environment: &Environment) -> Result<(), Failure> {
    process::attend_alone(settings, async |state, drain| {
        serve_and_drain(settings, environment, state, drain).await
    })
    .await
}

async fn serve_and_drain(
    settings: &Settings,
    environment: &Environment,
    state: &State,
    drain: &CancellationToken,
) -> Result<(), Failure> {
    let broadcasting = apps::Broadcasting::read(&environment.current_dir, settings, environment);
    let named = apps::alone(settings, &broadcasting)?;
    if let Some(LookupTarget(WebhookTarget::Php(_))) = settings.realtime.lookup {
        return Err(apps::no_php());
    }
    let mut keeper = Tls::start(settings, environment, drain)?;
    let certificates = keeper.as_ref().map(|keeper| keeper.certificates().clone());
    let of_hub = hub_listens(settings, &named);
    let options = Options { tls: certificates, ..front::options_alone(settings, of_hub) };
    let mut front =
        Front::bind(options, Nothing).await.map_err(|error| front::not_bound(&error, settings))?;
    let own = if of_hub {
        let listen = settings
            .http
            .listen
            .iter()
            .map(|listen| Listen { address: address(&listen.address), secure: false });
        Own { listen: listen.collect(), handover: Some(Arc::new(front.visitors())) }
    } else {
        Own::default()
    };
    let realtime = Realtime::start(settings, &named, Some(own)).await?;
    front.realtime(Arc::<Realtime>::clone(&realtime));

    let mut listeners: Vec<String> = front.addresses().iter().map(ToString::to_string).collect();
    listeners.extend(realtime.addresses());
    if of_hub {
        let unix = settings.http.listen.iter().filter(|listen| !listen.is_tcp());
        listeners.extend(unix.map(|listen| listen.address.to_string()));
    }
    state.access_log(front.access_log());
    let explanation = apps::explain(settings, &named);
    log::say(&explanation);
    state.ready(Serving {
        applications: Vec::new(),
        listeners: listeners.clone(),
        explanation,
        egress: None,
        connectors: Vec::new(),
        realtime: Some(Arc::clone(&realtime)),
        traffic: Some(front.traffic()),
        connections: Some(front.connections()),
        tls: keeper.as_ref().map(Tls::watch),
    });
    for url in &listeners {
        log::say(&format!("ready on {url}"));
    }
    notify::notify(environment.notify_socket(), "READY=1").await;
    if let Some(keeper) = &mut keeper {
        keeper.obtain(drain);
    }

    let draining = async {
        drain.cancelled().await;
        let deadline = Instant::now() + settings.server.shutdown_patience;
        state.draining();
        notify::notify(environment.notify_socket(), "STOPPING=1").await;
        tracing::info!("draining");
        let left = || deadline.saturating_duration_since(Instant::now());
        realtime.drain(settings, left()).await;
    };
    tokio::join!(front.serve(drain.clone().cancelled_owned()), draining);
    tracing::info!("drained");
    Ok(())
}

/// It is quicker, but it knows nothing of TLS and of what proxies say. That is asked for where clients have to speak TLS; whoever is looked up may want it.
fn hub_listens(settings: &Settings, named: &[NamedApp]) -> bool {
    let http = &settings.http;
    let asked =
        settings.realtime.lookup.is_some() || named.iter().any(|named| !named.app.rights.plain);
    // Who comes over a Unix socket is believed.
    let told =
        !http.trusted_proxies.is_empty() || http.listen.iter().any(|listen| !listen.is_tcp());
    !(settings.has_tls() || http.proxy_protocol || asked && told)
}

fn address(address: &Address) -> channels::hub::Address {
    match address {
        Address::Tcp(address) => channels::hub::Address::Tcp(*address),
        Address::Unix(path) => channels::hub::Address::Unix(path.clone()),
    }
}

/// Answers what realtime does not: nothing is left.
#[derive(Debug)]
struct Nothing;

impl Application for Nothing {
    type Body = Empty<bytes::Bytes>;

    async fn call(&self, _: Request<RequestBody>) -> Result<Response<Self::Body>, DispatchError> {
        let mut response = Response::new(Empty::new());
        *response.status_mut() = StatusCode::NOT_FOUND;
        Ok(response)
    }
}
