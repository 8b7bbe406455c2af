//! One connector: its socket, clients and sessions.
//!
//! Invariants
//! - Every client is a task owned by the connector; their number is bounded by the sessions and a queue of [`LINE`].
//! - Only the server's own user and the user that PHP runs as are served.

use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::protocol::{Beginning, SessionRequest, Speaker};
use crate::relay::{Ended, relay};
use crate::report::{Counters, add};
use crate::server::Server;
use crate::sessions::{Session, Sessions};
use crate::{Options, Protocol, Refused, Report, Trust, TrustError, redis};

/// Maximum number of clients waiting for a session; one more is rejected at once.
const LINE: usize = 1024;
/// Interval of checks for idle sessions.
const ROUND: Duration = Duration::from_secs(1);
/// Minimum time between two logged rejections.
const QUIET: Duration = Duration::from_secs(10);

/// Reasons why a connector cannot be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// Certificate files cannot be used.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The socket cannot be created.
    #[error("cannot listen at {}", path.display())]
    Socket {
        /// Path of the socket.
        path: PathBuf,
        /// The error.
        #[source]
        cause: io::Error,
    },
    /// The protocol requires a login, and no user is configured.
    #[error("no user to log in with")]
    NoLogin,
}

/// A listening connector. Its socket is removed on drop.
#[derive(Debug)]
pub struct Connector {
    listener: UnixListener,
    path: PathBuf,
    /// Inode of the created socket.
    inode: u64,
    /// User that may connect besides the server's own.
    client: Option<u32>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    name: String,
    connect: Duration,
    speaker: Speaker,
    sessions: Sessions,
    counters: Counters,
    /// Time of the last logged rejection.
    logged: Mutex<Option<Instant>>,
    /// Whether it was logged that sessions cannot be reused.
    told: AtomicBool,
}

/// Reports the state of a connector.
#[derive(Clone, Debug)]
pub struct Watch(Arc<Shared>);

impl Connector {
    /// Reads the certificates and creates the socket, without contacting the server.
    pub fn bind(options: &Options) -> Result<Self, BindError> {
        let shared = Arc::new(Shared::new(options)?);
        let path = options.socket.clone();
        let group = options.client.map(|(_, group)| group);
        let listener = listen(&path, group)
            .map_err(|cause| BindError::Socket { path: path.clone(), cause })?;
        let inode = std::fs::symlink_metadata(&path).map_or(0, |there| there.ino());
        let user = options.client.map(|(user, _)| user);
        Ok(Self { listener, path, inode, client: user, shared })
    }

    /// The socket's mode admits a group, of which only one user may connect.
    fn may_connect(&self, client: &UnixStream) -> bool {
        let Some(user) = self.client else { return true };
        let ours = rustix::process::geteuid().as_raw();
        client.peer_cred().is_ok_and(|peer| [user, ours, 0].contains(&peer.uid()))
    }

    /// Logs in once, without a socket. Returns the server's maximum number of connections, if it states that
    /// (`max_connections`, of Redis `maxclients`).
    pub async fn try_out(options: &Options) -> Result<Option<u64>, TryError> {
        let shared = Shared::new(options)?;
        shared.within(shared.speaker.capacity()).await.map_err(TryError::Refused)
    }

    /// Returns a handle for status and metrics.
    pub fn watch(&self) -> Watch {
        Watch(Arc::clone(&self.shared))
    }

    /// Serves clients until `drain` is cancelled, then the remaining ones until they disconnect.
    ///
    /// # Cancel safety
    /// Dropping the future ends all clients and sessions.
    pub async fn serve(self, drain: CancellationToken) {
        let mut clients = JoinSet::new();
        let mut own = JoinSet::new();
        let shared = Arc::clone(&self.shared);
        own.spawn(async move {
            if let Err(refused) = shared.try_out().await {
                shared.log(&refused);
            }
        });
        let mut round = tokio::time::interval(ROUND);
        let limit = self.shared.sessions.limit() + LINE;
        loop {
            tokio::select! {
                () = drain.cancelled() => break,
                _ = round.tick() => {
                    for (place, session) in self.shared.sessions.stale() {
                        own.spawn(async move {
                            session.close().await;
                            drop(place);
                        });
                    }
                }
                Some(_) = clients.join_next() => {}
                Some(_) = own.join_next() => {}
                accepted = self.listener.accept() => match accepted {
                    Ok((client, _nameless)) if !self.may_connect(&client) => {
                        tracing::debug!(connector = self.shared.name, "a client of another user was turned away");
                    }
                    Ok((client, _nameless)) => {
                        add(&self.shared.counters.clients);
                        let shared = Arc::clone(&self.shared);
                        let is_too_many = clients.len() >= limit;
                        clients.spawn(async move {
                            if is_too_many {
                                shared.refuse(client, &shared.sessions.busy(), false).await;
                            } else {
                                shared.serve(client).await;
                            }
                        });
                    }
                    Err(error) => {
                        tracing::warn!(connector = self.shared.name, %error, "client not accepted");
                        // Probably out of descriptors: pause instead of spinning.
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
            }
        }
        while clients.join_next().await.is_some() {}
        for session in self.shared.sessions.all() {
            own.spawn(session.close());
        }
        while own.join_next().await.is_some() {}
    }
}

impl Drop for Connector {
    fn drop(&mut self) {
        // Another process may have created its own socket there.
        if std::fs::symlink_metadata(&self.path).is_ok_and(|there| there.ino() == self.inode) {
            drop(std::fs::remove_file(&self.path));
        }
    }
}

/// Reasons why a try-out failed.
#[derive(Debug, thiserror::Error)]
pub enum TryError {
    /// The connector could not start.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// No session could be opened.
    #[error(transparent)]
    Refused(Refused),
}

/// Listens at a path that no running process uses. The socket gets its name only when its mode is set.
fn listen(path: &Path, group: Option<u32>) -> io::Result<UnixListener> {
    if let Some(folder) = path.parent() {
        std::fs::DirBuilder::new().mode(0o700).recursive(true).create(folder)?;
    }
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
        Ok(there) if there.file_type().is_socket() => {
            if std::os::unix::net::UnixStream::connect(path).is_ok() {
                return Err(io::ErrorKind::AddrInUse.into());
            }
        }
        Ok(_) => return Err(io::ErrorKind::AlreadyExists.into()),
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    let new = path.with_file_name(name);
    drop(std::fs::remove_file(&new));
    let listener = UnixListener::bind(&new)?;
    let finish = || {
        let mode = if group.is_some() { 0o660 } else { 0o600 };
        chown(&new, None, group)?;
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(mode))?;
        std::fs::rename(&new, path)
    };
    finish().inspect_err(|_cause| drop(std::fs::remove_file(&new)))?;
    Ok(listener)
}

impl Shared {
    fn new(options: &Options) -> Result<Self, BindError> {
        if options.login.is_none() && options.protocol != Protocol::Redis {
            return Err(BindError::NoLogin);
        }
        let authorities = options.authorities.as_deref();
        let trust = Trust::new(options.verify, authorities, options.certificate.as_ref())?;
        let server = Server {
            host: options.host.clone(),
            port: options.port,
            verify: options.verify,
            trust: Arc::new(trust),
        };
        let sessions =
            Sessions::new(options.sessions.get(), options.wait, options.idle, options.age);
        Ok(Self {
            name: options.name.clone(),
            connect: options.connect,
            speaker: Speaker::new(options, server),
            sessions,
            counters: Counters::default(),
            logged: Mutex::default(),
            told: AtomicBool::new(false),
        })
    }

    /// Serves one client to its end.
    async fn serve(&self, mut client: UnixStream) {
        if let Err(refused) = self.prepare().await {
            return self.refuse(client, &refused, false).await;
        }
        let request = match timeout(self.connect, self.speaker.read_request(&mut client)).await {
            Ok(Ok(Beginning::SessionRequest(request))) => request,
            Ok(Ok(Beginning::Cancel(request))) => {
                let cancelled = self.within(self.speaker.cancel(&request)).await;
                if let Err(refused) = cancelled {
                    tracing::debug!(connector = self.name, %refused, "a query was not cancelled");
                }
                return;
            }
            // It disconnected, was silent for too long, or sent something else.
            _ => return,
        };
        let place = match self.sessions.place().await {
            Ok(place) => place,
            Err(refused) => return self.refuse(client, &refused, true).await,
        };
        let mut session = match self.session(&request).await {
            Ok(session) => session,
            Err(refused) => return self.refuse(client, &refused, true).await,
        };
        let (mut packets, mut tail) = request.followed();
        let mut relogin = self.speaker.relogin();
        let ended = match client.write_all(&session.welcome).await {
            Ok(()) => {
                let Session { stream, .. } = &mut session;
                relay(&mut client, stream, &mut packets, &mut tail, relogin.as_mut()).await
            }
            Err(_gone) => Ended::Client,
        };
        drop(client);
        let is_new = ended == Ended::Client
            && !session.begins
            && packets.is_whole()
            && relogin.is_none_or(|relogin| relogin.is_whole())
            && self.speaker.reset(&mut session, &request, tail).await;
        let over = if is_new { self.sessions.leave(session) } else { Some(session) };
        if let Some(mut session) = over {
            if ended == Ended::Client && !is_new {
                add(&self.counters.dropped);
            }
            if !packets.is_whole() {
                // It would be the rest of a command that the client has begun.
                session.goodbye = b"";
            }
            session.close().await;
        }
        drop(place);
    }

    /// Returns a session left by another client, or a new one.
    async fn session(&self, request: &SessionRequest) -> Result<Session, Refused> {
        if let Some(session) = self.sessions.left(&request.key()).await {
            add(&self.counters.reused);
            return Ok(session);
        }
        self.sessions.make_room().await;
        let session = self.within(self.speaker.open(request)).await?;
        add(&self.counters.opened);
        if session.begins && !self.told.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                connector = self.name,
                why = self.speaker.begins(),
                "each client gets a session and a login of its own: no reset runs again what the server runs at each login"
            );
        }
        Ok(session)
    }

    /// Opens a session once, if greeting clients requires information from the server.
    async fn prepare(&self) -> Result<(), Refused> {
        if self.speaker.is_prepared().await {
            return Ok(());
        }
        let _place = self.sessions.place().await?;
        self.sessions.make_room().await;
        self.within(self.speaker.prepare()).await
    }

    /// Logs problems at the start that the first client would have.
    async fn try_out(&self) -> Result<(), Refused> {
        let _place = self.sessions.place().await?;
        self.sessions.make_room().await;
        self.within(self.speaker.try_out()).await
    }

    async fn within<T>(
        &self,
        work: impl Future<Output = Result<T, Refused>>,
    ) -> Result<T, Refused> {
        timeout(self.connect, work).await.unwrap_or_else(|_elapsed| {
            let address = self.speaker.server.address();
            Err(Refused::Unreachable { address, cause: io::ErrorKind::TimedOut.into() })
        })
    }

    /// Tells a client why it gets no session. `greeted` says that its request has been read.
    async fn refuse(&self, mut client: UnixStream, refused: &Refused, greeted: bool) {
        add(&self.counters.refused);
        self.log(refused);
        let error = self.speaker.error(refused, greeted);
        if self.speaker.protocol == Protocol::Redis {
            return redis::refuse(&mut client, &error, self.connect).await;
        }
        // It may have disconnected.
        drop(client.write_all(&error).await);
        drop(client.shutdown().await);
    }

    fn log(&self, refused: &Refused) {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.is_none_or(|last| last.elapsed() > QUIET) {
            *logged = Some(Instant::now());
            tracing::warn!(connector = self.name, reason = %refused, "no session of the database");
        }
    }
}

impl Watch {
    /// Returns the current state.
    pub fn report(&self) -> Report {
        let Shared { name, speaker, sessions, counters, .. } = &*self.0;
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        Report {
            name: name.clone(),
            server: speaker.server.address(),
            used: sessions.used(),
            idle: sessions.unused(),
            limit: sessions.limit(),
            waiting: sessions.waiting(),
            clients: count(&counters.clients),
            opened: count(&counters.opened),
            reused: count(&counters.reused),
            dropped: count(&counters.dropped),
            refused: count(&counters.refused),
        }
    }
}

#[cfg(test)]
mod tests;
