//! The scripted origin as a program, for PHP tests, benches and manual use: `scripted-origin [--listen ADDRESS] [--folder FOLDER]`.
//!
//! Prints `http://…` and `https://…` on a line each and serves the paths of `testkit::routes` until it is killed. Before that, it writes
//! `authority.pem` (for `--cacert`), `client.pem` and `client.key` into FOLDER, and the URLs of further origins, one file each:
//! `http1.url` (TLS, HTTP/1.1 alone), and with faulty TLS `expired.url`, `other-host.url`, `stranger.url` (certificates), `stalls.url`
//! (the handshake stalls), `no-tls.url` (no TLS).

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use testkit::{Greeting, Origin, certificates, routes};

fn main() -> ExitCode {
    let mut address = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut folder = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next();
        match (name.as_str(), value) {
            ("--listen", Some(value)) if value.parse::<SocketAddr>().is_ok() => {
                address = value.parse().expect("looked at above");
            }
            ("--folder", Some(value)) => folder = Some(PathBuf::from(value)),
            _ => {
                complain("usage: scripted-origin [--listen ADDRESS] [--folder FOLDER]");
                return ExitCode::from(2);
            }
        }
    }
    let mut further = Vec::new();
    if let Some(folder) = folder {
        certificates().authority.write(&folder, "authority");
        certificates().client.write(&folder, "client");
        for (name, origin) in others() {
            if let Err(error) = fs::write(folder.join(format!("{name}.url")), origin.url("")) {
                complain(&format!("{}: {error}", folder.display()));
                return ExitCode::FAILURE;
            }
            further.push(origin);
        }
    }
    let plain = Origin::setup().script(routes).listen(address).start();
    let mut secure_address = address;
    if address.port() != 0 {
        secure_address.set_port(address.port() + 1);
    }
    let secure = Origin::setup().tls(&certificates().origin).script(routes);
    let secure = secure.listen(secure_address).start();
    let mut out = std::io::stdout().lock();
    let printed = writeln!(out, "{}\n{}", plain.url(""), secure.url("")).and_then(|()| out.flush());
    if printed.is_err() {
        return ExitCode::FAILURE;
    }
    drop(out);
    plain.serve_forever();
    ExitCode::SUCCESS
}

/// Further origins, and the names of their files.
fn others() -> [(&'static str, Origin); 6] {
    let shows = |certificate| Origin::setup().tls(certificate).script(routes).start();
    let greets = |greeting: fn() -> Greeting| {
        Origin::setup().tls(&certificates().origin).greet(move |_| greeting()).start()
    };
    let alone = Origin::setup().tls(&certificates().origin).alpn(&["http/1.1"]);
    [
        ("http1", alone.script(routes).start()),
        ("expired", shows(&certificates().expired)),
        ("other-host", shows(&certificates().other_host)),
        ("stranger", shows(&certificates().stranger)),
        ("stalls", greets(|| Greeting::Silence)),
        ("no-tls", greets(|| Greeting::Rubbish(b"220 not what you think\r\n".to_vec()))),
    ]
}

#[expect(clippy::print_stderr, reason = "a program's usage and failures")]
fn complain(what: &str) {
    eprintln!("{what}");
}
