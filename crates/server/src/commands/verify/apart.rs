//! The settings of the runs: those of the application, without what would answer or refuse requests before PHP gets them.
//!
//! Invariants
//! - A server that uses the same settings notices nothing: a loopback port, no folder and no log of its own.
//! - Every answer that is compared is PHP's or a file's.

use std::net::SocketAddr;

use crate::config::{self, Auto, Settings};

/// Returns the settings for the runs, and a note that names the rules that were set and are not applied.
pub(super) fn apart(mut settings: Settings) -> (Settings, Option<String>) {
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    settings.http.listen =
        vec![config::Listen { tls: Some(false), address: config::Address::Tcp(address) }];
    settings.http.access_log = None;
    settings.realtime.lookup = None;
    settings.server.run_dir = Auto(None);
    settings.egress.enabled = false;
    settings.applications.clear();
    settings.processes.clear();
    let http = &mut settings.http;
    // The client of the runs has no certificate and sends no line of a balancer.
    let rules = [
        ("client_ca", http.client_ca.take().is_some()),
        ("rate_limits", !std::mem::take(&mut http.rate_limits).is_empty()),
        ("basic_auth", !std::mem::take(&mut http.basic_auth).0.is_empty()),
        ("redirects", !std::mem::take(&mut http.redirects).0.is_empty()),
        ("proxy_protocol", std::mem::take(&mut http.proxy_protocol)),
        ("cache", std::mem::take(&mut http.cache)),
    ];
    http.client_crl = None;
    http.cache_disk = None;
    let set: Vec<String> = rules
        .into_iter()
        .filter(|(_, is_set)| *is_set)
        .map(|(name, _)| format!("`http.{name}`"))
        .collect();
    let note = (!set.is_empty())
        .then(|| format!("not applied, so that PHP gets every request: {}", set.join(", ")));
    (settings, note)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Environment, load};

    #[test]
    fn what_answers_or_refuses_requests_before_php_is_not_applied_and_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let settings = |text: &str| {
            std::fs::write(folder.path().join("hearth.toml"), text).unwrap();
            load(folder.path(), None, Vec::new(), &Environment::for_test(folder.path(), &[]))
                .unwrap()
        };
        let text = "[http]\nlisten = \":8443\"\ntls_cert = \"cert\"\ntls_key = \"key\"\nclient_ca = \"ca\"\nclient_crl = \"crl\"\nproxy_protocol = true\n\
                    cache = true\ncache_disk = \"disk\"\nrate_limits = [\"/ 2/m\"]\nbasic_auth = { \"/\" = \"users\" }\nredirects = { \"/a\" = \"/b\" }\n";
        let (without, note) = apart(settings(text));
        let note = note.unwrap();
        let names =
            ["client_ca", "rate_limits", "basic_auth", "redirects", "proxy_protocol", "cache"];
        let names = names.map(|name| format!("`http.{name}`")).join(", ");
        assert_eq!(note, format!("not applied, so that PHP gets every request: {names}"));
        let http = without.http;
        assert!(http.rate_limits.is_empty() && http.basic_auth.0.is_empty());
        assert!(http.redirects.0.is_empty());
        assert!(!http.cache && !http.proxy_protocol);
        assert_eq!((http.client_ca, http.client_crl, http.cache_disk), (None, None, None));
        assert_eq!(apart(settings("[http]\ncache_disk = \"disk\"\n")).1, None, "no cache");
        let (kept, note) = apart(settings("[http.headers]\nX-Frame-Options = \"DENY\"\n"));
        assert_eq!((kept.http.headers.0.len(), note), (1, None), "it changes answers of PHP");
    }
}
