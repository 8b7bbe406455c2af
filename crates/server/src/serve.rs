//! `hearth serve`: wires the engines together, waits for a signal, and takes them down in order.
//!
//! Invariants
//! - Nothing is bound or started before the settings and the application are known to fit.
//! - The ready line comes after the first worker is ready and every listener is bound, and never otherwise.
//! - Drain: the front stops accepting and finishes, realtime closes its sockets meanwhile, then the pools of all generations, then the broker, then the admin address.
//!   A second signal ends it at once.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCEPT, HOST, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderValue, Request};
use pool::{Model, RequestContext, RequestId, Scheme, Script, StartError};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::admin::State;
use crate::cli::Target;
use crate::config::{Databases, Environment, Settings};
use crate::connectors::Connectors;
use crate::control::Control;
use crate::egress::{self, Broker, Inside};
use crate::failure::Failure;
use crate::front;
use crate::plan::{PhpPlan, Plan, WorkerScript};
use crate::process;
use crate::realtime::{self, Broadcasting, Publisher, Realtime};
use crate::reload::{self, Generations};
use crate::run_dir::RunDir;
use crate::{log, notify};

/// Serves until a signal ends it.
pub(crate) fn serve(target: &Target, environment: &Environment) -> Result<(), Failure> {
    let settings = reload::settings(target, environment)?;
    log::start(&settings, environment)?;
    let plan = reload::plan(target, &settings, environment)?;
    process::run(&settings, run(target, &settings, plan, environment))
}

async fn run(
    target: &Target,
    settings: &Settings,
    plan: Plan,
    environment: &Environment,
) -> Result<(), Failure> {
    process::attend(settings, async |state, drain| {
        serve_and_drain(target, settings, plan, environment, state, drain).await
    })
    .await
}

async fn serve_and_drain(
    target: &Target,
    settings: &Settings,
    plan: Plan,
    environment: &Environment,
    state: &Arc<State>,
    drain: &CancellationToken,
) -> Result<(), Failure> {
    let mut front = front::bind(settings, &plan).await?;
    let realtime = start_realtime(settings, &plan, environment, &front.urls()).await?;
    if let Some(realtime) = &realtime {
        front.realtime(Arc::clone(realtime));
    }
    let run_dir = run_dir(settings, environment)?;
    let mut control = JoinSet::new();
    let end_control = CancellationToken::new();
    if let Some(run_dir) = &run_dir {
        // As it was named: where a link points is a matter of each reload.
        let named = environment.current_dir.join(&target.path);
        match Control::bind(run_dir, Arc::clone(state), named) {
            Ok(bound) => {
                control.spawn(bound.serve(end_control.clone()));
            }
            Err(error) => {
                let folder = run_dir.path().display();
                tracing::warn!(%folder, %error, "no control socket: `hearth reload` will not find this server");
            }
        }
    }
    let connectors = match &run_dir {
        _ if plan.php.is_none() || settings.databases.connectors.0.is_empty() => {
            Connectors::default()
        }
        Some(run_dir) => Connectors::start(settings, run_dir.path())?,
        None => return Err(no_run_dir(&std::io::Error::other("there is none"))),
    };
    let mut generations = Generations {
        target,
        environment,
        settings: settings.clone(),
        state,
        drain,
        switch: front.switch(),
        listeners: front.urls(),
        publisher: realtime.as_ref().and_then(|realtime| realtime.publisher()).map(Arc::new),
        realtime: realtime.clone(),
        run_dir,
        broker: Inside::default(),
        connectors,
        watch: None,
        current: None,
        retired: JoinSet::new(),
        watched: None,
    };
    if !generations.start(plan).await? {
        return Ok(());
    }
    if let Some(serving) = state.serving() {
        log::say(&serving.explanation);
    }
    for url in &generations.listeners {
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
    let ((), (), deadline) = tokio::join!(front.serve(drain.clone()), generations.run(), draining);
    // One patience for all: what the front has used up is not given again.
    generations.end(deadline).await;
    end_control.cancel();
    while control.join_next().await.is_some() {}
    tracing::info!("drained");
    Ok(())
}

/// The server's own folder. Where it was not asked for and cannot be made, there is neither a broker nor a control socket, and PHP works
/// without.
fn run_dir(settings: &Settings, environment: &Environment) -> Result<Option<RunDir>, Failure> {
    let named = settings.server.run_dir.0.as_deref();
    match RunDir::new(named, &environment.temporary_folder()) {
        Ok(run_dir) => Ok(Some(run_dir)),
        Err(error) if named.is_some() => Err(no_run_dir(&error)),
        Err(error) => {
            tracing::warn!(
                %error,
                "no run folder: outgoing calls go out directly, and `hearth reload` will not find this server"
            );
            Ok(None)
        }
    }
}

fn no_run_dir(error: &std::io::Error) -> Failure {
    let hint = "set `server.run_dir` to a folder that may be written";
    Failure::caused_by("cannot write into the run folder", error, hint)
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

    /// Where they are.
    pub(crate) fn folder(&self) -> &Path {
        self.run_dir.path()
    }

    /// Those of one generation of a server, in a folder of their own; none where it needs none.
    pub(crate) fn of_generation(
        number: u64,
        plan: &Plan,
        run_dir: Option<&RunDir>,
    ) -> Result<Option<Self>, Failure> {
        let Some(php) = plan.php.as_ref().filter(|php| php.needs_files()) else { return Ok(None) };
        let Some(run_dir) = run_dir else {
            return Err(no_run_dir(&std::io::Error::other("there is none")));
        };
        // Several servers may share a folder that was configured.
        let name = format!("{}-generation-{number}", std::process::id());
        let written = run_dir.inside(&name).and_then(|run_dir| Self::written(run_dir, php));
        written.map(Some).map_err(|error| no_run_dir(&error))
    }

    fn written(run_dir: RunDir, php: &PhpPlan) -> std::io::Result<Self> {
        let script = match &php.script {
            Some(WorkerScript::Ours { name, text, beside }) => {
                for (included, its_text) in *beside {
                    run_dir.write(included, its_text)?;
                }
                Some(run_dir.write(name, text)?)
            }
            _ => None,
        };
        Ok(Self { script, run_dir })
    }
}

/// The same for a command that has one generation only, and its broker in the same folder.
pub(crate) fn own_files(
    settings: &Settings,
    plan: &Plan,
    environment: &Environment,
) -> Result<Option<OwnFiles>, Failure> {
    let Some(php) = &plan.php else { return Ok(None) };
    if !php.needs_files() && !settings.egress.enabled {
        return Ok(None);
    }
    let folder = settings.server.run_dir.0.as_deref();
    let run_dir = RunDir::new(folder, &environment.temporary_folder());
    let written = run_dir.and_then(|run_dir| OwnFiles::written(run_dir, php));
    written.map(Some).or_else(|error| {
        if php.needs_files() {
            return Err(no_run_dir(&error));
        }
        // Only the broker would be there, and PHP works without.
        tracing::warn!(%error, "no egress broker: outgoing calls go out directly");
        Ok(None)
    })
}

/// The broker, unless nobody wants one. Where only its place is missing, PHP does without: its calls go out directly.
pub(crate) fn bind_broker(settings: &Settings, folder: &Path) -> Result<Option<Broker>, Failure> {
    if !settings.egress.enabled {
        return Ok(None);
    }
    match Broker::bind(settings, &egress::socket_in(folder)) {
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
        run_dir: own_files.map(|own| own.folder().to_owned()).unwrap_or_default(),
        ini,
        env,
        warm_up: plan
            .warm_up(settings)
            .into_iter()
            .map(|path| request_of_ours(path, plan, "warm-up"))
            .collect(),
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
pub(crate) fn context_of_ours(plan: &Plan, id: &str) -> RequestContext {
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

/// A request that no client sent; `purpose` is its id.
pub(crate) fn request_of_ours(path: PathAndQuery, plan: &Plan, purpose: &str) -> Request<()> {
    let context = context_of_ours(plan, purpose);
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
