//! Which applications have channels: those of the settings, and the one of a Laravel application's `.env`.
//!
//! Invariants
//! - `.env` is read as the application reads it; it never overrides the settings.

use std::fmt;
use std::path::Path;

use crate::config::{Auto, DotEnv, Environment, NamedApp, Settings};
use crate::failure::Failure;

/// The connection that Laravel broadcasts over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    /// Laravel Reverb's, which speaks the HTTP API.
    Reverb,
    /// Pusher's own, which does so too.
    Pusher,
    /// Hearth's, over `hearth_publish()`.
    Hearth,
}

impl Driver {
    /// Returns the name in `.env`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Reverb => "reverb",
            Self::Pusher => "pusher",
            Self::Hearth => "hearth",
        }
    }

    /// Returns the driver of `BROADCAST_CONNECTION`, if it is one of these.
    fn of(env: &DotEnv<'_>) -> Option<Self> {
        // Laravel 11 has the first name, those before it the second.
        let name = env.filled("BROADCAST_CONNECTION").or_else(|| env.filled("BROADCAST_DRIVER"))?;
        [Self::Reverb, Self::Pusher, Self::Hearth].into_iter().find(|driver| driver.name() == name)
    }
}

/// The set of variables in `.env`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prefix {
    /// `REVERB_`
    Reverb,
    /// `PUSHER_`
    Pusher,
}

impl Prefix {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Reverb => "REVERB",
            Self::Pusher => "PUSHER",
        }
    }
}

/// An application that `.env` describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OfEnv {
    /// The set of variables.
    pub(crate) prefix: Prefix,
    id: String,
    key: String,
    secret: String,
    /// The address that PHP publishes to.
    pub(crate) api: Option<Api>,
    /// The address where Reverb would listen.
    pub(crate) server: Option<String>,
}

/// The address at which a server library calls the HTTP API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Api {
    pub(crate) tls: bool,
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:{}", if self.tls { "https" } else { "http" }, self.host, self.port)
    }
}

impl Api {
    /// Returns whether the address is on this machine.
    pub(crate) fn is_here(&self) -> bool {
        let address = self.host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
        self.host == "localhost"
            || address.is_ok_and(|address| address.is_loopback() || address.is_unspecified())
    }
}

impl OfEnv {
    /// Returns whether the settings contradict it about the same application.
    pub(crate) fn clashes_with(&self, apps: &[NamedApp]) -> bool {
        apps.iter().any(|NamedApp { app, .. }| {
            let (same_id, same_key) = (*app.id == *self.id, *app.key == *self.key);
            let same_secret = app.secret.expose() == self.secret;
            (same_id || same_key) && !(same_id && same_key && same_secret)
        })
    }

    fn read(env: &DotEnv<'_>, prefix: Prefix) -> Option<Self> {
        let variable =
            |name: &str| env.filled(&format!("{}_{name}", prefix.name())).map(str::to_owned);
        let tls = variable("SCHEME").is_none_or(|scheme| scheme != "http");
        let port = variable("PORT").and_then(|port| port.parse().ok()).unwrap_or(443);
        Some(Self {
            prefix,
            id: variable("APP_ID")?,
            key: variable("APP_KEY")?,
            secret: variable("APP_SECRET")?,
            api: variable("HOST").map(|host| Api { tls, host, port }),
            server: variable("SERVER_PORT").map(|port| {
                let host = variable("SERVER_HOST").unwrap_or_else(|| "0.0.0.0".to_owned());
                format!("{host}:{port}")
            }),
        })
    }
}

/// The broadcasting settings of a `.env`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Broadcasting {
    /// The connection, if it is one that ends here.
    pub(crate) driver: Option<Driver>,
    /// The applications it describes, the driver's own first.
    pub(crate) apps: Vec<OfEnv>,
}

impl Broadcasting {
    /// Reads it.
    pub(crate) fn read(folder: &Path, settings: &Settings, environment: &Environment) -> Self {
        let env = DotEnv::read(folder, settings, environment);
        let driver = Driver::of(&env);
        let order = match driver {
            Some(Driver::Pusher) => [Prefix::Pusher, Prefix::Reverb],
            _ => [Prefix::Reverb, Prefix::Pusher],
        };
        let mut apps: Vec<OfEnv> =
            order.into_iter().filter_map(|prefix| OfEnv::read(&env, prefix)).collect();
        // Both names for one application are one application.
        apps.dedup_by(|a, b| a.id == b.id || a.key == b.key);
        Self { driver, apps }
    }

    /// Returns the address that PHP publishes to, if that is this machine but none of these listeners: `http://127.0.0.1:8080`.
    pub(crate) fn other_address(&self, listeners: &[String]) -> Option<&Api> {
        // Hearth's own driver needs no port.
        let by_http = self.driver.is_some_and(|driver| driver != Driver::Hearth);
        let api = self.wanted().filter(|_| by_http)?.api.as_ref().filter(|api| api.is_here())?;
        let port = format!(":{}", api.port);
        (!listeners.iter().any(|url| url.ends_with(&port))).then_some(api)
    }

    /// The application whose driver ends here. `pusher` without a host is Pusher itself.
    pub(crate) fn wanted(&self) -> Option<&OfEnv> {
        let app = self.apps.first()?;
        match (self.driver?, app.prefix) {
            (Driver::Hearth, _) | (Driver::Reverb, Prefix::Reverb) => Some(app),
            (Driver::Pusher, Prefix::Pusher) if app.api.is_some() => Some(app),
            _ => None,
        }
    }
}

/// The applications that `hearth serve` has channels for, beside those that are looked up; none at all: there is no realtime.
pub(crate) fn of_served(
    settings: &Settings,
    broadcasting: &Broadcasting,
) -> Result<Option<Vec<NamedApp>>, Failure> {
    let of_env = match settings.realtime.enabled {
        Auto(Some(false)) => return Ok(None),
        Auto(Some(true)) => broadcasting.apps.first(),
        Auto(None) => broadcasting.wanted(),
    };
    let apps = joined(settings, of_env);
    if apps.is_empty()
        && settings.realtime.lookup.is_none()
        && settings.realtime.enabled == Auto(Some(true))
    {
        return Err(none());
    }
    Ok((!apps.is_empty() || settings.realtime.lookup.is_some()).then_some(apps))
}

/// Explains in words which applications have channels.
pub(crate) fn explain(settings: &Settings, named: &[NamedApp]) -> String {
    let mut whose: Vec<String> = named.iter().map(|named| named.app.id.to_string()).collect();
    let hub = whose.iter().position(|id| id == channels::mercure::APP).map(|at| whose.remove(at));
    if let Some(target) = &settings.realtime.lookup {
        whose.push(format!("those that {target} knows"));
    }
    let whose = whose.join(", ");
    match hub {
        Some(_) if whose.is_empty() => String::from("a Mercure hub"),
        Some(_) => format!("a Mercure hub and channels for {whose}"),
        None => format!("channels for {whose}"),
    }
}

/// Returns the applications of `hearth channels`: at least one.
pub(crate) fn alone(
    settings: &Settings,
    broadcasting: &Broadcasting,
) -> Result<Vec<NamedApp>, Failure> {
    let apps = joined(settings, &broadcasting.apps);
    if apps.is_empty() && settings.realtime.lookup.is_none() { Err(none()) } else { Ok(apps) }
}

fn joined<'a>(settings: &Settings, of_env: impl IntoIterator<Item = &'a OfEnv>) -> Vec<NamedApp> {
    let mut apps = settings.realtime.apps.resolved();
    for OfEnv { id, key, secret, .. } in of_env {
        if !apps.iter().any(|known| *known.app.id == **id || *known.app.key == **key) {
            apps.push(settings.realtime.apps.adopted(id, key, secret));
        }
    }
    apps.extend(super::mercure::application(settings));
    for app in &mut apps {
        if app.webhooks.is_empty() {
            app.webhooks.clone_from(&settings.realtime.webhook);
        }
    }
    apps
}

/// The settings have PHP asked, and there is none.
pub(crate) fn no_php() -> Failure {
    Failure::misused(
        "`realtime.lookup` is a path of PHP, and no PHP runs here",
        "name a URL, with a `realtime.lookup_token`; or let `hearth serve` have the channels",
    )
}

fn none() -> Failure {
    Failure::misused(
        "there is no application to have channels for",
        "name one with `--app ID:KEY:SECRET`, or who knows them with `--lookup`, in hearth.toml (`[realtime.apps.ID]`), or with REVERB_APP_ID, REVERB_APP_KEY and \
         REVERB_APP_SECRET in .env",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Broadcasting {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(".env"), text).unwrap();
        let environment = Environment::for_test(folder.path(), &[]);
        let settings = crate::config::load(folder.path(), None, Vec::new(), &environment).unwrap();
        Broadcasting::read(folder.path(), &settings, &environment)
    }

    const REVERB: &str = "REVERB_APP_ID=1\nREVERB_APP_KEY=rk\nREVERB_APP_SECRET=rs\nREVERB_HOST=localhost\nREVERB_PORT=8080\n\
                          REVERB_SCHEME=http\nREVERB_SERVER_PORT=9000\n";
    const PUSHER: &str = "PUSHER_APP_ID=2\nPUSHER_APP_KEY=pk\nPUSHER_APP_SECRET=ps\n";

    #[test]
    fn the_drivers_own_variables_are_used() {
        let wanted = |text: &str| read(text).wanted().map(|app| app.id.clone());
        for (driver, id) in [
            ("BROADCAST_CONNECTION=reverb", Some("1")),
            ("BROADCAST_DRIVER=reverb", Some("1")),
            ("BROADCAST_CONNECTION=hearth", Some("1")),
            ("BROADCAST_DRIVER=pusher\nPUSHER_HOST=127.0.0.1", Some("2")),
            // Pusher itself, over the internet.
            ("BROADCAST_DRIVER=pusher\nPUSHER_HOST=", None),
            ("BROADCAST_CONNECTION=log\nBROADCAST_DRIVER=reverb", None),
            ("", None),
        ] {
            assert_eq!(wanted(&format!("{driver}\n{PUSHER}{REVERB}")).as_deref(), id, "{driver}");
        }
        assert_eq!(wanted("BROADCAST_CONNECTION=reverb\nREVERB_APP_ID=1"), None);
    }

    #[test]
    fn phps_publish_address_is_known() {
        let reverb = read(&format!("BROADCAST_CONNECTION=reverb\n{REVERB}"));
        let app = reverb.wanted().unwrap();
        let api = app.api.clone().unwrap();
        assert_eq!((api.to_string().as_str(), api.is_here()), ("http://localhost:8080", true));
        assert_eq!(app.server.as_deref(), Some("0.0.0.0:9000"));
        let pusher =
            read(&format!("BROADCAST_DRIVER=pusher\nPUSHER_HOST=ws.example.com\n{PUSHER}"));
        let api = pusher.wanted().unwrap().api.clone().unwrap();
        assert_eq!(
            (api.to_string().as_str(), api.is_here()),
            ("https://ws.example.com:443", false)
        );
    }

    #[test]
    fn both_names_for_one_application_are_one() {
        let text = "BROADCAST_CONNECTION=reverb\nREVERB_APP_ID=7\nREVERB_APP_KEY=k\nREVERB_APP_SECRET=s\n\
                    PUSHER_APP_ID=\"${REVERB_APP_ID}\"\nPUSHER_APP_KEY=\"${REVERB_APP_KEY}\"\nPUSHER_APP_SECRET=s\n";
        assert_eq!(read(text).apps.len(), 1);
    }
}
