//! The connectors to databases inside `hearth serve`: from settings to sockets, and their view for operators.
//!
//! Invariants
//! - PHP's environment names a socket only when it is there.
//! - A server that is down stops nothing else: each client of its connector gets an error.
//! - Connections that workers keep leave at least one session to connections that are not kept, also while two generations run; as many as one worker
//!   needs, where that is more (`native/sapi/databases/places.h`).
//! - Workers of a server that takes another's place have its own sessions, by whatever name they ask for them: the other one need not wait for them.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::num::NonZeroUsize;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use dbproxy::{BindError, Connector, Options, Protocol, Verify, Watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::config::{NamedConnector, Settings};
use crate::failure::Failure;
use crate::ops::metric::metrics_table;
use crate::ops::status;
use crate::ops::subsystem::Subsystem;
use crate::system::places::beside;
use crate::system::run_dir::let_pass;
use crate::system::users::PhpUser;

/// The variable that lists the servers behind connectors for Hearth's own scripts.
const VARIABLE: &str = "HEARTH_CONNECTORS";
/// The folder of the sockets, in the server's own.
const FOLDER: &str = "databases";
/// The time limit for connecting, TLS and login together.
const CONNECT: Duration = Duration::from_secs(10);
/// The time that an unused session stays open.
const IDLE: Duration = Duration::from_mins(1);

/// The connectors that run.
#[derive(Debug, Default)]
pub(crate) struct Connectors {
    tasks: JoinSet<()>,
    drain: CancellationToken,
    watches: Vec<Watch>,
    env: Vec<(String, String)>,
    /// The pairs of made and final paths.
    beside: Vec<(PathBuf, PathBuf)>,
    places: Vec<Places>,
}

/// The places for connections that workers keep: bytes of a file, each of which one worker locks (`native/sapi/databases/places.h`).
#[derive(Debug)]
struct Places {
    connector: String,
    socket: PathBuf,
    /// The name that the socket will have, while it lies beside it.
    name: Option<PathBuf>,
    path: PathBuf,
    file: File,
    sessions: NonZeroUsize,
}

impl Places {
    fn make(
        options: &Options,
        name: Option<PathBuf>,
        run_dir: &Path,
        user: Option<&PhpUser>,
    ) -> Result<Self, Failure> {
        // A file of its own: the previous server still counts in the other one.
        let places = format!("{}.{}.places", options.name, std::process::id());
        let path = run_dir.join(FOLDER).join(places);
        let make = || -> std::io::Result<File> {
            std::fs::create_dir_all(run_dir.join(FOLDER))?;
            let mut new = OpenOptions::new();
            let file = new.write(true).create(true).truncate(true).mode(0o600).open(&path)?;
            if let Some(user) = user {
                user.identity.share(&path, 0o660)?;
            }
            Ok(file)
        };
        let file = make().map_err(|error| {
            Failure::caused_by(
                format!("the connector `{}` cannot start", options.name),
                &error,
                "name a folder that can be written to in `server.run_dir`",
            )
        })?;
        Ok(Self {
            connector: options.name.clone(),
            socket: options.socket.clone(),
            name,
            path,
            file,
            sessions: options.sessions,
        })
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        // A file that stays is overwritten by a later process of this number.
        drop(std::fs::remove_file(&self.path));
    }
}

/// Returns how many of a connector's sessions workers may keep. One stays free for other clients, which would otherwise wait for ever; with
/// too few sessions none are kept.
pub(crate) fn places(sessions: NonZeroUsize, workers: NonZeroUsize) -> usize {
    if sessions > workers { sessions.get() - 1 } else { 0 }
}

impl Connectors {
    /// Makes the sockets and serves them. `run_dir` is the default folder. `user` is PHP's user, if that is not ours. `succeeds`: these
    /// sockets take the places of another server's, and are made beside them.
    pub(crate) fn start(
        settings: &Settings,
        run_dir: &Path,
        user: Option<&PhpUser>,
        succeeds: bool,
    ) -> Result<Self, Failure> {
        let mut all = Self::default();
        let mut known = Vec::new();
        for named in &settings.databases.connectors.0 {
            let mut options = options(named, settings, run_dir, user);
            let mut name = None;
            if succeeds {
                let beside = beside(&options.socket);
                let place = std::mem::replace(&mut options.socket, beside.clone());
                name = Some(place.clone());
                all.beside.push((beside, place));
            }
            make_folder(&options, run_dir, user).map_err(|cause| {
                let path = options.socket.clone();
                failure(&named.name, &BindError::Socket { path, cause })
            })?;
            let bound = Connector::bind(&options).map_err(|error| failure(&named.name, &error))?;
            all.places.push(Places::make(&options, name, run_dir, user)?);
            all.watches.push(bound.watch());
            known.push(serde_json::json!({
                "protocol": named.scheme(),
                "host": options.host,
                "port": options.port,
                "user": options.login.as_ref().map(|login| &login.user),
                "place": place(&options),
            }));
            all.env.push((named.variable(), place(&options).display().to_string()));
            all.tasks.spawn(bound.serve(all.drain.clone()));
        }
        if !known.is_empty() {
            all.env.push((VARIABLE.to_owned(), serde_json::Value::from(known).to_string()));
        }
        Ok(all)
    }

    /// Returns where sockets were made beside others, and where they belong once those are to be replaced.
    pub(crate) fn beside(&self) -> &[(PathBuf, PathBuf)] {
        &self.beside
    }

    /// Returns the environment for PHP.
    pub(crate) fn env(&self) -> &[(String, String)] {
        &self.env
    }

    /// Fits the places to a generation that is about to start. Returns the text for its workers, below the settings of `databases`.
    pub(crate) fn places(&self, workers: NonZeroUsize, keep: bool) -> Result<String, Failure> {
        let mut told = String::new();
        for Places { connector, socket, name, path, file, sessions } in &self.places {
            let places = places(*sessions, workers);
            if keep && places == 0 {
                tracing::warn!(
                    connector,
                    sessions,
                    workers,
                    "connections through this connector are not kept: it needs more `sessions` than there are workers"
                );
            }
            file.set_len(places as u64).map_err(|error| {
                Failure::caused_by(
                    format!("cannot write {}", path.display()),
                    &error,
                    "make room in `server.run_dir`",
                )
            })?;
            write!(told, "\n{}\t{}\t{sessions}\t{workers}", socket.display(), path.display())
                .expect("a String takes any text");
            if let Some(name) = name {
                write!(told, "\t{}", name.display()).expect("a String takes any text");
            }
        }
        Ok(told)
    }

    /// Returns how many places each connector has now.
    pub(crate) fn fitted(&self) -> Vec<u64> {
        let length = |places: &Places| places.file.metadata().map_or(0, |file| file.len());
        self.places.iter().map(length).collect()
    }

    /// Restores the result of [`Self::fitted`]: the generation that they were fitted to since then did not start.
    pub(crate) fn put_back(&self, fitted: &[u64]) {
        for (Places { connector, file, .. }, length) in self.places.iter().zip(fitted) {
            if let Err(error) = file.set_len(*length) {
                tracing::warn!(connector, %error, "connections through this connector may not be kept");
            }
        }
    }

    /// The files by which workers count: they open and lock them.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        self.places.iter().map(|places| &*places.path)
    }

    /// Returns the connectors as operators see them.
    pub(crate) fn watches(&self) -> Watches {
        Watches(self.watches.clone())
    }

    /// Ends when their clients have gone, or when `patience` is over.
    pub(crate) async fn drain(mut self, patience: Duration) {
        self.drain.cancel();
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(patience, ended).await.is_err() {
            tracing::warn!(
                "sessions of databases were cut: their clients took longer than `server.shutdown_patience`"
            );
        }
    }
}

/// The folder of a socket. Where PHP is another user it may pass through those that we make; one that was named is let be.
fn make_folder(options: &Options, run_dir: &Path, user: Option<&PhpUser>) -> std::io::Result<()> {
    let (Some(folder), Some(_)) = (options.socket.parent(), user) else { return Ok(()) };
    let named = !folder.starts_with(run_dir) && folder.exists();
    std::fs::DirBuilder::new().mode(0o711).recursive(true).create(folder)?;
    for folder in folder.ancestors().take_while(|folder| !named && folder.starts_with(run_dir)) {
        let_pass(folder)?;
    }
    Ok(())
}

/// Returns the options of the engine.
pub(crate) fn options(
    named: &NamedConnector,
    settings: &Settings,
    run_dir: &Path,
    user: Option<&PhpUser>,
) -> Options {
    let folder = run_dir.join(FOLDER);
    let socket = named.socket.clone().unwrap_or_else(|| match named.protocol {
        // libpq takes a folder, and appends this name.
        Protocol::Postgres => folder.join(&named.name).join(".s.PGSQL.5432"),
        _ => folder.join(format!("{}.sock", named.name)),
    });
    let verified = matches!(named.verify, Verify::Authority | Verify::Full);
    let system = || egress::system_authorities().filter(|_| verified);
    Options {
        name: named.name.clone(),
        socket,
        client: user.map(|user| (user.identity.user, user.identity.group)),
        protocol: named.protocol,
        host: named.host.clone(),
        port: named.port,
        verify: named.verify,
        authorities: named.authorities.clone().or_else(system),
        certificate: named.certificate.clone(),
        login: named.login.clone(),
        sessions: named.sessions,
        wait: named.wait,
        connect: CONNECT,
        reset: settings.databases.reset_timeout,
        idle: IDLE,
        age: settings.databases.max_lifetime,
    }
}

/// Returns the address for PHP's client: the socket, for `PostgreSQL` its folder.
fn place(options: &Options) -> PathBuf {
    match (options.protocol, options.socket.parent()) {
        (Protocol::Postgres, Some(folder)) => folder.to_owned(),
        _ => options.socket.clone(),
    }
}

/// A connector that cannot be made.
pub(crate) fn failure(name: &str, error: &BindError) -> Failure {
    let hint = match error {
        BindError::Socket { .. } => {
            format!(
                "choose a path of at most 100 bytes that no other program uses with `socket` in `[databases.connectors.{name}]`"
            )
        }
        _ => format!(
            "correct `sslrootcert`, `sslcert` or `sslkey` in `[databases.connectors.{name}]`"
        ),
    };
    Failure::caused_by(format!("the connector `{name}` cannot start"), error, hint)
}

/// The connectors as operators see them.
#[derive(Debug)]
pub(crate) struct Watches(Vec<Watch>);

impl Subsystem for Watches {
    fn status(&self, status: &mut status::Status) {
        status.connectors = self.0.iter().map(Watch::report).collect();
    }

    fn metrics(&self) {
        for report in self.0.iter().map(Watch::report) {
            let connector = || ("connector", report.name.clone());
            for (state, count) in [("used", report.used), ("idle", report.idle)] {
                metrics_table! { &[connector(), ("state", state.to_owned())];
                    gauge "hearth_connector_sessions" = count, "Sessions at a database's server, by connector and by what they do";
                }
            }
            metrics_table! { &[connector()];
                gauge "hearth_connector_session_limit" = report.limit, "Sessions that there may be";
                gauge "hearth_connector_waiting" = report.waiting, "Clients that wait for a session";
                counter "hearth_connector_clients_total" = report.clients, "Connections that PHP has made";
                counter "hearth_connector_opened_total" = report.opened, "Sessions opened: connections, handshakes and logins";
                counter "hearth_connector_reused_total" = report.reused, "Connections that got a session which another had left";
                counter "hearth_connector_dropped_total" = report.dropped, "Sessions ended because they could not be proved to be as new";
                counter "hearth_connector_refused_total" = report.refused, "Connections that got no session";
            }
        }
    }
}
