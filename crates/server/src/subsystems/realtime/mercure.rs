//! The Mercure hub: settings become its options, and its answers become responses.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use channels::mercure::{APP, Algorithm, Body, Key, Mercure, Options, PATH, Request};
use channels::{Channels, FixedApps, History, hub};
use front_http::CallBody;
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use tokio::net::UnixStream;
use tokio::task::JoinSet;

use crate::config::{NamedApp, Settings, Token};
use crate::failure::Failure;

/// The hub with the tasks that write to its subscribers.
#[derive(Debug)]
pub(super) struct Hub {
    mercure: Arc<Mercure>,
    tasks: Mutex<JoinSet<()>>,
}

/// Returns whether a path is the hub's.
pub(super) fn is_path(path: &str) -> bool {
    path.strip_prefix(PATH).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the application that holds the updates, if the hub is on. No client knows its key.
pub(super) fn application(settings: &Settings) -> Option<NamedApp> {
    let mercure = &settings.mercure;
    if !mercure.enabled {
        return None;
    }
    let mut named = NamedApp::new(APP, Token::draw().expose(), Token::draw().expose());
    // The hub answers from a history of its own: the channel's is for the log that nodes share.
    named.app.history = Some(History { events: 1, age: mercure.history_age, channels: Vec::new() });
    Some(named)
}

/// Reads a key: the secret itself, or a file.
fn key(
    name: &str,
    secret: Option<&str>,
    file: Option<&Path>,
    algorithm: &str,
) -> Result<Option<Key>, Failure> {
    let hint = format!(
        "correct `mercure.{name}_key`, `mercure.{name}_key_file` or `mercure.{name}_algorithm`"
    );
    let text = match (secret, file) {
        (Some(secret), _) => secret.to_owned(),
        (None, Some(file)) => {
            let text = std::fs::read_to_string(file).map_err(|error| {
                Failure::caused_by(format!("cannot read {}", file.display()), &error, hint.clone())
            })?;
            text.trim().to_owned()
        }
        (None, None) => return Ok(None),
    };
    let Some(algorithm) = Algorithm::named(algorithm) else {
        return Err(Failure::misused(format!("there is no algorithm {algorithm}"), hint));
    };
    let key = Key::new(algorithm, &text);
    key.map(Some).map_err(|error| Failure::misused(error.to_string(), hint))
}

impl Hub {
    /// Starts the hub if the settings have one.
    pub(super) fn start(
        settings: &Settings,
        channels: &Channels,
        apps: &FixedApps,
    ) -> Result<Option<Self>, Failure> {
        let mercure = &settings.mercure;
        let Some(app) = apps.all().iter().find(|app| *app.id == *APP) else { return Ok(None) };
        let publisher = key(
            "publisher",
            mercure.publisher_key.as_ref().map(Token::expose),
            mercure.publisher_key_file.as_deref(),
            &mercure.publisher_algorithm,
        )?;
        let subscriber = key(
            "subscriber",
            mercure.subscriber_key.as_ref().map(Token::expose),
            mercure.subscriber_key_file.as_deref(),
            &mercure.subscriber_algorithm,
        )?;
        if publisher.is_none() || (subscriber.is_none() && !mercure.anonymous) {
            return Err(Failure::misused(
                "the Mercure hub has no keys",
                "set `mercure.publisher_key` and `mercure.subscriber_key`, or `mercure.anonymous`",
            ));
        }
        let options = Options {
            publisher,
            subscriber,
            anonymous: mercure.anonymous,
            cookie: mercure.cookie.clone(),
            publish_origins: mercure.publish_origins.clone(),
            cors_origins: mercure.cors_origins.clone(),
            subscriptions: mercure.subscriptions,
            heartbeat: mercure.heartbeat,
            connections: mercure.connection_limit.get(),
            queue: mercure.queue.get(),
            events: mercure.history_events.get(),
            memory: usize::try_from(mercure.history_memory.0).unwrap_or(usize::MAX),
            age: mercure.history_age,
        };
        let Some((mercure, run)) = Mercure::start(options, channels, app, hub::now) else {
            return Err(Failure::misused(
                "there are too many event loops",
                "lower `realtime.threads`",
            ));
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(run);
        Ok(Some(Self { mercure, tasks: Mutex::new(tasks) }))
    }

    /// Waits until the updates of the log are kept.
    pub(super) async fn ready(&self) {
        self.mercure.ready().await;
    }

    /// Returns the numbers of subscribers, of published updates, and of subscribers that were too slow.
    pub(super) fn figures(&self) -> (usize, u64, u64) {
        self.mercure.figures()
    }

    /// Disconnects all subscribers, spread over `patience`.
    pub(super) async fn drain(&self, patience: Duration) {
        self.mercure.drain(patience).await;
    }

    /// Returns whether the answer depends on the request's body.
    pub(super) fn needs_body(&self, head: &Parts) -> bool {
        with_request(head, b"", |request| self.mercure.needs_body(request))
    }

    /// Answers a request.
    pub(super) async fn call(
        &self,
        head: &Parts,
        body: &[u8],
        wait: Duration,
    ) -> Response<CallBody> {
        let behind = with_request(head, body, |request| self.mercure.catch_up(request));
        let caught_up = match behind {
            Some(ticket) => self.mercure.caught_up(ticket).await,
            None => true,
        };
        let answer = with_request(head, body, |request| {
            if caught_up {
                self.mercure.answer(request)
            } else {
                self.mercure.answer_later(request)
            }
        });
        let mut status = answer.status;
        let body = match answer.body {
            Body::Whole(text) => CallBody::Whole(text.into()),
            Body::Stored(text, ticket) => {
                let stored = match ticket.filter(|_| !wait.is_zero()) {
                    Some(ticket) => tokio::time::timeout(wait, ticket.stored()).await == Ok(true),
                    None => true,
                };
                if stored {
                    CallBody::Whole(text.into())
                } else {
                    status = 503;
                    CallBody::Whole(Bytes::from_static(
                        b"the broker did not confirm the update in time; it may still be delivered\n",
                    ))
                }
            }
            Body::Stream(subscriber) => match UnixStream::pair() {
                Ok((ours, theirs)) => {
                    let mut tasks = self.tasks.lock().expect("no holder panics");
                    while tasks.try_join_next().is_some() {}
                    tasks.spawn(subscriber.write(theirs));
                    CallBody::Stream(ours)
                }
                Err(error) => {
                    tracing::warn!(%error, "no descriptor for a subscriber of Mercure");
                    status = 503;
                    CallBody::Whole(Bytes::new())
                }
            },
        };
        let mut response = Response::new(body);
        *response.status_mut() =
            StatusCode::from_u16(status).expect("the hub knows HTTP's statuses");
        for (name, value) in answer.fields {
            if let Ok(value) = HeaderValue::try_from(value) {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }
}

fn with_request<T>(head: &Parts, body: &[u8], act: impl FnOnce(&Request<'_>) -> T) -> T {
    // Cookies of other applications, and ids, may have any characters.
    let field =
        |name: &str| head.headers.get(name).and_then(|value| str::from_utf8(value.as_bytes()).ok());
    act(&Request {
        method: head.method.as_str(),
        path: head.uri.path(),
        query: head.uri.query().unwrap_or_default(),
        field: &field,
        body,
    })
}
