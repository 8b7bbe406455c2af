//! `hearth channels`: channels and nothing else.
//!
//! The hub has the listeners, one for each event loop, and hands over what is no WebSocket. With TLS, with rules for
//! requests, or where a proxy's word counts, the HTTP front has them.

use std::path::Path;
use std::sync::Arc;

use channels::hub::Listen;
use front_http::{Application, Front, Options, RequestBody, RuleOptions};
use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use pool::DispatchError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::{
    self, Address, Environment, LookupTarget, NamedApp, Raw, Settings, WebhookTarget,
};
use crate::failure::Failure;
use crate::ops::log;
use crate::ops::notify;
use crate::ops::state::{Serving, State};
use crate::ops::subsystem::Subsystem;
use crate::runtime::process;
use crate::subsystems::http::{Http, front};
use crate::subsystems::realtime::{self, Broadcasting, Own, Realtime};
use crate::subsystems::tls::Tls;

/// `hearth channels`: until a signal ends it.
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
    let broadcasting = Broadcasting::read(&environment.current_dir, settings, environment);
    let named = realtime::alone(settings, &broadcasting)?;
    if let Some(LookupTarget(WebhookTarget::Php(_))) = settings.realtime.lookup {
        return Err(realtime::no_php());
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
        Own { listen: listen.collect(), handover: Some(Arc::new(front.forwarded_connections())) }
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
    let explanation = realtime::explain(settings, &named);
    log::line(&explanation);
    let mut subsystems: Vec<Arc<dyn Subsystem>> = Vec::new();
    subsystems.extend(keeper.as_ref().map(|tls| Arc::new(tls.watch()) as Arc<dyn Subsystem>));
    subsystems.push(Arc::new(Http::new(front.traffic(), front.connections(), None)));
    subsystems.push(Arc::<Realtime>::clone(&realtime));
    state.ready(Serving {
        listeners: listeners.clone(),
        explanation,
        subsystems,
        console: Some(Arc::<Realtime>::clone(&realtime)),
        ..Serving::default()
    });
    log::ready(&listeners, None);
    notify::notify(environment.notify_socket(), "READY=1").await;
    if let Some(keeper) = &mut keeper {
        keeper.obtain(drain);
    }

    let draining = async {
        drain.cancelled().await;
        let deadline = Instant::now() + settings.server.shutdown_patience;
        state.lifecycle.draining();
        notify::notify(environment.notify_socket(), "STOPPING=1").await;
        tracing::info!("draining");
        let left = || deadline.saturating_duration_since(Instant::now());
        realtime.drain(settings, left()).await;
    };
    tokio::join!(front.serve(drain.clone().cancelled_owned()), draining);
    tracing::info!("drained");
    Ok(())
}

/// Returns whether the hub listens itself. It is faster, but knows neither TLS nor rules for requests nor proxies. Proxies
/// are needed if clients must use TLS; a looked-up application may require that. Rates do not count channels.
fn hub_listens(settings: &Settings, named: &[NamedApp]) -> bool {
    let http = &settings.http;
    let asked =
        settings.realtime.lookup.is_some() || named.iter().any(|named| !named.app.rights.plain);
    // Peers on a Unix socket are trusted proxies.
    let told =
        !http.trusted_proxies.is_empty() || http.listen.iter().any(|listen| !listen.is_tcp());
    let RuleOptions { basic_auth, redirects, headers, rate_limits: _ } = http.rules();
    let ruled = !(basic_auth.is_empty() && redirects.is_empty() && headers.is_empty());
    !(settings.has_tls() || http.proxy_protocol || ruled || asked && told)
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
