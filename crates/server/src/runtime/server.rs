//! `hearth serve`: wires the engines together, waits for a signal, and takes them down in order.
//!
//! Invariants
//! - Nothing is bound or started before the settings and the application are known to fit.
//! - The ready line comes after the first worker is ready and every listener is bound, and never otherwise; that of a successor when all its
//!   workers are, and nobody else answers any more.
//! - Drain: the front stops accepting and finishes, realtime closes its sockets meanwhile, then the pools of all generations, then the broker, then the admin address.
//!   A second signal ends it at once.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use front_http::Given;
use http::header::{ACCEPT, HOST, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderValue, Request};
use pool::{Model, RequestContext, RequestId, Scheme, Script, StartError};
use rustix::fs::Access;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::app::applications::{Planned, Plans};
use crate::app::detect;
use crate::app::plan::{PhpPlan, Plan, WorkerScript, processors};
use crate::app::user;
use crate::app::user::PhpUser;
use crate::cli::Target;
use crate::config::{self, Databases, Environment, Settings};
use crate::failure::Failure;
use crate::ops::admin::State;
use crate::ops::control::Control;
use crate::ops::log;
use crate::ops::notify;
use crate::runtime::memory;
use crate::runtime::process;
use crate::runtime::reload::{self, Generations};
use crate::runtime::sockets::Sockets;
use crate::runtime::upgrade::{Offer, Predecessor, Published};
use crate::subsystems::connectors::Connectors;
use crate::subsystems::egress::{self, Broker, Inside, Users};
use crate::subsystems::front;
use crate::subsystems::realtime::{self, Broadcasting, Publisher, Realtime};
use crate::subsystems::tls::Tls;
use crate::subsystems::traces::Collector;
use crate::system::run_dir::RunDir;

/// Serves until a signal ends it, or another process takes its place.
pub(crate) fn serve(target: &Target, environment: &Environment) -> Result<(), Failure> {
    // Before anything else is opened, and before there is a thread.
    let (sockets, predecessor) = Sockets::get(environment)?;
    let predecessor = predecessor.map(Arc::new);
    let outcome = served(target, environment, sockets, predecessor.clone());
    if let (Err(failure), Some(predecessor)) = (&outcome, predecessor) {
        predecessor.failed(failure);
    }
    outcome
}

fn served(
    target: &Target,
    environment: &Environment,
    mut sockets: Sockets,
    predecessor: Option<Arc<Predecessor>>,
) -> Result<(), Failure> {
    let settings = reload::settings(target, environment)?;
    log::start(&settings, environment)?;
    user::become_user(&settings, &mut sockets, environment)?;
    let users = PhpUser::all_of(&settings, environment)?;
    let plans = Plans::read(target, &settings, environment)?;
    plans.release()?;
    user::warn_of_root(&plans);
    if sockets.activated {
        let sockets = sockets.http.len();
        tracing::info!(sockets, "sockets were passed: `http.listen` is not looked at");
    }
    process::run(&settings, async {
        let alone = if predecessor.is_some() { CancellationToken::new() } else { process::alone() };
        let begin = alone.clone();
        let Sockets { http, admin, activated } = sockets;
        let server = Server { target, settings: &settings, environment, predecessor, alone: begin };
        process::attend(&settings, admin, alone, async |state, drain| {
            server.run(plans, users, (http, activated), state, drain).await
        })
        .await
    })
}

/// What a server is told when it starts.
#[derive(Debug)]
struct Server<'s> {
    target: &'s Target,
    settings: &'s Settings,
    environment: &'s Environment,
    /// Whose place it takes.
    predecessor: Option<Arc<Predecessor>>,
    /// To be cancelled when nobody else answers any more.
    alone: CancellationToken,
}

impl Server<'_> {
    async fn run(
        &self,
        plans: Plans,
        users: Vec<PhpUser>,
        (given, activated): (Vec<Given>, bool),
        state: &Arc<State>,
        drain: &CancellationToken,
    ) -> Result<(), Failure> {
        let Self { target, settings, environment, .. } = *self;
        let tls = Tls::start(settings, environment, drain)?;
        let certificates = tls.as_ref().map(Tls::certificates);
        let service = service_of(&detect::folder_of(&target.path)?);
        let collector = Collector::start(settings, environment, &service)?;
        let tracer = collector.tracer();
        state.trace(tracer);
        let sockets = (given, activated);
        let mut front = front::bind(settings, certificates, tracer, sockets).await?;
        state.access_log(front.access_log());
        let realtime = start_realtime(settings, target, environment, &front.urls()).await?;
        if let Some(realtime) = &realtime {
            front.realtime(Arc::clone(realtime));
        }
        let run_dir = run_dir(settings, environment, &users)?.map(Arc::new);
        let mut commands = Commands::default();
        let succeeds = self.predecessor.is_some();
        if let (Some(run_dir), false) = (&run_dir, succeeds) {
            commands.listen(self, run_dir, &front, (activated, !users.is_empty()), state);
        }
        let first = PhpUser::of_server(settings, environment)?;
        let connectors = match &run_dir {
            _ if !plans.run_php() || settings.databases.connectors.0.is_empty() => {
                Connectors::default()
            }
            Some(run_dir) => Connectors::start(settings, run_dir.path(), first.as_ref(), succeeds)?,
            None => return Err(no_run_dir(&std::io::Error::other("there is none"))),
        };
        let mut generations = Generations {
            target,
            environment,
            settings: settings.clone(),
            first: first.clone(),
            users: users.clone(),
            state,
            drain,
            switch: front.switch(),
            listeners: front.urls(),
            publisher: realtime.as_ref().and_then(|realtime| realtime.publisher()).map(Arc::new),
            realtime: realtime.clone(),
            run_dir: run_dir.clone(),
            succeeds,
            running_before: self
                .predecessor
                .as_ref()
                .map(|before| before.running().clone())
                .unwrap_or_default(),
            traffic: front.traffic(),
            connections: front.connections(),
            tls,
            broker: Inside::traced(tracer),
            connectors,
            watch: None,
            current: None,
            retired: JoinSet::new(),
            watched: None,
        };
        if !generations.start(plans).await? {
            return Ok(());
        }
        let mut published = Published::default();
        if let Some(predecessor) = &self.predecessor {
            let all = generations.prove().await;
            self.take_over(predecessor, all, &generations, &mut published).await?;
            // What later generations bring along has its name at once.
            generations.succeeds = false;
            front.leftovers().take_away();
            if let Some(run_dir) = &run_dir {
                commands.listen(self, run_dir, &front, (activated, !users.is_empty()), state);
            }
            predecessor.taken();
        }
        if let Some(serving) = state.serving() {
            serving.say();
        }
        for url in &generations.listeners {
            log::say(&format!("ready on {url}"));
        }
        notify::notify(environment.notify_socket(), "READY=1").await;
        commands.live(environment, state);
        commands.tasks.spawn(memory::give_back(front.connections(), commands.end.clone()));
        if let Some(tls) = &mut generations.tls {
            tls.obtain(drain);
        }

        let draining = async {
            drain.cancelled().await;
            let deadline = Instant::now() + settings.server.shutdown_patience;
            state.draining();
            // The service manager has another process to look at, when there is a successor.
            if !state.succeeded().is_cancelled() {
                notify::notify(environment.notify_socket(), "STOPPING=1").await;
            }
            tracing::info!("draining");
            // The front takes nobody new any more: those who are there may go, while it finishes what it has.
            if let Some(realtime) = realtime {
                realtime.drain(settings, settings.server.shutdown_patience).await;
            }
            deadline
        };
        let ((), (), deadline) =
            tokio::join!(front.serve(drain.clone()), generations.run(), draining);
        // One patience for all: what the front has used up is not given again.
        generations.end(deadline).await;
        collector.end().await;
        commands.end().await;
        drop(published);
        tracing::info!("drained");
        Ok(())
    }

    /// Has the running server let go of everything. From here on this one serves.
    async fn take_over(
        &self,
        predecessor: &Arc<Predecessor>,
        all: Result<(), Failure>,
        generations: &Generations<'_>,
        published: &mut Published,
    ) -> Result<(), Failure> {
        all?;
        let says = Arc::clone(predecessor);
        let ready = tokio::task::spawn_blocking(move || says.ready());
        ready.await.unwrap_or_else(|error| {
            Err(Failure::caused_by("cannot take over", &error, "please report this"))
        })?;
        self.alone.cancel();
        for (beside, place) in generations.beside() {
            if let Err(error) = published.put(&beside, &place) {
                let place = place.display();
                tracing::warn!(%place, %error, "what others know by this name is not there any more");
            }
        }
        tracing::info!(predecessor = predecessor.pid(), "took over");
        Ok(())
    }
}

/// What the boot of all applications may take: so many at once as there are processors.
fn boot_patience(settings: &Settings) -> Duration {
    let others = settings.applications.iter().map(|named| named.settings.php.boot_timeout);
    let longest = others.fold(settings.php.boot_timeout, Duration::max);
    let rounds = (settings.applications.len() + 1).div_ceil(processors().get());
    longest.saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX))
}

/// Whom others hear and speak to: the control socket, that of successors, the service manager.
#[derive(Debug, Default)]
struct Commands {
    tasks: JoinSet<()>,
    end: CancellationToken,
}

impl Commands {
    fn listen(
        &mut self,
        server: &Server<'_>,
        run_dir: &RunDir,
        front: &front::Bound,
        (activated, hands_on): (bool, bool),
        state: &Arc<State>,
    ) {
        let Server { target, settings, environment, predecessor, .. } = server;
        // As it was named: where a link points is a matter of each reload.
        let named = environment.current_dir.join(&target.path);
        let patience = settings.server.shutdown_patience;
        let folder = run_dir.path().display();
        let control =
            Control::bind(run_dir, Arc::clone(state), named, patience, predecessor.is_some());
        let control = match control {
            Ok(control) => control,
            Err(error) => {
                tracing::warn!(%folder, %error, "no control socket: `hearth reload` will not find this server");
                return;
            }
        };
        let offered = front.share().and_then(|sockets| {
            let (sockets, boot) = ((sockets, activated), boot_patience(settings));
            Offer::new(run_dir, sockets, front.succeeded(), state, environment, (boot, hands_on))
        });
        match offered {
            Ok(offer) => drop(self.tasks.spawn(offer.serve(self.end.clone()))),
            Err(error) => {
                tracing::warn!(%folder, %error, "this server cannot be upgraded");
                let hint = format!("see to {folder}, and restart the server");
                let why = Failure::caused_by("this server cannot be upgraded", &error, hint);
                state.cannot_upgrade(why);
            }
        }
        // Whoever comes by it finds the rest there.
        self.tasks.spawn(control.serve(self.end.clone()));
    }

    /// Has the service manager hear that the process lives, if it wants to, until another one does so in its place.
    fn live(&mut self, environment: &Environment, state: &State) {
        if let (Some(socket), Some(limit)) = (environment.notify_socket(), environment.watchdog()) {
            let living = notify::live(socket.to_owned(), limit, self.end.clone());
            let succeeded = state.succeeded().clone();
            self.tasks.spawn(async move {
                let _succeeded = succeeded.run_until_cancelled_owned(living).await.is_none();
            });
        }
    }

    async fn end(mut self) {
        self.end.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

/// The server's own folder. Where it was not asked for and cannot be made, there is neither a broker nor a control socket, and PHP works
/// without.
fn run_dir(
    settings: &Settings,
    environment: &Environment,
    users: &[PhpUser],
) -> Result<Option<RunDir>, Failure> {
    let named = settings.server.run_dir.0.as_deref();
    let made = RunDir::new(named, &environment.temporary_folder());
    match made.and_then(|run_dir| run_dir.for_php(users)) {
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

/// What to do about a run folder that cannot be used.
pub(crate) const RUN_DIR_HINT: &str = "set `server.run_dir` to a folder of the server's own user that others cannot write into (`chmod go-w`), or to one below it that \
     Hearth makes";

fn no_run_dir(error: &std::io::Error) -> Failure {
    Failure::caused_by("cannot use the run folder", error, RUN_DIR_HINT)
}

/// What the service of an application is called, unless somebody says so.
pub(crate) fn service_of(folder: &Path) -> String {
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| "php".to_owned())
}

/// Channels, where there is an application to have them for.
async fn start_realtime(
    settings: &Settings,
    target: &Target,
    environment: &Environment,
    listeners: &[String],
) -> Result<Option<Arc<Realtime>>, Failure> {
    let broadcasting = Broadcasting::read(&detect::folder_of(&target.path)?, settings, environment);
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

    /// Those of one application in one generation of a server, in a folder of their own; none where it needs none.
    pub(crate) fn of_generation(
        number: u64,
        planned: &Planned,
        run_dir: Option<&RunDir>,
    ) -> Result<Option<Self>, Failure> {
        let Planned { name, settings, plan, .. } = planned;
        let needed = |php: &&PhpPlan| needs_folder(php, settings);
        let Some(php) = plan.php.as_ref().filter(needed) else { return Ok(None) };
        let Some(run_dir) = run_dir else {
            return Err(no_run_dir(&std::io::Error::other("there is none")));
        };
        // Several servers may share a folder that was configured.
        let name = if planned.is_main() { String::new() } else { format!("-{name}") };
        let name = format!("{}-generation-{number}{name}", std::process::id());
        let written = run_dir.inside(&name).and_then(|run_dir| Self::written(run_dir, php));
        let written = written.map_err(|error| no_run_dir(&error))?;
        written.can_be_used_by(php.user.as_ref())?;
        Ok(Some(written))
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
        if let Some(user) = &php.user {
            let files = std::fs::read_dir(run_dir.path())?;
            for file in files {
                user.identity.share(&file?.path(), 0o640)?;
            }
            // php-fpm, php -S and php-cgi find theirs in it, too.
            user.identity.share(run_dir.path(), 0o750)?;
        }
        Ok(Self { script, run_dir })
    }

    fn can_be_used_by(&self, user: Option<&PhpUser>) -> Result<(), Failure> {
        let Some(user) = user else { return Ok(()) };
        let script = self.script.as_deref().map(|script| (script, Access::READ_OK));
        let mut paths = vec![(self.run_dir.path(), Access::EXEC_OK)];
        paths.extend(script);
        user.must_reach(&paths)
    }
}

/// The same for a command that has one generation only, and its broker in the same folder.
pub(crate) fn own_files(
    settings: &Settings,
    plan: &Plan,
    environment: &Environment,
) -> Result<Option<OwnFiles>, Failure> {
    let Some(php) = &plan.php else { return Ok(None) };
    if !needs_folder(php, settings) && !settings.egress.enabled {
        return Ok(None);
    }
    let folder = settings.server.run_dir.0.as_deref();
    let run_dir = RunDir::new(folder, &environment.temporary_folder());
    let written = run_dir.and_then(|run_dir| OwnFiles::written(run_dir, php));
    if let Ok(written) = &written {
        written.can_be_used_by(php.user.as_ref())?;
    }
    written.map(Some).or_else(|error| {
        if needs_folder(php, settings) {
            return Err(no_run_dir(&error));
        }
        // Only the broker would be there, and PHP works without.
        tracing::warn!(%error, "no egress broker: outgoing calls go out directly");
        Ok(None)
    })
}

/// Files of ours are made for PHP, or PHP makes files that nobody has named a place for: OPcache's lock, in a sandbox that says where it writes.
fn needs_folder(php: &PhpPlan, settings: &Settings) -> bool {
    php.needs_files() || !settings.sandbox.writable.is_empty()
}

/// The broker, unless nobody wants one. Where only its place is missing, PHP does without: its calls go out directly.
pub(crate) fn bind_broker(
    settings: &Settings,
    folder: &Path,
    users: Users<'_>,
    succeeds: bool,
    admin: Option<SocketAddr>,
) -> Result<Option<Broker>, Failure> {
    if !settings.egress.enabled {
        return Ok(None);
    }
    match Broker::bind(settings, &egress::socket_in(folder), users, succeeds, admin) {
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
    let of_user = php.user.iter().flat_map(|user| &user.env);
    let missing = of_user.filter(|(name, _)| !env.iter().any(|(set, _)| set == name)).cloned();
    env.extend(missing.collect::<Vec<_>>());
    if let Some(socket) = egress_socket
        && !env.iter().any(|(name, _)| name == egress::VARIABLE)
    {
        env.push((egress::VARIABLE.into(), socket.display().to_string()));
        if php.user.is_some() {
            let owner = rustix::process::geteuid().as_raw();
            env.push((egress::OWNER_VARIABLE.into(), owner.to_string()));
        }
    }
    if let Some(publisher) = publisher.filter(|_| !php.model.is_foreign()) {
        env.push((realtime::VARIABLE.into(), publisher.limits()));
    }
    if matches!(php.model, Model::Snapshot | Model::Fork) {
        env.push((DATABASES.into(), databases(&settings.databases, php.model)));
    }
    let sandbox = sandbox(&settings.sandbox).map(|mut sandbox| {
        let missing = sandbox.missing();
        if !missing.is_empty() {
            let missing = missing.join("; ");
            tracing::warn!(missing, "this kernel cannot do all of PHP's sandbox");
        }
        // Where PHP is told of it, which may be another's than ours.
        let told = env.iter().find(|(name, value)| name == egress::VARIABLE && !value.is_empty());
        let token = told.map(|(_, socket)| egress::token_of(Path::new(socket)));
        sandbox.own_readable.extend(token);
        sandbox
    });
    let mut ini = settings.php.ini.0.clone();
    let mut default = |name: &str, value: &str| {
        if !ini.iter().any(|(set, _)| set == name) {
            ini.push((name.into(), value.into()));
        }
    };
    if let Some(own) = own_files.filter(|_| !settings.sandbox.writable.is_empty()) {
        default("opcache.lockfile_path", &own.folder().display().to_string());
    }
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
        hidden: php.user.as_ref().map(|user| user.hidden.clone()).unwrap_or_default(),
        identity: php.user.as_ref().map(|user| user.identity.clone()),
        warm_up: plan
            .warm_up(settings)
            .into_iter()
            .map(|path| request_of_ours(path, plan, "warm-up"))
            .collect(),
        rehearse: plan.rehearses(settings),
        workers: php.workers,
        scaling: php.workers_max.map(|most| pool::Scaling {
            most,
            start: 0,
            idle_timeout: settings.php.workers_idle_timeout,
            burst: settings.php.workers_burst,
        }),
        backlog: settings.php.backlog,
        backlog_timeout: settings.php.backlog_timeout,
        backlog_target: settings.php.backlog_target,
        request_timeout: settings.php.request_timeout,
        slow: settings.log.slow_requests,
        boot_timeout: settings.php.boot_timeout,
        max_requests: settings.php.max_requests,
        memory_limit: settings.php.memory_limit,
        sandbox,
        events: None,
    }
}

/// The sandbox of PHP, if it has one.
pub(crate) fn sandbox(settings: &config::Sandbox) -> Option<pool::Sandbox> {
    let named = |paths: &[PathBuf]| (!paths.is_empty()).then(|| paths.to_owned());
    let sandbox = pool::Sandbox {
        readable: named(&settings.readable),
        writable: named(&settings.writable),
        ..pool::Sandbox::default()
    };
    let wanted = settings.enabled.0 || sandbox != pool::Sandbox::default();
    wanted.then_some(sandbox)
}

/// By which a worker knows what to do with connections of databases: `read_settings()` in native/sapi/databases.c.
pub(crate) const DATABASES: &str = "HEARTH_DATABASES";

/// Nothing is kept in the model `fork`: only how long a server is waited for matters there.
fn databases(settings: &Databases, model: Model) -> String {
    let milliseconds = |limit: Option<Duration>| limit.map_or(0, |limit| limit.as_millis().max(1));
    format!(
        "{} {} {} {} {}",
        u8::from(settings.keep && model == Model::Snapshot),
        milliseconds(settings.max_idle),
        milliseconds(settings.max_lifetime),
        milliseconds(Some(settings.reset_timeout)),
        milliseconds(Some(settings.connect_timeout)),
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
        trace: None,
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
        StartError::Sandbox(pool::SandboxError::NoLandlock) => {
            "take the paths out of `[sandbox]` and set `sandbox.enabled`, or run a kernel that has it"
        }
        StartError::Sandbox(pool::SandboxError::Filtered(_)) => {
            "allow landlock_create_ruleset, landlock_add_rule and landlock_restrict_self in `SystemCallFilter=` or in the container's seccomp profile"
        }
        StartError::Sandbox(_) => "correct `[sandbox]`; `hearth check` shows what is wrong with it",
        StartError::Hidden { .. } => {
            "mount /proc without `hidepid`, or set `ProtectProc=default` in the unit: with `php.user` the server looks at processes of another user"
        }
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
