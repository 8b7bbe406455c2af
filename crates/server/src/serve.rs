//! `hearth serve`: wires the engines together, waits for a signal, and takes them down in order.
//!
//! Invariants
//! - Nothing is bound or started before the settings and the application are known to fit.
//! - The ready line comes after the first worker is ready and every listener is bound, and never otherwise.
//! - Drain: the front stops accepting and finishes, realtime closes its sockets meanwhile, then the pool, then the broker, then the admin address. A second signal ends it
//!   at once.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCEPT, HOST, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderValue, Request};
use pool::{Model, Pool, RequestContext, RequestId, Scheme, Script, StartError};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::admin::{Serving, State};
use crate::cli::Target;
use crate::config::{self, Databases, Environment, LookupTarget, Settings, WebhookTarget};
use crate::connectors::Connectors;
use crate::detect;
use crate::egress::{self, Broker, Inside};
use crate::failure::Failure;
use crate::front;
use crate::plan::{PhpPlan, Plan, WorkerScript};
use crate::process;
use crate::realtime::{self, Broadcasting, Php, Publisher, Realtime};
use crate::run_dir::RunDir;
use crate::{log, notify, php};

/// Serves until a signal ends it.
pub(crate) fn serve(target: &Target, environment: &Environment) -> Result<(), Failure> {
    let folder = detect::folder_of(&target.path)?;
    let settings =
        config::load(&folder, target.config.as_deref(), target.flags.clone(), environment)?;
    log::start(&settings, environment)?;
    let mut plan = Plan::new(detect::detect(&target.path)?, &settings, environment)?;
    if let Some(php) = plan.php.as_ref().filter(|php| php.model == Model::Snapshot) {
        let probe = php::probe(&php.worker, &settings);
        if let Some(fallback) = plan.fit_to_machine(&probe) {
            fallback.warn();
        }
    }
    process::run(&settings, run(&settings, plan, environment))
}

async fn run(settings: &Settings, plan: Plan, environment: &Environment) -> Result<(), Failure> {
    process::attend(settings, async |state, drain| {
        serve_and_drain(settings, plan, environment, state, drain).await
    })
    .await
}

async fn serve_and_drain(
    settings: &Settings,
    mut plan: Plan,
    environment: &Environment,
    state: &State,
    drain: &CancellationToken,
) -> Result<(), Failure> {
    let mut front = front::bind(settings, &plan).await?;
    let realtime = start_realtime(settings, &plan, environment, &front.urls()).await?;
    if let Some(realtime) = &realtime {
        front.realtime(Arc::clone(realtime));
    }
    let publisher = realtime.as_ref().and_then(|realtime| realtime.publisher()).map(Arc::new);
    // Kept until the pool is drained: workers that are replaced read their files again.
    let own_files = own_files(settings, &plan, environment)?;
    let mut broker = Inside::default();
    let mut watch = None;
    // Before PHP starts: it is told of the socket in its environment.
    if let Some(bound) = bind_broker(settings, own_files.as_ref())? {
        watch = Some(bound.watch());
        broker.start(bound);
    }
    let connectors = match &own_files {
        Some(own) => Connectors::start(settings, own.run_dir.path())?,
        None => Connectors::default(),
    };
    let socket = watch.as_ref().map(egress::Watch::socket);
    let pool = loop {
        let Some(php) = &plan.php else { break None };
        let token = realtime.as_ref().and_then(|realtime| realtime.lookup_token());
        let mut options = pool::Options {
            events: publisher
                .as_ref()
                .map(|publisher| Arc::<Publisher>::clone(publisher) as Arc<dyn pool::EventSink>),
            ..pool_options(php, &plan, settings, own_files.as_ref(), socket, publisher.as_deref())
        };
        options.env.extend(connectors.env().iter().cloned());
        options.env.extend(token.map(|token| (realtime::LOOKUP_VARIABLE.into(), token)));
        let started = tokio::select! {
            started = Pool::start(options) => started,
            () = drain.cancelled() => return Ok(()),
        };
        match started {
            Ok(pool) => break Some(pool),
            Err(error) => {
                let Some(fallback) = plan.fit_to_application(&error) else {
                    return Err(boot_failure(&error, &plan));
                };
                fallback.warn();
                front.route(settings, &plan)?;
            }
        }
    };

    if let (Some(realtime), Some(pool)) = (&realtime, &pool) {
        realtime.php(Php { pool: pool.clone(), context: context_of_ours(&plan, "realtime") });
    }

    let explanation = plan.explain(pool.as_ref().map(|pool| pool.status().php_version).as_deref());
    log::say(&explanation);
    let listeners = front.urls();
    state.ready(Serving {
        pool: pool.clone(),
        listeners: listeners.clone(),
        model: plan.php.as_ref().map(|php| php.model.name()),
        explanation,
        egress: watch.clone(),
        connectors: connectors.watches(),
        realtime: realtime.clone(),
    });
    for url in &listeners {
        log::say(&format!("ready on {url}"));
    }
    notify::notify(environment.notify_socket(), "READY=1");

    let draining = async {
        drain.cancelled().await;
        let deadline = Instant::now() + settings.server.shutdown_patience;
        state.draining();
        notify::notify(environment.notify_socket(), "STOPPING=1");
        tracing::info!("draining");
        // The front takes nobody new any more: those who are there may go, while it finishes what it has.
        if let Some(realtime) = realtime {
            realtime.drain(settings, settings.server.shutdown_patience).await;
        }
        deadline
    };
    let ((), deadline) = tokio::join!(front.serve(pool.clone(), drain.clone()), draining);
    if let Some(pool) = pool {
        // One patience for all: what the front has used up is not given again.
        pool.drain(deadline.saturating_duration_since(Instant::now())).await;
    }
    connectors.drain(deadline.saturating_duration_since(Instant::now())).await;
    broker.drain(deadline.saturating_duration_since(Instant::now())).await;
    tracing::info!("drained");
    Ok(())
}

/// Channels, where there is an application to have them for.
async fn start_realtime(
    settings: &Settings,
    plan: &Plan,
    environment: &Environment,
    listeners: &[String],
) -> Result<Option<Arc<Realtime>>, Failure> {
    let broadcasting = Broadcasting::read(&plan.application.folder, environment);
    let Some(named) = realtime::of_served(settings, &broadcasting)? else { return Ok(None) };
    if let Some(LookupTarget(WebhookTarget::Php(_))) = settings.realtime.lookup
        && plan.php.is_none()
    {
        return Err(realtime::no_php());
    }
    log::say(&realtime::explain(settings, &named));
    if let Some(elsewhere) = broadcasting.elsewhere(listeners) {
        tracing::warn!(%elsewhere, "PHP publishes to an address where this server does not listen");
    }
    Realtime::start(settings, &named, None).await.map(Some)
}

/// The private folder of this server, and the worker script that Hearth brings, when there is one.
#[derive(Debug)]
pub(crate) struct OwnFiles {
    script: Option<PathBuf>,
    run_dir: RunDir,
}

impl OwnFiles {
    /// Hearth's own script.
    pub(crate) fn script(&self) -> Option<&Path> {
        self.script.as_deref()
    }
}

pub(crate) fn own_files(
    settings: &Settings,
    plan: &Plan,
    environment: &Environment,
) -> Result<Option<OwnFiles>, Failure> {
    let Some(php) = &plan.php else { return Ok(None) };
    let connects = !settings.databases.connectors.0.is_empty();
    let ours = match &php.script {
        Some(WorkerScript::Ours { name, text, beside }) => Some((name, text, *beside)),
        _ if php.model.is_foreign() || settings.egress.enabled || connects => None,
        _ => return Ok(None),
    };
    let write = || {
        let run_dir =
            RunDir::new(settings.server.run_dir.0.as_deref(), &environment.temporary_folder())?;
        let script = match ours {
            Some((name, text, beside)) => {
                for (included, its_text) in beside {
                    run_dir.write(included, its_text)?;
                }
                Some(run_dir.write(name, text)?)
            }
            None => None,
        };
        Ok(Some(OwnFiles { script, run_dir }))
    };
    write().or_else(|error: std::io::Error| {
        if ours.is_none() && !php.model.is_foreign() && !connects {
            // Only the broker would be there, and PHP works without.
            tracing::warn!(%error, "no egress broker: outgoing calls go out directly");
            return Ok(None);
        }
        let hint = "set `server.run_dir` to a folder that may be written";
        Err(Failure::caused_by("cannot write into the run folder", &error, hint))
    })
}

/// The broker, unless nobody wants one. Where only its place is missing, PHP does without: its calls go out directly.
pub(crate) fn bind_broker(
    settings: &Settings,
    own_files: Option<&OwnFiles>,
) -> Result<Option<Broker>, Failure> {
    let Some(own_files) = own_files.filter(|_| settings.egress.enabled) else { return Ok(None) };
    match Broker::bind(settings, &egress::socket_in(own_files.run_dir.path())) {
        Ok(broker) => Ok(Some(broker)),
        // What was asked for in so many words and cannot be had is an error.
        Err(failure) if settings.egress.socket.0.is_some() || settings.egress.ca.0.is_some() => {
            Err(failure)
        }
        Err(failure) => {
            let reason = failure.message();
            tracing::warn!(reason, "no egress broker: outgoing calls go out directly");
            Ok(None)
        }
    }
}

pub(crate) fn pool_options(
    php: &PhpPlan,
    plan: &Plan,
    settings: &Settings,
    own_files: Option<&OwnFiles>,
    egress_socket: Option<&Path>,
    publisher: Option<&Publisher>,
) -> pool::Options {
    let mut env = settings.php.env.0.clone();
    env.extend(php.env.iter().cloned());
    if let Some(socket) = egress_socket
        && !env.iter().any(|(name, _)| name == egress::VARIABLE)
    {
        env.push((egress::VARIABLE.into(), socket.display().to_string()));
    }
    if let Some(publisher) = publisher.filter(|_| !php.model.is_foreign()) {
        env.push((realtime::VARIABLE.into(), publisher.limits()));
    }
    if php.model == Model::Snapshot {
        env.push((DATABASES.into(), databases(&settings.databases)));
    }
    let mut ini = settings.php.ini.0.clone();
    let mut default = |name: &str, value: &str| {
        if !ini.iter().any(|(set, _)| set == name) {
            ini.push((name.into(), value.into()));
        }
    };
    if php.model.boots_in_zygote() {
        default(RESTART_TIMEOUT, "0");
    }
    if php.model == Model::Snapshot {
        // The counters that make a function hot are put back with everything else, so it would only compile what never gets hot.
        default("opcache.jit", "disable");
    }
    let own_script = own_files.and_then(|own| own.script.as_ref());
    let worker_script = match (&php.script, own_script) {
        (Some(WorkerScript::Ours { .. }), Some(own)) => {
            // It lies outside the application and finds it by this; in most models it has nothing to put back after a request.
            env.push(("HEARTH_APP_DIR".into(), plan.application.folder.display().to_string()));
            env.push(("HEARTH_MODEL".into(), php.model.name().into()));
            // In the others it is the script of each request.
            Some(own.clone()).filter(|_| php.model.runs_worker_script())
        }
        (Some(WorkerScript::File(path)), _) => Some(path.clone()),
        // Also where another model has taken the place of one that runs a script.
        (Some(WorkerScript::Ours { .. }) | None, _) => None,
    };
    pool::Options {
        program: php.worker.program.clone(),
        model: php.model,
        worker_script,
        directory: plan.application.folder.clone(),
        run_dir: own_files.map(|own| own.run_dir.path().to_owned()).unwrap_or_default(),
        ini,
        env,
        warm_up: plan.warm_up(settings).into_iter().map(|path| warm_up(path, plan)).collect(),
        rehearse: plan.rehearses(settings),
        workers: php.workers,
        backlog: settings.php.backlog,
        backlog_timeout: settings.php.backlog_timeout,
        request_timeout: settings.php.request_timeout,
        boot_timeout: settings.php.boot_timeout,
        max_requests: settings.php.max_requests,
        memory_limit: settings.php.memory_limit,
        events: None,
    }
}

/// By which a worker knows what to do with connections of databases: `read_settings()` in native/sapi/databases.c.
const DATABASES: &str = "HEARTH_DATABASES";

fn databases(settings: &Databases) -> String {
    let milliseconds = |limit: Option<Duration>| limit.map_or(0, |limit| limit.as_millis().max(1));
    format!(
        "{} {} {} {}",
        u8::from(settings.keep),
        milliseconds(settings.max_idle),
        milliseconds(settings.max_lifetime),
        milliseconds(Some(settings.reset_timeout)),
    )
}

/// A restart of OPcache (full, or `opcache_reset()`) waits until nobody reads it, and after this many seconds kills with SIGKILL whoever
/// does (`accel_is_inactive()`, `kill_all_lockers()` in ext/opcache/ZendAccelerator.c). A zygote that has booted the application reads
/// it for as long as it lives: 0 has OPcache wait, which costs a full cache at worst, where a kill costs every worker.
const RESTART_TIMEOUT: &str = "opcache.force_restart_timeout";

/// What a request says of itself that no client sent.
fn context_of_ours(plan: &Plan, id: &str) -> RequestContext {
    const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 80);
    let filename = plan.nominal_script();
    let name = plan.url_of(&filename);
    RequestContext {
        script: Script {
            filename: filename.into(),
            name: name.into(),
            path_info: "".into(),
            document_root: plan.application.document_root.as_path().into(),
        },
        remote: ADDRESS,
        local: ADDRESS,
        scheme: Scheme::Http,
        server_name: "localhost".into(),
        server_port: ADDRESS.port(),
        remote_user: None,
        id: RequestId(id.into()),
        hints: None,
        deadline: None,
        variables: Vec::new(),
    }
}

/// A request that the booted application answers for itself.
fn warm_up(path: PathAndQuery, plan: &Plan) -> Request<()> {
    let context = context_of_ours(plan, "warm-up");
    let mut request = Request::new(());
    *request.uri_mut() = path.into();
    request.headers_mut().insert(HOST, HeaderValue::from_static("localhost"));
    request.headers_mut().insert(USER_AGENT, HeaderValue::from_static("hearth (warm-up)"));
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static("text/html, */*;q=0.1"));
    request.extensions_mut().insert(context);
    request
}

pub(crate) fn boot_failure(error: &StartError, plan: &Plan) -> Failure {
    log::say(&plan.explain(None));
    let hint = match error {
        StartError::Program { .. } => {
            "`hearth check` looks at the PHP programs; `make build` builds them"
        }
        StartError::Unfit { .. } => {
            "use `--model prespawn`, which boots it in each process, or find what leaves a thread running at boot"
        }
        StartError::Zygote { .. } => "`hearth check` shows PHP's settings and extensions",
        StartError::Boot { .. } => {
            "correct the application, or set `php.boot_timeout` if it only needs longer"
        }
        _ => "`hearth check` looks at limits and folders",
    };
    Failure::caused(error, hint)
}
