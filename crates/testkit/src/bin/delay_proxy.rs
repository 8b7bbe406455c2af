//! The delay proxy as a program: `delay-proxy --to ADDRESS --round-trip MS [--slow-start] [--listen ADDRESS]`.
//!
//! Prints its address on a line and serves until it is killed.

use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use testkit::{DelayProxy, Distance};

fn main() -> ExitCode {
    let Some((listen, to, distance)) = arguments() else {
        complain(
            "usage: delay-proxy --to ADDRESS --round-trip MS [--slow-start] [--listen ADDRESS]",
        );
        return ExitCode::from(2);
    };
    let proxy = match DelayProxy::listen(listen, to, distance) {
        Ok(proxy) => proxy,
        Err(error) => {
            complain(&format!("cannot listen on {listen}: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{}", proxy.address()).and_then(|()| out.flush()).is_err() {
        return ExitCode::FAILURE;
    }
    drop(out);
    proxy.serve_forever();
    ExitCode::SUCCESS
}

fn arguments() -> Option<(SocketAddr, SocketAddr, Distance)> {
    let mut listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let (mut to, mut round_trip, mut slow_start) = (None, None, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        match name.as_str() {
            "--to" => to = Some(arguments.next()?.parse().ok()?),
            "--listen" => listen = arguments.next()?.parse().ok()?,
            "--round-trip" => {
                let milliseconds: f64 = arguments.next()?.parse().ok()?;
                round_trip = Some(Duration::try_from_secs_f64(milliseconds / 1000.0).ok()?);
            }
            "--slow-start" => slow_start = true,
            _ => return None,
        }
    }
    Some((listen, to?, Distance { round_trip: round_trip?, slow_start }))
}

#[expect(clippy::print_stderr, reason = "what a program says when it cannot run")]
fn complain(text: &str) {
    eprintln!("{text}");
}
