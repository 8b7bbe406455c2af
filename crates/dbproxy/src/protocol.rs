//! A common interface to the three protocols.

use tokio::net::UnixStream;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::packets::{Packets, Packing, Tail};
use crate::server::{Server, Stream};
use crate::sessions::Session;
use crate::{Login, Options, Protocol, Refused, capacity, mysql, postgres, redis};

/// The session that a client requests.
#[derive(Debug)]
pub(crate) enum SessionRequest {
    /// A session of Redis.
    Redis,
    /// A session of `PostgreSQL`, with its startup message.
    Postgres(Vec<u8>),
    /// A session of `MySQL`.
    MySql(mysql::Hello),
}

/// The first request of a client.
#[derive(Debug)]
pub(crate) enum Beginning {
    /// The client requests a session.
    SessionRequest(SessionRequest),
    /// The client cancels another session's query.
    Cancel(Vec<u8>),
    /// The client disconnected or violated the protocol.
    Nothing,
}

/// The protocol of a connector with its state.
#[derive(Debug)]
pub(crate) struct Speaker {
    pub protocol: Protocol,
    pub server: Server,
    pub login: Option<Login>,
    /// The server's last greeting, because in `MySQL` the server sends first.
    facts: Mutex<Option<mysql::Facts>>,
    reset: std::time::Duration,
}

impl SessionRequest {
    /// Returns the session key: clients with the same key may share sessions.
    pub(crate) fn key(&self) -> Vec<u8> {
        match self {
            Self::Redis => Vec::new(),
            Self::Postgres(startup) => startup.clone(),
            Self::MySql(hello) => hello.key(),
        }
    }

    /// Returns the trackers of both directions.
    pub(crate) fn followed(&self) -> (Packets, Tail) {
        let packing = match self {
            Self::Redis => Packing::None,
            Self::Postgres(_) => Packing::Postgres,
            Self::MySql(_) => Packing::MySql,
        };
        (Packets::new(packing), Tail::new(postgres::AT_REST))
    }
}

impl Speaker {
    pub(crate) fn new(options: &Options, server: Server) -> Self {
        Self {
            protocol: options.protocol,
            server,
            login: options.login.clone(),
            facts: Mutex::default(),
            reset: options.reset,
        }
    }

    fn login(&self) -> &Login {
        self.login.as_ref().expect("checked when it was bound: this protocol logs in")
    }

    /// Returns the filter of a client's data, if one is needed.
    pub(crate) fn relogin(&self) -> Option<redis::Relogin> {
        if self.protocol != Protocol::Redis {
            return None;
        }
        let login = self.login.clone();
        Some(redis::Relogin::new(move || {
            let told = redis::auth(login.as_ref()?);
            if let Err(refused) = &told {
                tracing::warn!(%refused, "a client's RESET takes its login along");
            }
            told.ok()
        }))
    }

    /// Obtains what is needed before a client can be greeted.
    pub(crate) async fn prepare(&self) -> Result<(), Refused> {
        if self.protocol == Protocol::MySql {
            let mut facts = self.facts.lock().await;
            if facts.is_none() {
                *facts = Some(mysql::learn(&self.server, self.login()).await?);
            }
        }
        Ok(())
    }

    /// Logs in and disconnects.
    pub(crate) async fn try_out(&self) -> Result<(), Refused> {
        let request = match self.protocol {
            Protocol::MySql => return self.prepare().await,
            Protocol::Redis => SessionRequest::Redis,
            Protocol::Postgres => SessionRequest::Postgres(postgres::probe_startup(self.login())),
        };
        self.open(&request).await?.close().await;
        Ok(())
    }

    /// Logs in and queries the server's maximum number of connections; `None` if it does not state that.
    pub(crate) async fn capacity(&self) -> Result<Option<u64>, Refused> {
        let request = match self.protocol {
            Protocol::MySql => SessionRequest::MySql(mysql::Hello::for_probe(self.login())),
            Protocol::Redis => SessionRequest::Redis,
            Protocol::Postgres => SessionRequest::Postgres(postgres::probe_startup(self.login())),
        };
        let mut session = self.open(&request).await?;
        let capacity = capacity::ask(&mut session.stream, self.protocol, self.reset).await;
        session.close().await;
        Ok(capacity)
    }

    /// Returns whether clients can be greeted without contacting the server.
    pub(crate) async fn is_prepared(&self) -> bool {
        self.protocol != Protocol::MySql || self.facts.lock().await.is_some()
    }

    /// Reads the client's request.
    pub(crate) async fn read_request(&self, client: &mut UnixStream) -> std::io::Result<Beginning> {
        match self.protocol {
            Protocol::Redis => Ok(Beginning::SessionRequest(SessionRequest::Redis)),
            Protocol::Postgres => Ok(match postgres::read_request(client, self.login()).await? {
                postgres::Beginning::Session(startup) => {
                    Beginning::SessionRequest(SessionRequest::Postgres(startup))
                }
                postgres::Beginning::Cancel(request) => Beginning::Cancel(request),
                postgres::Beginning::Nothing => Beginning::Nothing,
            }),
            Protocol::MySql => {
                let facts = self.facts.lock().await.clone();
                let facts = facts.expect("prepared before clients are heard");
                let hello = mysql::read_request(client, &facts, self.login()).await?;
                Ok(hello.map_or(Beginning::Nothing, |hello| {
                    Beginning::SessionRequest(SessionRequest::MySql(hello))
                }))
            }
        }
    }

    /// Asks the server to cancel another session's query.
    pub(crate) async fn cancel(&self, request: &[u8]) -> Result<(), Refused> {
        postgres::cancel(&self.server, request).await
    }

    /// Opens a new session.
    pub(crate) async fn open(&self, request: &SessionRequest) -> Result<Session, Refused> {
        let session = |stream: Stream| Session {
            stream,
            key: request.key(),
            welcome: Vec::new(),
            identity: Vec::new(),
            restore: Vec::new(),
            begins: false,
            goodbye: b"",
            opened: Instant::now(),
        };
        match request {
            SessionRequest::Redis => {
                Ok(session(redis::open(&self.server, self.login.as_ref()).await?))
            }
            SessionRequest::Postgres(startup) => {
                let (mut stream, welcome) =
                    postgres::open(&self.server, self.login(), startup).await?;
                let identity = postgres::identity(&mut stream, &welcome, self.reset).await;
                let postgres::Identity { row: identity, begins } =
                    identity.ok_or_else(|| self.server.strange("it does not say its settings"))?;
                let goodbye = postgres::GOODBYE;
                Ok(Session { welcome, identity, begins, goodbye, ..session(stream) })
            }
            SessionRequest::MySql(hello) => {
                let opened = mysql::open(&self.server, self.login(), hello).await?;
                let mysql::Opened { mut stream, greeting, ok } = opened;
                let fits = hello.capabilities & !greeting.capabilities == 0;
                // The server may have been replaced: the next client gets the new greeting.
                *self.facts.lock().await = Some(greeting);
                if !fits {
                    return Err(Refused::Unsupported(
                        "the server has changed: connect again".to_owned(),
                    ));
                }
                let identity = mysql::identity(&mut stream, hello, self.reset).await;
                let identity =
                    identity.ok_or_else(|| self.server.strange("it does not say who it is"))?;
                Ok(Session {
                    welcome: mysql::welcome(&ok),
                    restore: identity.restore(hello),
                    identity: identity.row,
                    begins: identity.begins,
                    goodbye: mysql::GOODBYE,
                    ..session(stream)
                })
            }
        }
    }

    /// Resets a session that a client has left; returns whether that is proved.
    pub(crate) async fn reset(
        &self,
        session: &mut Session,
        request: &SessionRequest,
        tail: Tail,
    ) -> bool {
        match request {
            SessionRequest::Redis => {
                redis::reset(&mut session.stream, self.login.as_ref(), self.reset).await
            }
            SessionRequest::Postgres(_) => postgres::reset(session, tail.bytes(), self.reset).await,
            SessionRequest::MySql(hello) => mysql::reset(session, hello, self.reset).await,
        }
    }

    /// Returns what a server runs at each login.
    pub(crate) fn begins(&self) -> &'static str {
        match self.protocol {
            Protocol::MySql => "init_connect",
            Protocol::Postgres => "a login event trigger",
            Protocol::Redis => "nothing",
        }
    }

    /// Returns the error for a client without a session. `greeted` says that its request has been read.
    pub(crate) fn error(&self, refused: &Refused, greeted: bool) -> Vec<u8> {
        match self.protocol {
            Protocol::Redis => redis::error(refused),
            Protocol::Postgres => postgres::error(refused),
            Protocol::MySql => mysql::error(refused, !greeted),
        }
    }
}
