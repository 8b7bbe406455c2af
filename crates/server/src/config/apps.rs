//! The applications of realtime: their keys and rights, from tables of `hearth.toml`, `ID:KEY:SECRET` and the like.
//!
//! Invariants
//! - A list of applications is complete: `*`, which stands for all of them, has been applied.
//! - No secret is quoted back.

mod targets;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use channels::{App, History, Limits, Rights, Secret};
use pool::ByteSize;

pub(crate) use self::targets::{AdapterUrl, LookupTarget, SubjectPrefix, WebhookTarget};
use super::nearest;
use super::value::{Raw, Value, Wrong};

/// An application with what the server does for it.
#[derive(Clone, Debug)]
pub(crate) struct NamedApp {
    /// The application for the engine.
    pub app: App,
    /// The targets of its webhooks.
    pub webhooks: Vec<WebhookTarget>,
    /// The sent events; empty: all but client events and counts.
    pub webhook_events: Vec<WebhookEvent>,
}

impl NamedApp {
    /// An application with Hearth's defaults.
    pub(crate) fn new(id: &str, key: &str, secret: &str) -> Self {
        let app = App {
            id: id.into(),
            key: key.into(),
            secret: Secret::new(secret),
            rights: Rights::default(),
            limits: Limits::default(),
            history: None,
        };
        Self { app, webhooks: Vec::new(), webhook_events: Vec::new() }
    }

    fn history(&mut self) -> &mut History {
        self.app.history.get_or_insert_with(|| History {
            events: 0,
            age: Duration::from_mins(5),
            channels: Vec::new(),
        })
    }
}

/// A key of an application's table.
#[derive(Clone, Copy)]
pub(super) struct AppKey {
    /// The name.
    pub name: &'static str,
    /// The description.
    #[cfg_attr(not(test), expect(dead_code, reason = "only the reference page tells of it"))]
    pub doc: &'static str,
    /// The accepted values.
    pub expected: fn() -> String,
    /// The default; empty: none.
    #[cfg_attr(not(test), expect(dead_code, reason = "only the reference page tells of it"))]
    pub default: &'static str,
    set: fn(&mut NamedApp, &Raw) -> Result<(), Wrong>,
}

impl fmt::Debug for AppKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

fn read<T: Value>(raw: &Raw) -> Result<T, Wrong> {
    T::parse(raw, Path::new("."))
}

fn bytes(raw: &Raw) -> Result<usize, Wrong> {
    read::<ByteSize>(raw).map(|size| usize::try_from(size.0).unwrap_or(usize::MAX))
}

fn texts(raw: &Raw) -> Result<Vec<Arc<str>>, Wrong> {
    read::<Vec<String>>(raw).map(|texts| texts.into_iter().map(Into::into).collect())
}

macro_rules! app_keys {
    ($($name:ident: $type:ty = $default:literal, $doc:literal, |$app:ident, $raw:ident| $set:expr;)+) => {
        /// Every key that an application's table may have, in the order of the manual.
        pub(super) const APP_KEYS: &[AppKey] = &[$(AppKey {
            name: stringify!($name),
            doc: $doc,
            expected: <$type as Value>::expected,
            default: $default,
            set: |$app, $raw| { $set; Ok(()) },
        }),+];
    };
}

app_keys! {
    key: String = "", "The public part of clients' addresses.",
        |app, raw| app.app.key = read::<String>(raw)?.into();
    secret: String = "", "Signs subscriptions, calls of the HTTP API and webhooks.",
        |app, raw| app.app.secret = Secret::new(&read::<String>(raw)?);
    enabled: bool = "on", "Whether clients may connect; otherwise they get 4003.",
        |app, raw| app.app.rights.enabled = read(raw)?;
    client_events: bool = "on", "Whether clients may send `client-` events (whispers).",
        |app, raw| app.app.rights.client_events = read(raw)?;
    subscription_count: bool = "off", "Whether subscribers get their number (`pusher_internal:subscription_count`).",
        |app, raw| app.app.rights.subscription_count = read(raw)?;
    watchlist: bool = "on", "Whether signed-in users get the state of the users they watch.",
        |app, raw| app.app.rights.watchlist = read(raw)?;
    require_tls: bool = "off", "Refuse clients that connect without TLS, with 4000.",
        |app, raw| app.app.rights.plain = !read::<bool>(raw)?;
    origins: Vec<String> = "", "Hosts of pages that may connect, `*` for any part; others get 4009. Empty: all. Event streams may lack `Origin` (docs/internals/realtime.md).",
        |app, raw| app.app.rights.origins = texts(raw)?;
    connections: Option<usize> = "off", "Sockets at a time; one more gets 4004.",
        |app, raw| app.app.limits.connections = read(raw)?;
    subscriptions: usize = "1000", "Channels that one socket may subscribe to.",
        |app, raw| app.app.limits.subscriptions = read(raw)?;
    public_subscriptions: usize = "100", "Public channels among them, which a client may name freely: each costs some 400 bytes.",
        |app, raw| app.app.limits.public_subscriptions = read(raw)?;
    subscription_rate: usize = "20", "Subscriptions of one socket per second, once it has left a channel and then subscribed to `subscriptions` more; others are refused with 403.",
        |app, raw| app.app.limits.subscription_rate = u32::try_from(read::<usize>(raw)?).unwrap_or(u32::MAX);
    channel_name: usize = "164", "Characters of a channel's name.",
        |app, raw| app.app.limits.channel_name = read(raw)?;
    event_name: usize = "200", "Characters of an event's name.",
        |app, raw| app.app.limits.event_name = read(raw)?;
    event_data: ByteSize = "10KiB", "Bytes of an event's data.",
        |app, raw| app.app.limits.data = bytes(raw)?;
    channels_per_event: usize = "100", "Channels that one call may publish to; `hearth_publish()` takes 1024 at most.",
        |app, raw| app.app.limits.channels_per_event = read(raw)?;
    batch: usize = "10", "Events of one batch.",
        |app, raw| app.app.limits.batch = read(raw)?;
    members: usize = "100", "Members of a presence channel.",
        |app, raw| app.app.limits.members = read(raw)?;
    user_id: usize = "128", "Characters of a user's id.",
        |app, raw| app.app.limits.user_id = read(raw)?;
    user_info: ByteSize = "1KiB", "Bytes of a member's `user_info`.",
        |app, raw| app.app.limits.user_info = bytes(raw)?;
    watched_users: usize = "100", "Users that one user may watch.",
        |app, raw| app.app.limits.watchlist = read(raw)?;
    client_event_rate: usize = "10", "Client events of one socket per second; more are refused with 4301.",
        |app, raw| app.app.limits.client_events = u32::try_from(read::<usize>(raw)?).unwrap_or(u32::MAX);
    channel_rate: Option<usize> = "off", "Events of one channel per second, from all sides.",
        |app, raw| app.app.limits.channel_events =
            read::<Option<usize>>(raw)?.map(|rate| u32::try_from(rate).unwrap_or(u32::MAX));
    message: ByteSize = "32KiB", "Bytes of one message of a client.",
        |app, raw| app.app.limits.message = bytes(raw)?;
    queue_bytes: ByteSize = "1MiB", "Bytes that may wait for one socket; with more it is closed: it reads too slowly.",
        |app, raw| app.app.limits.queue_bytes = bytes(raw)?;
    queue_messages: usize = "10000", "Messages that may wait for one socket.",
        |app, raw| app.app.limits.queue_messages = read(raw)?;
    activity_timeout: Duration = "30s", "The time that a socket may be silent before it gets a ping.",
        |app, raw| app.app.limits.activity_timeout = read(raw)?;
    pong_timeout: Duration = "30s", "How long the answer to a ping may take. Data that a client acknowledges by TCP in the second half of that time counts as an answer.",
        |app, raw| app.app.limits.pong_timeout = read(raw)?;
    cache_age: Duration = "30m", "How long a cache channel keeps its last event.",
        |app, raw| app.app.limits.cache = read(raw)?;
    history_events: Option<usize> = "off", "Events that each channel keeps, so that reconnecting clients get what they missed.",
        |app, raw| match read::<Option<usize>>(raw)? {
            Some(events) if events > 0 => app.history().events = events,
            _ => app.app.history = None,
        };
    history_age: Duration = "5m", "How long they are kept.",
        |app, raw| app.history().age = read(raw)?;
    history_channels: Vec<String> = "", "Prefixes of the channels with history. Empty: all.",
        |app, raw| app.history().channels = texts(raw)?;
    webhook: Vec<WebhookTarget> = "", "Where this application's webhooks go, instead of `realtime.webhook`.",
        |app, raw| app.webhooks = read(raw)?;
    webhook_events: Vec<WebhookEvent> = "", "Which of them are sent. Empty: all but `client_event` and `subscription_count`.",
        |app, raw| app.webhook_events = read(raw)?;
}

/// The events of webhooks.
const WEBHOOK_EVENTS: &[&str] = &[
    "channel_occupied",
    "channel_vacated",
    "member_added",
    "member_removed",
    "client_event",
    "cache_miss",
    "subscription_count",
];

/// An event of webhooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WebhookEvent(pub &'static str);

impl Value for WebhookEvent {
    const PLACEHOLDER: &str = "EVENT";

    fn expected() -> String {
        WEBHOOK_EVENTS.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    }

    fn choices() -> &'static [&'static str] {
        WEBHOOK_EVENTS
    }

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        let text = raw.text()?;
        let known = WEBHOOK_EVENTS.iter().find(|name| **name == text);
        known.map(|name| Self(name)).ok_or_else(|| Wrong::quoted(text))
    }
}

/// The name that means every application.
const ALL: &str = "*";

/// Tables of applications by id.
#[derive(Clone, Debug, Default)]
pub(crate) struct Apps {
    tables: Vec<Table>,
}

#[derive(Clone)]
struct Table {
    id: String,
    pairs: Vec<(&'static AppKey, Raw)>,
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The values hold secrets.
        f.debug_struct("Table").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Apps {
    /// Returns all applications, each with the values that apply to all.
    pub(crate) fn resolved(&self) -> Vec<NamedApp> {
        let named = self.tables.iter().filter(|table| table.id != ALL);
        named.map(|table| self.resolve(table)).collect()
    }

    /// Returns an application from another source, with the values that apply to all.
    pub(crate) fn adopted(&self, id: &str, key: &str, secret: &str) -> NamedApp {
        let mut app = NamedApp::new(id, key, secret);
        self.apply_all(&mut app);
        app
    }

    /// Returns a looked-up application, described by keys of a table of the settings and `id`, with the values that apply to all.
    pub(crate) fn looked_up(
        &self,
        pairs: impl IntoIterator<Item = (String, String)>,
    ) -> Result<NamedApp, Wrong> {
        let mut table = Table { id: String::new(), pairs: Vec::new() };
        let mut values = Vec::new();
        for (name, value) in pairs {
            if name == "id" {
                table.id = value;
            } else {
                values.push((key(&name)?, value));
            }
        }
        if table.id == ALL {
            table.id.clear();
        }
        for (key, value) in values {
            table.pairs.push((key, checked(&table.id, key, value)?));
        }
        let app = self.resolve(&table);
        check_whole(&app.app)?;
        Ok(app)
    }

    fn resolve(&self, table: &Table) -> NamedApp {
        let mut app = NamedApp::new(&table.id, "", "");
        self.apply_all(&mut app);
        apply(&mut app, &table.pairs);
        app
    }

    fn apply_all(&self, app: &mut NamedApp) {
        self.tables.iter().filter(|table| table.id == ALL).for_each(|all| apply(app, &all.pairs));
    }

    fn table(&mut self, id: &str) -> &mut Table {
        let at = self.tables.iter().position(|table| table.id == id).unwrap_or_else(|| {
            self.tables.push(Table { id: id.to_owned(), pairs: Vec::new() });
            self.tables.len() - 1
        });
        &mut self.tables[at]
    }

    fn set(&mut self, id: &str, key: &'static AppKey, raw: Raw) {
        let table = self.table(id);
        table.pairs.retain(|(known, _)| known.name != key.name);
        table.pairs.push((key, raw));
    }

    /// Adds every application of a list `ID:KEY:SECRET,ID:KEY:SECRET`.
    fn add_all(&mut self, list: &str) -> Result<(), Wrong> {
        let mut items = list.split(',').map(str::trim).filter(|item| !item.is_empty());
        items.try_for_each(|item| self.add(item))
    }

    /// Adds an application `ID:KEY:SECRET`. More parts are refused, because they would form a wrong secret.
    fn add(&mut self, text: &str) -> Result<(), Wrong> {
        let parts: Vec<&str> = text.split(':').map(str::trim).collect();
        let [id, name, secret] = parts[..] else {
            return Err(Wrong(format!(
                "{} parts where `ID:KEY:SECRET` has 3 (a secret with a colon or a comma goes into a table `[realtime.apps.ID]`)",
                parts.len()
            )));
        };
        if [id, name, secret].contains(&"") || id == ALL {
            return Err(Wrong("a text with an empty part".into()));
        }
        self.set(id, key("key")?, Raw::Text(name.to_owned()));
        self.set(id, key("secret")?, Raw::Text(secret.to_owned()));
        Ok(())
    }

    /// Checks that every application has a unique key, and a secret.
    fn check(&self) -> Result<(), Wrong> {
        let apps = self.resolved();
        for (at, NamedApp { app, .. }) in apps.iter().enumerate() {
            check_whole(app)?;
            if let Some(twin) = apps.iter().take(at).find(|other| other.app.key == app.key) {
                return Err(Wrong(format!(
                    "the key of `{}` twice, for `{}` too",
                    twin.app.id, app.id
                )));
            }
        }
        Ok(())
    }
}

/// Checks that an application has an id, a key and a secret.
fn check_whole(app: &App) -> Result<(), Wrong> {
    let parts = [("id", &*app.id), ("key", &*app.key), ("secret", app.secret.expose())];
    match parts.iter().find(|(_, part)| part.is_empty()) {
        Some((what, _)) => Err(Wrong(format!("application `{}` without `{what}`", app.id))),
        None => Ok(()),
    }
}

/// A value that an application of this id takes.
fn checked(id: &str, key: &'static AppKey, value: String) -> Result<Raw, Wrong> {
    let raw = Raw::Text(value);
    match (key.set)(&mut NamedApp::new(id, "", ""), &raw) {
        Ok(()) => Ok(raw),
        Err(wrong) => Err(Wrong(format!(
            "`{}` of `{id}`: {} where it takes {}",
            key.name,
            wrong.0,
            (key.expected)()
        ))),
    }
}

fn apply(app: &mut NamedApp, pairs: &[(&'static AppKey, Raw)]) {
    // In the order of the table of keys: `history_events` before what depends on it, `off` last of all.
    for key in APP_KEYS {
        if let Some((_, raw)) = pairs.iter().find(|(known, _)| known.name == key.name) {
            (key.set)(app, raw).expect("it was read once before it was kept");
        }
    }
    if app.app.history.as_ref().is_some_and(|history| history.events == 0) {
        app.app.history = None;
    }
}

fn key(name: &str) -> Result<&'static AppKey, Wrong> {
    APP_KEYS.iter().find(|key| key.name == name).ok_or_else(|| {
        let near = nearest(name, APP_KEYS.iter().map(|key| key.name));
        let hint = near.map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"));
        Wrong(format!("no key of an application: `{name}`{hint}"))
    })
}

impl Value for Apps {
    const PLACEHOLDER: &str = "ID:KEY:SECRET";
    const REPEATS: bool = true;
    const EXPECTED: &str = "`ID:KEY:SECRET`; several separated by commas, or as tables `[realtime.apps.ID]` with `key` and `secret`";

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        let mut apps = Self::default();
        match raw {
            Raw::Text(list) => apps.add_all(list)?,
            Raw::List(lists) => lists.iter().try_for_each(|list| apps.add_all(list))?,
            Raw::Table(pairs) => {
                for (path, value) in pairs {
                    let (id, name) = path.rsplit_once('.').ok_or_else(|| {
                        Wrong(format!("`{path}` outside the table of an application"))
                    })?;
                    let key = key(name)?;
                    apps.set(id, key, checked(id, key, value.clone())?);
                }
            }
        }
        apps.check()?;
        Ok(apps)
    }

    fn overridden_by(mut self, stronger: Self) -> Self {
        for table in stronger.tables {
            self.table(&table.id);
            for (key, raw) in table.pairs {
                self.set(&table.id, key, raw);
            }
        }
        self
    }
}

#[cfg(test)]
#[path = "apps_tests.rs"]
mod tests;
