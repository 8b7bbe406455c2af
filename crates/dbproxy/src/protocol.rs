//! The three protocols as one: what a connector asks of them.

use tokio::net::UnixStream;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::packets::{Packets, Packing, Tail};
use crate::server::{Server, Stream};
use crate::sessions::Session;
use crate::{Login, Options, Protocol, Refused, capacity, mysql, postgres, redis};

/// What a client wants, once it has been heard.
#[derive(Debug)]
pub(crate) enum Wish {
    /// A session of Redis.
    Redis,
    /// A session of `PostgreSQL`, with its startup message.
    Postgres(Vec<u8>),
    /// A session of `MySQL`.
    MySql(mysql::Hello),
}

/// What a client begins with.
#[derive(Debug)]
pub(crate) enum Beginning {
    /// It wants a session.
    Wish(Wish),
    /// It wants another's query to end.
    Cancel(Vec<u8>),
    /// It has gone, or does not speak the protocol.
    Nothing,
}

/// The protocol of a connector with all it needs.
#[derive(Debug)]
pub(crate) struct Speaker {
    pub protocol: Protocol,
    pub server: Server,
    pub login: Option<Login>,
    /// `MySQL` speaks first: with what the server said of itself the last time.
    facts: Mutex<Option<mysql::Facts>>,
    reset: std::time::Duration,
}

impl Wish {
    /// What is the same in all clients that may have one another's sessions.
    pub(crate) fn key(&self) -> Vec<u8> {
        match self {
            Self::Redis => Vec::new(),
            Self::Postgres(startup) => startup.clone(),
            Self::MySql(hello) => hello.key(),
        }
    }

    /// How its packets are followed.
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

    /// What of a client's bytes is more than passed on.
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

    /// What has to be known before a client can be greeted.
    pub(crate) async fn prepare(&self) -> Result<(), Refused> {
        if self.protocol == Protocol::MySql {
            let mut facts = self.facts.lock().await;
            if facts.is_none() {
                *facts = Some(mysql::learn(&self.server, self.login()).await?);
            }
        }
        Ok(())
    }

    /// Logs in and leaves again.
    pub(crate) async fn try_out(&self) -> Result<(), Refused> {
        let wish = match self.protocol {
            Protocol::MySql => return self.prepare().await,
            Protocol::Redis => Wish::Redis,
            Protocol::Postgres => Wish::Postgres(postgres::startup_of_nobody(self.login())),
        };
        self.open(&wish).await?.close().await;
        Ok(())
    }

    /// Logs in and asks how many connections the server takes, all of its clients together; `None`: it does not say.
    pub(crate) async fn capacity(&self) -> Result<Option<u64>, Refused> {
        let wish = match self.protocol {
            Protocol::MySql => Wish::MySql(mysql::Hello::of_nobody(self.login())),
            Protocol::Redis => Wish::Redis,
            Protocol::Postgres => Wish::Postgres(postgres::startup_of_nobody(self.login())),
        };
        let mut session = self.open(&wish).await?;
        let capacity = capacity::ask(&mut session.stream, self.protocol, self.reset).await;
        session.close().await;
        Ok(capacity)
    }

    /// Whether clients can be greeted without asking the server anything.
    pub(crate) async fn is_prepared(&self) -> bool {
        self.protocol != Protocol::MySql || self.facts.lock().await.is_some()
    }

    /// Reads what the client wants.
    pub(crate) async fn hear(&self, client: &mut UnixStream) -> std::io::Result<Beginning> {
        match self.protocol {
            Protocol::Redis => Ok(Beginning::Wish(Wish::Redis)),
            Protocol::Postgres => Ok(match postgres::hear(client, self.login()).await? {
                postgres::Beginning::Session(startup) => Beginning::Wish(Wish::Postgres(startup)),
                postgres::Beginning::Cancel(request) => Beginning::Cancel(request),
                postgres::Beginning::Nothing => Beginning::Nothing,
            }),
            Protocol::MySql => {
                let facts = self.facts.lock().await.clone();
                let facts = facts.expect("prepared before clients are heard");
                let hello = mysql::hear(client, &facts, self.login()).await?;
                Ok(hello.map_or(Beginning::Nothing, |hello| Beginning::Wish(Wish::MySql(hello))))
            }
        }
    }

    /// Has the server end what another session does.
    pub(crate) async fn cancel(&self, request: &[u8]) -> Result<(), Refused> {
        postgres::cancel(&self.server, request).await
    }

    /// A new session.
    pub(crate) async fn open(&self, wish: &Wish) -> Result<Session, Refused> {
        let session = |stream: Stream| Session {
            stream,
            key: wish.key(),
            welcome: Vec::new(),
            identity: Vec::new(),
            begins: false,
            goodbye: b"",
            opened: Instant::now(),
        };
        match wish {
            Wish::Redis => Ok(session(redis::open(&self.server, self.login.as_ref()).await?)),
            Wish::Postgres(startup) => {
                let (stream, welcome) = postgres::open(&self.server, self.login(), startup).await?;
                Ok(Session { welcome, goodbye: postgres::GOODBYE, ..session(stream) })
            }
            Wish::MySql(hello) => {
                let opened = mysql::open(&self.server, self.login(), hello).await?;
                let mysql::Opened { mut stream, greeting, ok } = opened;
                let fits = hello.capabilities & !greeting.capabilities == 0;
                // A server that was replaced by another: the next client is greeted as that one does.
                *self.facts.lock().await = Some(greeting);
                if !fits {
                    return Err(Refused::Unsupported(
                        "the server has changed: connect again".to_owned(),
                    ));
                }
                let identity = mysql::identity(&mut stream, hello, self.reset).await;
                let mysql::Identity { row: identity, begins } =
                    identity.ok_or_else(|| self.server.strange("it does not say who it is"))?;
                let welcome = mysql::welcome(&ok);
                let goodbye = mysql::GOODBYE;
                Ok(Session { welcome, identity, begins, goodbye, ..session(stream) })
            }
        }
    }

    /// Whether a session that a client has left is as new again.
    pub(crate) async fn reset(&self, session: &mut Session, wish: &Wish, tail: Tail) -> bool {
        match wish {
            Wish::Redis => redis::reset(&mut session.stream, self.login.as_ref(), self.reset).await,
            Wish::Postgres(_) => {
                postgres::reset(&mut session.stream, tail.bytes(), self.reset).await
            }
            Wish::MySql(hello) => {
                mysql::reset(&mut session.stream, hello, &session.identity, self.reset).await
            }
        }
    }

    /// What a client hears that gets no session. `greeted`: it has been heard.
    pub(crate) fn error(&self, refused: &Refused, greeted: bool) -> Vec<u8> {
        match self.protocol {
            Protocol::Redis => redis::error(refused),
            Protocol::Postgres => postgres::error(refused),
            Protocol::MySql => mysql::error(refused, !greeted),
        }
    }
}
