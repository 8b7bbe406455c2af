//! Applications that the settings do not name: asked for at `realtime.lookup`, a path of the application's own PHP or a URL.
//!
//! Invariants
//! - Each call carries a token, by which the other side can reject others. If PHP is called and no token is set, one is drawn at each
//!   start, and only PHP's own processes get it.
//! - Only `null` (or 204) means that there is no application. Everything else that is none is a failure: a route that has gone missing ends no
//!   client's connection.
//! - An answer is read like a table `[realtime.apps.ID]` of the settings, and is checked as strictly. No secret is logged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use channels::lookup::{self, Fetch, Lookup, Options, Source, Subject};
use channels::{App, Channels, FixedApps, hub};
use http::header::{ACCEPT, AUTHORIZATION, USER_AGENT};
use http::{HeaderValue, Request};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::body_limit;
use super::caller::{Caller, Reply};
use super::webhooks::OfApps;
use crate::config::{Apps, NamedApp, Settings, Token, WebhookTarget};

/// The environment variable by which PHP knows the token; the setting's own.
pub(crate) const VARIABLE: &str = "HEARTH_REALTIME_LOOKUP_TOKEN";
/// The largest answer in bytes.
const ANSWER: usize = 64 * 1024;

/// The look-up that the settings ask for.
#[derive(Debug)]
pub(super) struct Lookups {
    pub(super) lookup: Arc<Lookup>,
    asking: Arc<Asking>,
    tasks: JoinSet<()>,
    end: CancellationToken,
}

impl Lookups {
    /// Returns the look-ups; `None` if the settings name no target.
    pub(super) fn new(
        settings: &Settings,
        fixed: &FixedApps,
        caller: &Arc<Caller>,
        endpoints: &Arc<OfApps>,
    ) -> Option<Self> {
        let realtime = &settings.realtime;
        let target = realtime.lookup.as_ref()?.to_string();
        let options = Options {
            age: realtime.lookup_age,
            absence: realtime.lookup_absence_age,
            timeout: realtime.lookup_timeout,
            ..Options::default()
        };
        let asking = Asking {
            caller: Arc::clone(caller),
            target,
            token: realtime.lookup_token.0.clone().unwrap_or_else(Token::draw),
            timeout: options.timeout,
            apps: realtime.apps.clone(),
            webhooks: realtime.webhook.clone(),
            endpoints: Arc::clone(endpoints),
            body_limit: AtomicU64::new(0),
        };
        Some(Self {
            lookup: Arc::new(Lookup::new(fixed.clone(), options, hub::now)),
            asking: Arc::new(asking),
            tasks: JoinSet::new(),
            end: CancellationToken::new(),
        })
    }

    /// Starts to look up.
    pub(super) fn start(&mut self, channels: &Channels) {
        let source = Arc::new(Applications(Arc::clone(&self.asking)));
        let ending = self.end.clone().cancelled_owned();
        self.tasks.spawn(lookup::run(Arc::clone(&self.lookup), source, channels.clone(), ending));
    }

    /// Returns the token that calls carry.
    pub(super) fn token(&self) -> &str {
        self.asking.token.expose()
    }

    /// The largest body of a call that an application may make which was looked up so far.
    pub(super) fn body_limit(&self) -> u64 {
        self.asking.body_limit.load(Ordering::Relaxed)
    }

    pub(super) async fn end(mut self) {
        self.end.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

/// The target of look-ups, and their settings.
#[derive(Debug)]
struct Asking {
    caller: Arc<Caller>,
    target: String,
    token: Token,
    timeout: Duration,
    /// The settings that all applications share.
    apps: Apps,
    /// The default targets of webhooks.
    webhooks: Vec<WebhookTarget>,
    endpoints: Arc<OfApps>,
    body_limit: AtomicU64,
}

/// The applications that the target knows.
#[derive(Debug)]
struct Applications(Arc<Asking>);

impl Source for Applications {
    fn fetch(&self, subject: &Subject) -> Fetch {
        let (asking, subject) = (Arc::clone(&self.0), subject.clone());
        Box::pin(async move { asking.fetch(&subject).await })
    }

    fn forgotten(&self, app: &App) {
        self.0.endpoints.forget(&app.id);
    }
}

impl Asking {
    async fn fetch(&self, subject: &Subject) -> Result<Option<App>, String> {
        let mut request = Request::new(Bytes::new());
        let fields = request.headers_mut();
        fields.insert(ACCEPT, HeaderValue::from_static("application/json"));
        fields.insert(USER_AGENT, HeaderValue::from_static("hearth (look-up)"));
        fields.insert(AUTHORIZATION, self.token.bearer());
        let address = address(&self.target, subject);
        let Reply { status, body } =
            self.caller.call(&address, self.timeout, request, Some(ANSWER)).await?;
        let Some(mut named) = read(&self.apps, status, &body)? else { return Ok(None) };
        // The engine looks at this, too; here it keeps one application's webhooks out of another's hands.
        let (Subject::Id(asked) | Subject::Key(asked)) = subject;
        let told = if matches!(subject, Subject::Id(_)) { &named.app.id } else { &named.app.key };
        if told != asked {
            return Err("the answer is about another application".to_owned());
        }
        if named.webhooks.is_empty() {
            named.webhooks.clone_from(&self.webhooks);
        }
        self.endpoints.learn(&named);
        self.body_limit.fetch_max(body_limit(&named), Ordering::Relaxed);
        Ok(Some(named.app))
    }
}

/// Characters to encode in a query's value: all but unreserved ones (RFC 3986, section 2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Returns the URL of a look-up: `?key=` or `?id=`, after the target's own query.
fn address(target: &str, subject: &Subject) -> String {
    let (name, value) = match subject {
        Subject::Key(key) => ("key", key),
        Subject::Id(id) => ("id", id),
    };
    let join = if target.contains('?') { '&' } else { '?' };
    format!("{target}{join}{name}={}", utf8_percent_encode(value, RESERVED))
}

/// Reads an answer.
fn read(apps: &Apps, status: u16, body: &[u8]) -> Result<Option<NamedApp>, String> {
    match status {
        204 => return Ok(None),
        200 => {}
        404 => {
            return Err("it answers 404: nothing is at that path. An application that does not exist is `null`, or status 204".to_owned());
        }
        401 | 403 => {
            return Err(format!("it answers {status}: it does not know Hearth by the token"));
        }
        status => return Err(format!("it answers {status}")),
    }
    let members = match serde_json::from_slice(body) {
        Ok(Value::Null) => return Ok(None),
        Ok(Value::Object(members)) => members,
        Ok(_) => return Err("the answer is JSON, but neither an object nor null".to_owned()),
        Err(_) => return Err("the answer is no JSON".to_owned()),
    };
    let mut pairs = Vec::new();
    for (name, value) in members {
        let text = match value {
            // As if the key were missing.
            Value::Null => continue,
            Value::Array(items) => {
                let items = items.into_iter().map(|item| scalar(&name, item));
                items.collect::<Result<Vec<_>, _>>()?.join(",")
            }
            value => scalar(&name, value)?,
        };
        pairs.push((name, text));
    }
    apps.looked_up(pairs).map(Some).map_err(|wrong| format!("the answer has {}", wrong.0))
}

fn scalar(name: &str, value: Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(on) => Ok(if on { "on" } else { "off" }.to_owned()),
        Value::Null | Value::Array(_) | Value::Object(_) => {
            Err(format!("`{name}` of the answer is neither a text nor a number nor a list of them"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Raw, Value as _};

    fn apps(pairs: &[(&str, &str)]) -> Apps {
        let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Apps::parse(&Raw::Table(pairs.collect()), std::path::Path::new(".")).unwrap()
    }

    fn read_text(body: &str) -> Result<Option<NamedApp>, String> {
        read(&apps(&[("*.batch", "3"), ("*.connections", "7")]), 200, body.as_bytes())
    }

    #[test]
    fn an_answer_is_read_like_a_table_of_the_settings() {
        let named = read_text(
            r#"{"id":7,"key":"k","secret":"s","origins":["a.example","*.b.example"],"client_events":false,
                "event_data":"20KiB","connections":null,"history_events":5,"history_channels":["news"],
                "webhook":"php:/hooks","webhook_events":["channel_vacated"],"activity_timeout":"2m"}"#,
        );
        let NamedApp { app, webhooks, .. } = named.unwrap().unwrap();
        assert_eq!((&*app.id, &*app.key, app.secret.expose()), ("7", "k", "s"));
        assert_eq!(app.rights.origins.join(" "), "a.example *.b.example");
        assert!(!app.rights.client_events);
        assert_eq!((app.limits.data, app.limits.activity_timeout.as_secs()), (20 * 1024, 120));
        // What holds for all holds for it, too.
        assert_eq!((app.limits.batch, app.limits.connections), (3, Some(7)));
        assert_eq!(app.history.map(|history| history.events), Some(5));
        assert_eq!(webhooks[0].to_string(), "php:/hooks");
    }

    #[test]
    fn only_null_and_204_say_that_there_is_no_application() {
        assert!(read_text("null").unwrap().is_none());
        assert!(read(&apps(&[]), 204, b"").unwrap().is_none());
        for (status, body, why) in [
            (404, "null", "nothing is at that path"),
            (401, "", "the token"),
            (403, "", "the token"),
            (500, "null", "it answers 500"),
            (302, "", "it answers 302"),
            (200, "", "no JSON"),
            (200, "<html>", "no JSON"),
            (200, "[]", "neither an object nor null"),
            (200, "false", "neither an object nor null"),
            (200, "{}", "without `id`"),
            (200, r#"{"id":"","key":"k","secret":"s"}"#, "without `id`"),
            (200, r#"{"id":"*","key":"k","secret":"s"}"#, "without `id`"),
            (200, r#"{"id":"1","secret":"s"}"#, "without `key`"),
            (200, r#"{"id":"1","key":"k"}"#, "without `secret`"),
            (200, r#"{"id":"1","key":"k","secret":"s","orgins":[]}"#, "did you mean `origins`?"),
            (200, r#"{"id":"1","key":"k","secret":"s","batch":-1}"#, "`batch` of `1`: `-1`"),
            (200, r#"{"id":"1","key":"k","secret":"s","origins":[[]]}"#, "`origins` of the answer"),
            (200, r#"{"id":"1","key":"k","secret":{"hidden":1}}"#, "`secret` of the answer"),
        ] {
            let error = read(&apps(&[]), status, body.as_bytes()).unwrap_err();
            assert!(error.contains(why), "{status} {body}: {error}");
            assert!(!error.contains("hidden"), "{error}");
        }
        let deep = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
        assert!(read(&apps(&[]), 200, deep.as_bytes()).is_err());
    }

    #[test]
    fn keys_of_all_kinds_are_asked_for_by_name() {
        let of = |target, subject| address(target, &subject);
        assert_eq!(of("php:/apps", Subject::Key("a-b.c_~9".into())), "php:/apps?key=a-b.c_~9");
        assert_eq!(
            of("https://a.example/x?y=1", Subject::Id("a&b=\r\n/é".into())),
            "https://a.example/x?y=1&id=a%26b%3D%0D%0A%2F%C3%A9"
        );
    }
}
