//! Tests against pebble, Let's Encrypt's test server: `go install
//! github.com/letsencrypt/pebble/v2/cmd/pebble@latest`. If it is neither in PATH nor named by PEBBLE, the test prints
//! that and checks nothing.

use std::path::PathBuf;
use std::process::Command;

use testkit::{Running, certificates, eventually};

use crate::support::{LIMIT, keep, names, options, port_80};

#[expect(clippy::disallowed_methods, reason = "a program of the machine that runs the tests")]
fn pebble() -> Option<PathBuf> {
    if let Ok(named) = std::env::var("PEBBLE") {
        return Some(named.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join("pebble")).find(|file| file.is_file())
}

#[test]
fn pebble_issues_a_certificate() {
    let Some(program) = pebble() else {
        eprintln!("pebble is not installed: looked at nothing");
        return;
    };
    let (shop, port_80) = port_80();
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = certificates().origin.write(folder.path(), "pebble");
    let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (listen, management) = (free(), free());
    let config = serde_json::json!({ "pebble": {
        "listenAddress": listen.to_string(),
        "managementListenAddress": management.to_string(),
        "certificate": certificate,
        "privateKey": key,
        "httpPort": port_80.port(),
        "tlsPort": 1,
        "ocspResponderURL": "",
        "externalAccountBindingRequired": false,
    }});
    let file = folder.path().join("pebble.json");
    std::fs::write(&file, config.to_string()).unwrap();
    let mut command = Command::new(program);
    command.arg("-config").arg(&file).env("PEBBLE_VA_NOSLEEP", "1");
    let _pebble = Running::start(&mut command);
    eventually("pebble listens", LIMIT, || std::net::TcpStream::connect(listen).is_ok());

    // It resolves names as this machine does, and `localhost` is one.
    let mut options = options(&format!("https://localhost:{}/dir", listen.port()), folder.path());
    options.domains = vec!["localhost".to_owned()];
    std::fs::write(&options.authorities, &certificates().authority.chain).unwrap();
    let keeping = keep(options, std::sync::Arc::clone(&shop));
    eventually("a certificate is shown", LIMIT, || !shop.shown.lock().unwrap().is_empty());
    assert_eq!(names(&shop.shown.lock().unwrap()[0].chain), ["localhost"]);
    assert_eq!(keeping.report().issued, 1);
}
