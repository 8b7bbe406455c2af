//! `hearth serve`: connects the engines, waits for a signal, and stops them in order.
//!
//! Invariants
//! - Nothing is bound or started before the settings and the application are known to fit.
//! - The ready line is printed only after the first worker is ready and every listener is bound. A successor prints it when all its
//!   workers are ready and the previous server has stopped accepting.
//! - Drain: the front stops accepting and finishes, realtime closes its sockets meanwhile, then the pools of all generations, then the broker, then the admin address.
//!   A second signal ends it at once.

use std::sync::Arc;
use std::time::Duration;

use front_http::Given;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::app::applications::Plans;
use crate::app::boot::{no_run_dir, run_dir, service_of};
use crate::app::detect;
use crate::app::target::Target;
use crate::config::{Auto, Environment, Settings};
use crate::failure::Failure;
use crate::ops::control::Control;
use crate::ops::log;
use crate::ops::notify;
use crate::ops::state::State;
use crate::runtime::boot_watch::BootWatch;
use crate::runtime::memory;
use crate::runtime::reload::Generations;
use crate::runtime::retry::Retry;
use crate::runtime::source::Source;
use crate::runtime::upgrade::{Offer, Predecessor};
use crate::runtime::watch::Watched;
use crate::subsystems::connectors::Connectors;
use crate::subsystems::egress::Inside;
use crate::subsystems::http::dev::Dev;
use crate::subsystems::http::{Http, front};
use crate::subsystems::processes::{Places, Processes};
use crate::subsystems::realtime::{self, Broadcasting, Realtime};
use crate::subsystems::tls::Tls;
use crate::subsystems::traces::Collector;
use crate::subsystems::websockets::Pushes;
use crate::system::machine::processors;
use crate::system::places::Published;
use crate::system::run_dir::RunDir;
use crate::system::users::PhpUser;

/// The parameters of a server that starts.
#[derive(Debug)]
pub(crate) struct Server<'s> {
    pub(crate) target: &'s Target,
    pub(crate) settings: &'s Settings,
    pub(crate) environment: &'s Environment,
    /// The previous server, which it replaces.
    pub(crate) predecessor: Option<Arc<Predecessor>>,
    /// Cancelled when the previous server no longer answers.
    pub(crate) alone: CancellationToken,
    /// Lines for the terminal behind the ready line: what is wrong with the application although it is served.
    pub(crate) problems: String,
}

impl Server<'_> {
    /// Serves until it has drained.
    pub(crate) async fn run(
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
        state.register(collector.watch());
        let sockets = (given, activated);
        let mut front = front::bind(settings, certificates, tracer, sockets).await?;
        state.access_log(front.access_log());
        state.has_cache(front.cache());
        let dev = settings.server.dev.0.then(|| Arc::new(Dev::new()));
        let realtime =
            start_realtime(settings, target, environment, &front.urls(), dev.as_deref()).await?;
        if let Some(realtime) = &realtime {
            front.realtime(Arc::clone(realtime));
            if let Some(dev) = &dev {
                dev.publish_over(realtime);
            }
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
        let before = self.predecessor.as_ref().zip(environment.take_over());
        let before = before.and_then(|(server, socket)| Some((socket.parent()?, server.pid())));
        let places = Places::new(run_dir.as_deref(), before);
        let mut generations = Generations {
            source: Source { target, environment, users: users.clone() },
            settings: settings.clone(),
            first,
            state,
            drain,
            switch: front.switch(),
            listeners: front.urls(),
            realtime: realtime.clone(),
            run_dir: run_dir.clone(),
            predecessor: self.predecessor.as_ref().map(|before| before.running().clone()),
            http: Arc::new(Http::new(front.traffic(), front.connections(), front.cache())),
            tls,
            broker: Inside::traced(tracer),
            pushes: Pushes::new(front.websockets(), run_dir.clone()),
            connectors,
            processes: Processes::new(places, drain.clone()),
            waiting: None,
            current: None,
            retired: JoinSet::new(),
            watched: Watched::default(),
            boot_watch: BootWatch::default(),
            dev,
            retry: Retry::default(),
        };
        if !generations.start(plans).await? {
            return Ok(());
        }
        let mut published = Published::default();
        if let Some(predecessor) = &self.predecessor {
            let all = generations.prove().await;
            self.take_over(predecessor, all, &generations, &mut published).await?;
            // Metrics of later generations are described from the start.
            generations.predecessor = None;
            generations.start_processes();
            front.stale().remove();
            if let Some(run_dir) = &run_dir {
                commands.listen(self, run_dir, &front, (activated, !users.is_empty()), state);
            }
            predecessor.taken();
        }
        if let Some(serving) = state.serving() {
            serving.announce();
        }
        log::ready(&generations.listeners, generations.runs());
        self.problems.lines().for_each(log::plain);
        notify::notify(environment.notify_socket(), "READY=1").await;
        commands.live(environment, state);
        commands.tasks.spawn(memory::give_back(front.connections(), commands.end.clone()));
        if let Some(tls) = &mut generations.tls {
            tls.obtain(drain);
        }

        let draining = async {
            drain.cancelled().await;
            let deadline = Instant::now() + settings.server.shutdown_patience;
            state.lifecycle.draining();
            // With a successor, the service manager monitors another process.
            if !state.upgrades.succeeded().is_cancelled() {
                notify::notify(environment.notify_socket(), "STOPPING=1").await;
            }
            tracing::info!("draining");
            // The front accepts nothing new: realtime's sockets may close while it finishes.
            if let Some(realtime) = realtime {
                realtime.drain(settings, settings.server.shutdown_patience).await;
            }
            deadline
        };
        let ((), (), deadline) =
            tokio::join!(front.serve(drain.clone()), generations.run(), draining);
        // One time limit for all: the front's share is subtracted.
        generations.end(deadline).await;
        collector.end().await;
        commands.end().await;
        drop(published);
        tracing::info!("drained");
        Ok(())
    }

    /// Makes the running server stop accepting. From here on this one serves.
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

/// Returns the time limit for the boot of all applications: as many at once as there are processors.
fn boot_patience(settings: &Settings) -> Duration {
    let others = settings.applications.iter().map(|named| named.settings.php.boot_timeout);
    let longest = others.fold(settings.php.boot_timeout, Duration::max);
    let rounds = (settings.applications.len() + 1).div_ceil(processors().get());
    longest.saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX))
}

/// Background tasks that accept commands: the control socket, the upgrade socket and systemd notifications.
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
        // The path as it was given, because each reload resolves links again.
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
                state.upgrades.refuse(why);
            }
        }
        // Started last: a command that connects finds the rest in place.
        self.tasks.spawn(control.serve(self.end.clone()));
    }

    /// Sends watchdog notifications to the service manager, if it requires them, until another process takes over.
    fn live(&mut self, environment: &Environment, state: &State) {
        if let (Some(socket), Some(limit)) = (environment.notify_socket(), environment.watchdog()) {
            let living = notify::live(socket.to_owned(), limit, self.end.clone());
            let succeeded = state.upgrades.succeeded().clone();
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

/// Starts channels, if there is an application with channels.
async fn start_realtime(
    settings: &Settings,
    target: &Target,
    environment: &Environment,
    listeners: &[String],
    dev: Option<&Dev>,
) -> Result<Option<Arc<Realtime>>, Failure> {
    let broadcasting = Broadcasting::read(&detect::folder_of(&target.path)?, settings, environment);
    let mut named = realtime::of_served(settings, &broadcasting)?;
    if let Some(named) = &named {
        log::line(&realtime::explain(settings, named));
    }
    if let Some(dev) = dev
        && settings.realtime.enabled != Auto(Some(false))
    {
        named.get_or_insert_default().push(dev.app(settings));
    }
    let Some(named) = named else { return Ok(None) };
    if let Some(other) = broadcasting.other_address(listeners) {
        tracing::warn!(address = %other, "PHP publishes to an address on which this server does not listen");
    }
    Realtime::start(settings, &named, None).await.map(Some)
}
