//! The scripted origin as a program, for PHP's tests, benches and hands: `scripted-origin [--listen ADDRESS] [--folder FOLDER]`.
//!
//! Prints `http://…` and `https://…` on a line each and serves the paths of `testkit::routes` until it is killed. Into FOLDER it writes
//! `authority.pem` (for `--cacert`), `client.pem` and `client.key` before it prints.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use testkit::{Origin, certificates, routes};

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
                complain("scripted-origin [--listen ADDRESS] [--folder FOLDER]");
                return ExitCode::from(2);
            }
        }
    }
    if let Some(folder) = folder {
        certificates().authority.write(&folder, "authority");
        certificates().client.write(&folder, "client");
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

#[expect(clippy::print_stderr, reason = "a program's usage")]
fn complain(usage: &str) {
    eprintln!("usage: {usage}");
}
