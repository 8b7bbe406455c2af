//! `--dev`: the values that development mode gives to settings that nothing else sets.

use super::{ConfigError, KEYS, Key, Raw, Settings, Sources, value::Wanted};

/// The name of the switch, and where its values come from in messages.
const SWITCH: &str = "server.dev";
const ORIGIN: &str = "--dev";

/// Settings and their values in development mode. Each is weaker than a file, a variable and a flag.
const PRESET: &[(&str, &str)] = &[
    ("server.watch", "on"),
    ("http.access_log", "short"),
    // A debugger that waits at a breakpoint is no hanging request.
    ("php.request_timeout", "off"),
    // An edit with an error is shown by PHP itself.
    ("php.reload_check", "off"),
    (
        "php.ini",
        "display_errors=1;display_startup_errors=1;error_reporting=32767;opcache.validate_timestamps=1;opcache.revalidate_freq=0",
    ),
];

/// Returns the setting of this name, as the table writes it.
fn key(name: &str) -> &'static Key {
    KEYS.iter().find(|key| key.name == name).expect("the table has it")
}

/// Adds the values of development mode, if it is on.
pub(super) fn preset(sources: &mut Sources) -> Result<(), ConfigError> {
    if sources.value::<Wanted>(key(SWITCH))?.0 {
        let values =
            PRESET.iter().map(|(name, value)| (key(name).name, ORIGIN, Raw::Text((*value).into())));
        sources.platform.extend(values);
    }
    Ok(())
}

impl Settings {
    /// Returns whether nothing names the addresses to listen on.
    pub(crate) fn listens_by_default(&self) -> bool {
        self.written.is_unset(key("http.listen"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Environment, load};
    use super::*;

    fn settings(flags: &[(&'static str, &str)], variables: &[(&str, &str)]) -> Settings {
        let folder = tempfile::tempdir().unwrap();
        let environment = Environment::for_test(folder.path(), variables);
        let flags = flags.iter().map(|(name, value)| (*name, Raw::Text((*value).into()))).collect();
        load(folder.path(), None, flags, &environment).unwrap()
    }

    #[test]
    fn development_mode_sets_only_what_nothing_else_sets() {
        let dev = settings(&[("server.dev", "on")], &[]);
        assert!(dev.server.watch.0 && dev.http.access_log.is_some());
        assert_eq!(dev.php.request_timeout, None);
        assert!(dev.listens_by_default());
        let ini = |settings: &Settings, name: &str| {
            settings.php.ini.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone())
        };
        assert_eq!(ini(&dev, "display_errors").as_deref(), Some("1"));

        let flags =
            [("server.dev", "on"), ("server.watch", "off"), ("php.ini", "display_errors=0")];
        let dev = settings(
            &flags,
            &[("HEARTH_HTTP_LISTEN", "127.0.0.1:1"), ("HEARTH_PHP_REQUEST_TIMEOUT", "5s")],
        );
        assert!(!dev.server.watch.0 && !dev.listens_by_default());
        assert_eq!(dev.php.request_timeout, Some(std::time::Duration::from_secs(5)));
        assert_eq!(ini(&dev, "display_errors").as_deref(), Some("0"));
        assert_eq!(ini(&dev, "opcache.revalidate_freq").as_deref(), Some("0"));

        let without = settings(&[], &[]);
        assert!(!without.server.watch.0 && without.http.access_log.is_none());
        assert_eq!(ini(&without, "display_errors"), None);
    }
}
