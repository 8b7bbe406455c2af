//! The egress broker: alone (`hearth egress`) and inside `hearth serve`. The settings are translated
//! to the engine's options here only.
//!
//! Invariants
//! - PHP's environment names a socket only when it is there.
//! - Each user that PHP runs as has a socket and a token of its own, and connections of its own: those of the engine have the caller's number in
//!   their keys.

mod report;

use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use egress::{Engine, HttpListener, Key, ListenerOptions, ListenerWatch, SocketError};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use traces::Tracer;

use crate::config::{OriginUrl, Settings};
use crate::failure::Failure;
use crate::system::places;
use crate::system::run_dir::let_pass;
use crate::system::users::PhpUser;

/// The environment variable by which PHP finds the socket.
pub(crate) const VARIABLE: &str = "HEARTH_EGRESS";
/// The environment variable that names the broker's user for PHP of another user: PHP sends its calls to no other user's process.
pub(crate) const OWNER_VARIABLE: &str = "HEARTH_EGRESS_OWNER";
/// The default socket of `hearth egress`.
pub(crate) const SOCKET: &str = "/run/hearth/egress.sock";
/// The name of the socket in a folder.
const SOCKET_NAME: &str = "egress.sock";
/// The token beside the socket: a process that may read it may call (egress's listener).
const TOKEN_NAME: &str = "egress.token";
/// The file beside it with the origins of the last run.
const MEMORY_NAME: &str = "egress.origins";
/// The time that a name waits for a thread that looks it up. Behind names whose servers are down it would be half a minute.
const LOOKUP_PATIENCE: Duration = Duration::from_millis(100);

/// A broker that listens.
#[derive(Debug)]
pub(crate) struct Broker {
    /// The listeners, that of the settings first.
    listeners: Vec<Listener>,
    engine: Engine,
    prewarm: Vec<Key>,
    memory: PathBuf,
}

/// A socket of a broker, for one user's calls.
#[derive(Debug)]
struct Listener {
    http: HttpListener,
    entrance: Entrance,
    _folder: Option<OwnFolder>,
}

/// A folder for one listener and nothing else; goes with it.
#[derive(Debug)]
struct OwnFolder(PathBuf);

impl Drop for OwnFolder {
    fn drop(&mut self) {
        // Where it is not empty another broker lives there by now.
        drop(std::fs::remove_dir(&self.0));
    }
}

/// A listener as other parts see it.
#[derive(Clone, Debug)]
struct Entrance {
    /// The user that PHP runs as; `None` is our own user.
    user: Option<PhpUser>,
    socket: PathBuf,
    /// The final path of the socket, if it was made beside that of another broker.
    place: PathBuf,
    watch: ListenerWatch,
}

/// The users that a broker is for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Users<'u> {
    /// The user that PHP runs as, if that is not ours.
    pub first: Option<&'u PhpUser>,
    /// Further users, each with a separate folder beside it.
    pub others: &'u [PhpUser],
}

impl<'u> Users<'u> {
    /// Returns a single user, or our own.
    pub(crate) fn one(user: Option<&'u PhpUser>) -> Self {
        Self { first: user, others: &[] }
    }

    /// Returns the user numbers, each once.
    fn numbers(self) -> Vec<u32> {
        let own = || rustix::process::geteuid().as_raw();
        let mut numbers = vec![self.first.map_or_else(own, |user| user.identity.user)];
        for user in self.others {
            if !numbers.contains(&user.identity.user) {
                numbers.push(user.identity.user);
            }
        }
        numbers
    }
}

/// The broker as other parts and operators see it.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    /// The listeners, that of the settings first.
    entrances: Vec<Entrance>,
    engine: Engine,
}

impl Broker {
    /// Makes the sockets. `socket` is the default path. `succeeds`: this broker takes the place of another one, and its socket is made
    /// beside it. `users` are the callers. `admin` is this server's admin address, which calls may not reach.
    pub(crate) fn bind(
        settings: &Settings,
        socket: &Path,
        users: Users<'_>,
        succeeds: bool,
        admin: Option<SocketAddr>,
    ) -> Result<Self, Failure> {
        let egress = &settings.egress;
        let place = egress.socket.0.as_deref().unwrap_or(socket);
        if let Some(ca) = &egress.ca.0 {
            check_authorities(ca, CA)?;
        }
        let options = egress::Options {
            http1_connections: egress.connections.get(),
            http2_connections: egress.http2_connections.get(),
            waiting: egress.callers.get(),
            idle: egress.idle_timeout,
            age: egress.connection_age,
            // A caller that is declined resolves the name itself.
            lookup_patience: Some(LOOKUP_PATIENCE),
            ca: egress.ca.0.clone(),
            deny: egress.deny.clone(),
            deny_sockets: admin.into_iter().collect(),
            ..egress::Options::default()
        };
        let mut listeners = vec![Listener::bind(settings, place, users.first, true, succeeds)?];
        for user in users.others {
            let place = place.with_file_name(user.folder()).join(SOCKET_NAME);
            listeners.push(Listener::bind(settings, &place, Some(user), false, succeeds)?);
        }
        let memory = std::path::absolute(place).unwrap_or_else(|_cause| place.to_owned());
        let memory = memory.with_file_name(MEMORY_NAME);
        let of_all = |origin| users.numbers().into_iter().map(move |uid| key(uid, origin));
        let mut prewarm: Vec<Key> = egress.prewarm.iter().flat_map(of_all).collect();
        match egress::recall(&memory) {
            Ok(remembered) => {
                let new = remembered.into_iter().filter(|key| !prewarm.contains(key));
                prewarm.extend(new.collect::<Vec<_>>());
            }
            Err(error) => {
                tracing::warn!(path = %memory.display(), %error, "origins of the last run not read");
            }
        }
        Ok(Self { listeners, engine: Engine::new(options), prewarm, memory })
    }

    /// Starts a span for each call.
    pub(crate) fn trace(&mut self, tracer: Option<&Tracer>) {
        if let Some(tracer) = tracer {
            for listener in &mut self.listeners {
                listener.http.trace(tracer.clone());
            }
        }
    }

    /// Returns the view for operators and for PHP's environment.
    pub(crate) fn watch(&self) -> Watch {
        let entrances = self.listeners.iter().map(|listener| listener.entrance.clone()).collect();
        Watch { entrances, engine: self.engine.clone() }
    }

    /// Accepts calls until `drain` is cancelled, and finishes the running ones.
    pub(crate) async fn serve(self, drain: CancellationToken) {
        self.engine.prewarm(self.prewarm);
        let mut serving = JoinSet::new();
        for listener in self.listeners {
            serving.spawn(listener.serve(self.engine.clone(), drain.clone()));
        }
        while serving.join_next().await.is_some() {}
        let origins = self.engine.remembered();
        if !origins.is_empty()
            && let Err(error) = egress::remember(&self.memory, &origins)
        {
            // The next start makes its first handshakes itself: nothing is lost.
            tracing::warn!(path = %self.memory.display(), %error, "origins not remembered");
        }
        self.engine.close().await;
    }
}

impl Listener {
    /// `named`: it is the one that the settings speak of.
    fn bind(
        settings: &Settings,
        place: &Path,
        user: Option<&PhpUser>,
        named: bool,
        succeeds: bool,
    ) -> Result<Self, Failure> {
        let egress = &settings.egress;
        let place = &std::path::absolute(place).unwrap_or_else(|_cause| place.to_owned());
        let folder = place.parent().filter(|_| !named);
        let folder =
            folder.map(|folder| make_folder(folder, user).map(|()| OwnFolder(folder.to_owned())));
        let folder = folder.transpose()?;
        let beside = succeeds.then(|| places::beside(place));
        if let Some(folder) = beside.as_deref().and_then(Path::parent) {
            make_folder(folder, user)?;
        }
        let identity = user.map(|user| &user.identity);
        let group = egress.group.0.filter(|_| named).map(|group| group.0);
        let allowed = egress.allow_users.iter().filter(|_| named).map(|user| user.0);
        let http = HttpListener::bind(ListenerOptions {
            socket: beside.as_deref().unwrap_or(place).to_owned(),
            group: group.or_else(|| identity.map(|php| php.group)),
            allow_users: allowed.chain(identity.map(|php| php.user)).collect(),
            callers: egress.callers.get(),
            connect: egress.connect_timeout,
            queue: egress.queue_timeout,
        })
        .map_err(|error| Failure::caused(&error, hint(&error)))?;
        let entrance = Entrance {
            user: user.cloned(),
            socket: http.path().to_owned(),
            place: place.to_owned(),
            watch: http.watch(),
        };
        Ok(Self { http, entrance, _folder: folder })
    }

    async fn serve(self, engine: Engine, drain: CancellationToken) {
        let Self { http, _folder, .. } = self;
        http.serve(engine, drain).await;
    }
}

/// A folder for a socket, in which PHP's user finds it by its name.
fn make_folder(folder: &Path, user: Option<&PhpUser>) -> Result<(), Failure> {
    let failed = |what: &str, error: &std::io::Error| {
        let what = format!("{what} {}", folder.display());
        Failure::caused_by(what, error, "choose another folder with `egress.socket`")
    };
    let made = std::fs::DirBuilder::new().mode(0o700).recursive(true).create(folder);
    made.map_err(|error| failed("cannot make", &error))?;
    if user.is_some() {
        let_pass(folder).map_err(|error| failed("cannot let PHP into", &error))?;
    }
    Ok(())
}

/// The setting that names authorities, and its flag.
pub(crate) const CA: &str = "`egress.ca` (`--ca`)";

/// Checks a file of authorities at the start, so that not each call fails. `setting` names the file in the hint.
pub(crate) fn check_authorities(path: &Path, setting: &str) -> Result<(), Failure> {
    const BEGINNING: &[u8] = b"-----BEGIN CERTIFICATE-----";
    let hint = format!("correct {setting}, or leave it out for the system's authorities");
    let text = std::fs::read(path).map_err(|error| {
        Failure::caused_by(format!("cannot read {}", path.display()), &error, &*hint)
    })?;
    if text.windows(BEGINNING.len()).any(|window| window == BEGINNING) {
        return Ok(());
    }
    Err(Failure::failed(format!("{} holds no certificate in PEM form", path.display()), hint))
}

/// The key of a user's call without options.
fn key(uid: u32, origin: &OriginUrl) -> Key {
    Key::plain(uid, origin.scheme, origin.host.as_str(), origin.port)
}

fn hint(error: &SocketError) -> String {
    match error {
        SocketError::Taken { .. } => {
            "end the other broker, or choose a folder of its own with `egress.socket`".into()
        }
        SocketError::NotOurs { .. } => "remove it, or choose another path with `egress.socket`".into(),
        _ => "choose a path of at most 100 bytes in a folder that exists and may be written, with `egress.socket`".into(),
    }
}

/// The socket of a broker that lives, where one is to be expected by the settings.
pub(crate) fn expected_socket(settings: &Settings) -> Option<PathBuf> {
    let candidates: Vec<PathBuf> = if let Some(named) = &settings.egress.socket.0 {
        vec![named.clone()]
    } else {
        let of_server = settings.server.run_dir.0.as_deref().map(socket_in);
        of_server.into_iter().chain([PathBuf::from(SOCKET)]).collect()
    };
    let lives = |path: &PathBuf| std::os::unix::net::UnixStream::connect(path).is_ok();
    candidates.into_iter().find(lives).filter(|_| settings.egress.enabled)
}

/// `egress.sock` in the private folder of a server.
pub(crate) fn socket_in(folder: &Path) -> PathBuf {
    folder.join(SOCKET_NAME)
}

/// The token of the broker at a socket.
pub(crate) fn token_of(socket: &Path) -> PathBuf {
    socket.with_file_name(TOKEN_NAME)
}

/// The broker inside a server. It ends after everything that calls through it.
#[derive(Debug, Default)]
pub(crate) struct Inside {
    tasks: JoinSet<()>,
    drain: CancellationToken,
    /// Starts spans, if traces are sent.
    tracer: Option<Tracer>,
    /// The broker as operators see it, once it runs.
    watch: Option<Watch>,
}

impl Inside {
    /// Returns a broker's place in a server, with its tracer.
    pub(crate) fn traced(tracer: Option<&Tracer>) -> Self {
        Self { tracer: tracer.cloned(), ..Self::default() }
    }

    /// Returns this one, and leaves an empty one in its place.
    pub(crate) fn replace(&mut self) -> Self {
        let successor = Self::traced(self.tracer.as_ref());
        std::mem::replace(self, successor)
    }

    /// Starts a broker.
    pub(crate) fn start(&mut self, mut broker: Broker) {
        broker.trace(self.tracer.as_ref());
        self.watch = Some(broker.watch());
        self.tasks.spawn(broker.serve(self.drain.clone()));
    }

    /// Returns the broker as operators see it, once it runs.
    pub(crate) fn watch(&self) -> Option<&Watch> {
        self.watch.as_ref()
    }

    /// Finishes the calls that run, for as long as `patience` lasts.
    pub(crate) async fn drain(mut self, patience: Duration) {
        self.drain.cancel();
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(patience, ended).await.is_err() {
            tracing::warn!(
                "outgoing calls were cut: they took longer than `server.shutdown_patience`"
            );
        }
    }
}

impl Watch {
    /// Socket and token that were made beside those of another broker, and where they belong.
    pub(crate) fn beside(&self) -> Vec<(PathBuf, PathBuf)> {
        let made_beside = self
            .entrances
            .iter()
            .filter(|listener| listener.socket.parent() != listener.place.parent());
        let pair = |Entrance { socket, place, .. }: &Entrance| {
            [(token_of(socket), token_of(place)), (socket.clone(), place.clone())]
        };
        made_beside.flat_map(pair).collect()
    }

    /// The path of the socket that the settings speak of, absolute.
    pub(crate) fn socket(&self) -> &Path {
        &self.entrances.first().expect("there is one").socket
    }

    /// Returns the final path of the socket: a successor's socket was made beside it.
    pub(crate) fn place(&self) -> &Path {
        &self.entrances.first().expect("there is one").place
    }

    /// The socket for calls of that user's PHP; none: our own, which may use any.
    pub(crate) fn socket_of(&self, user: Option<&PhpUser>) -> Option<&Path> {
        if user.is_none() {
            return Some(self.socket());
        }
        let is_for = |entrance: &&Entrance| PhpUser::same(entrance.user.as_ref(), user);
        Some(&*self.entrances.iter().find(is_for)?.socket)
    }
}
