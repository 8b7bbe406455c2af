//! The settings that a reload applies, and those that stay for as long as the server runs.
//!
//! Invariants
//! - What a reload does not apply is named, at that reload and at every later one, until a restart.

use std::fmt;

use super::{KEYS, Key, NamedApplication, Raw, Settings, Sources};

/// Settings of the HTTP front that belong to a release of the application.
const HTTP: &[&str] = &[
    "http.document_root",
    "http.front_controller",
    "http.static_files",
    "http.static_cache_control",
    "http.precompressed",
    "http.sendfile",
    "http.rate_limits",
    "http.basic_auth",
    "http.redirects",
    "http.headers",
    "http.tls_cert",
    "http.tls_key",
    "http.client_ca",
    "http.client_crl",
    "http.client_certificates",
];

/// The written values of each setting, in the order of [`KEYS`]: those of every source that names it.
#[derive(Clone)]
pub(crate) struct Written(Vec<Vec<Raw>>);

impl fmt::Debug for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // There are secrets among them.
        f.write_str("Written")
    }
}

impl Written {
    pub(super) fn of(sources: &Sources) -> Self {
        Self(KEYS.iter().map(|key| sources.written(key)).collect())
    }

    /// Returns whether no source names this setting.
    pub(super) fn is_unset(&self, key: &Key) -> bool {
        KEYS.iter().zip(&self.0).any(|(one, written)| one.name == key.name && written.is_empty())
    }
}

impl Key {
    /// A reload applies it. The others need a restart.
    pub(crate) fn is_reloaded(&self) -> bool {
        let whole =
            matches!(self.section_and_key().0, "php" | "sandbox" | "databases" | "websockets");
        // Sockets and sessions outlive generations, and PHP's user decides which privileges a server keeps at the start.
        let outlives = ["databases.connectors", "php.user", "php.group"];
        (whole && !outlives.contains(&self.name)) || HTTP.contains(&self.name)
    }
}

impl Settings {
    /// Returns these settings for a server that runs with `old` ones: values that need a restart stay as they are. Also returns the names
    /// of those settings.
    pub(crate) fn in_place_of(self, old: &Self) -> (Self, Vec<&'static str>) {
        // A listener speaks TLS for as long as it lives, or never.
        let same_tls = self.has_tls() == old.has_tls();
        let applications = self.applications.into_iter().map(|application| {
            let (user, group) = (application.settings.php.user, application.settings.php.group);
            let mut settings = application.settings.in_place_of(old).0;
            if application.names_user {
                (settings.php.user, settings.php.group) = (user, group);
            }
            NamedApplication { settings, ..application }
        });
        let applications = applications.collect();
        let mut written = self.written;
        let mut settings = Self {
            php: super::keys::Php { user: old.php.user, group: old.php.group, ..self.php },
            sandbox: self.sandbox,
            websockets: self.websockets,
            databases: super::keys::Databases {
                connectors: old.databases.connectors.clone(),
                ..self.databases
            },
            http: super::keys::Http {
                document_root: self.http.document_root,
                front_controller: self.http.front_controller,
                static_files: self.http.static_files,
                static_cache_control: self.http.static_cache_control,
                precompressed: self.http.precompressed,
                sendfile: self.http.sendfile,
                rate_limits: self.http.rate_limits,
                basic_auth: self.http.basic_auth,
                redirects: self.http.redirects,
                headers: self.http.headers,
                ..old.http.clone()
            },
            applications,
            processes: self.processes,
            ..old.clone()
        };
        if same_tls {
            settings.http.tls_cert = self.http.tls_cert;
            settings.http.tls_key = self.http.tls_key;
        }
        // Listeners ask clients for certificates for as long as they live, or never.
        let same_asking = self.http.client_ca.is_some() == old.http.client_ca.is_some();
        if same_asking {
            settings.http.client_ca = self.http.client_ca;
            settings.http.client_crl = self.http.client_crl;
            settings.http.client_certificates = self.http.client_certificates;
        }
        let mut unapplied = Vec::new();
        for ((key, new), old) in KEYS.iter().zip(&mut written.0).zip(&old.written.0) {
            let tls = ["http.tls_cert", "http.tls_key"].contains(&key.name);
            let asking = key.name.starts_with("http.client_c");
            let applies = (same_tls || !tls) && (same_asking || !asking);
            if new != old && !(key.is_reloaded() && applies) {
                unapplied.push(key.name);
                new.clone_from(old);
            }
        }
        settings.written = written;
        (settings, unapplied)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Environment, load};

    fn settings(toml: &str) -> Settings {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("hearth.toml"), toml).unwrap();
        let environment = Environment::for_test(folder.path(), &[]);
        load(folder.path(), None, Vec::new(), &environment).unwrap()
    }

    #[test]
    fn release_settings_apply_and_the_rest_need_a_restart() {
        let old = settings("[http]\nlisten = \"127.0.0.1:1\"\n[php]\nworkers = 1");
        let toml = "[http]\nlisten = \"127.0.0.1:2\"\nstatic_files = false\n[php]\nworkers = 3\n[log]\nlevel = \"debug\"";
        let (first, unapplied) = settings(toml).in_place_of(&old);
        assert_eq!(unapplied, ["http.listen", "log.level"]);
        assert_eq!(first.php.workers.0.unwrap().get(), 3);
        assert!(!first.http.static_files);
        assert_eq!(first.log.level.0, "info");
        let (_, still) = settings(toml).in_place_of(&first);
        assert_eq!(still, unapplied);
        let back = settings("[http]\nlisten = \"127.0.0.1:1\"");
        assert!(back.in_place_of(&first).1.is_empty());
    }

    #[test]
    fn the_guide_names_what_a_reload_applies_and_what_needs_a_restart() {
        let page = include_str!("../../../../docs/guide/deploy.md");
        let (_, rest) = page.split_once("## What a reload changes").unwrap();
        let rows = rest.lines().skip(3).take_while(|line| line.starts_with('|'));
        let (applied, restart): (String, String) = rows
            .map(|row| {
                let mut cells = row.split('|').skip(1).map(str::to_owned);
                (cells.next().unwrap(), cells.next().unwrap())
            })
            .unzip();
        // `hearth serve` has no use for two sections.
        let served = |key: &&Key| !matches!(key.section_and_key().0, "lambda" | "emulator");
        for key in KEYS.iter().filter(served) {
            let (section, name) = key.section_and_key();
            let named = |cells: &str| {
                let short = section == "http" && cells.contains(&format!("`{name}`"));
                short || cells.contains(&format!("`{}`", key.name))
            };
            let in_section = |cells: &str| cells.contains(&format!("`[{section}]`"));
            if key.is_reloaded() {
                let listed = if section == "http" { named(&applied) } else { in_section(&applied) };
                assert!(listed && !named(&restart), "{} is read again", key.name);
            } else {
                let listed = named(&restart) || in_section(&restart);
                assert!(listed && !named(&applied), "{} needs a restart", key.name);
            }
        }
    }

    #[test]
    fn an_applications_user_overrides_the_servers_user() {
        let toml = |main: u32, shop: &str| {
            format!(
                "[php]\nuser = {main}\ngroup = 7\n[applications.blog]\nhosts = [\"blog.test\"]\n\
                 [applications.shop]\nhosts = [\"shop.test\"]\n[applications.shop.php]\n{shop}\n"
            )
        };
        let users = |settings: &Settings| {
            let php = settings.applications.iter().map(|application| &application.settings.php);
            php.map(|php| (php.user.map(|user| user.0), php.group.0.map(|group| group.0)))
                .collect::<Vec<_>>()
        };
        let old = settings(&toml(1, "user = 2"));
        assert_eq!(users(&old), [(Some(1), Some(7)), (Some(2), None)]);
        let (new, unapplied) = settings(&toml(3, "user = 4\ngroup = 8")).in_place_of(&old);
        assert_eq!(unapplied, ["php.user"]);
        assert_eq!(users(&new), [(Some(1), Some(7)), (Some(4), Some(8))]);
        let (off, _) = settings(&toml(1, "user = \"off\"")).in_place_of(&new);
        assert_eq!(users(&off), [(Some(1), Some(7)), (None, None)]);
    }

    #[test]
    fn a_reload_changes_certificates_and_cannot_toggle_tls() {
        let pair = |name: &str| {
            settings(&format!("[http]\ntls_cert = \"{name}.pem\"\ntls_key = \"{name}.key\""))
        };
        let (changed, unapplied) = pair("b").in_place_of(&pair("a"));
        assert!(unapplied.is_empty());
        assert!(changed.http.certificate_files()[0].key.ends_with("b.key"));
        let (kept, unapplied) = settings("").in_place_of(&pair("a"));
        assert_eq!(unapplied, ["http.tls_cert", "http.tls_key"]);
        assert!(kept.http.certificate_files()[0].certificate.ends_with("a.pem"));
    }
}
