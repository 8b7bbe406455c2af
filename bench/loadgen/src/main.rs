//! The load generator of the benches `realtime` and `avalanche`: thousands of Pusher clients that cost less than the server they
//! measure. `loadgen --help` is its manual.
//!
//! Promises
//! - Bounded in count and time: every mode ends, even if the server does not answer.
//! - Honest about loss: the report has the deliveries that did not arrive, and the generator's own delays.
//! - Knows nothing of any server: it speaks the Pusher protocol and looks at /proc.

mod args;
mod clients;
mod clock;
mod frame;
mod mode;
mod process;
mod publisher;
mod sign;
mod stamp;
mod tally;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;

use crate::args::{Arguments, Mode};

/// Descriptors that are not clients: the standard ones, epoll, publishers.
const OTHERS: u64 = 600;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let measured = descriptors(&arguments).and_then(|()| match &arguments.mode {
        Mode::Avalanche(mode) => mode::avalanche::run(&arguments, mode),
        Mode::Idle(mode) => mode::idle::run(&arguments, mode),
        Mode::Fanout(mode) => mode::fanout::run(&arguments, mode),
    });
    match measured {
        Ok(report) => {
            say(&account(&report));
            match writeln!(std::io::stdout(), "{report}") {
                Ok(()) => ExitCode::SUCCESS,
                Err(_) => ExitCode::FAILURE,
            }
        }
        Err(why) => {
            say(&format!("error: {why}"));
            ExitCode::FAILURE
        }
    }
}

/// Raises the limit of open files as far as it goes; fails when that is not far enough.
fn descriptors(arguments: &Arguments) -> Result<(), String> {
    let clients = match &arguments.mode {
        Mode::Avalanche(mode) => u64::from(mode.n),
        Mode::Idle(mode) => u64::from(mode.n),
        Mode::Fanout(mode) => u64::from(mode.n) + u64::from(mode.slow) + u64::from(mode.senders),
    };
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
        .map_err(|errno| format!("the limit of open files cannot be raised: {errno}"))?;
    match limit.maximum {
        Some(most) if most < clients + OTHERS.min(most / 50) => Err(format!(
            "{clients} clients need more than the {most} open files that a process may have here (hint: ulimit -Hn)"
        )),
        _ => Ok(()),
    }
}

/// The report in a few lines for people.
fn account(report: &Value) -> String {
    let at = |pointer: &str| {
        report
            .pointer(pointer)
            .filter(|value| !value.is_null())
            .map_or_else(|| "-".to_owned(), Value::to_string)
    };
    let mut lines = vec![format!(
        "{} subscribed, {} failed {}, dropped {}, errors {}",
        at("/opening/subscribed"),
        at("/opening/failed"),
        at("/opening/failures"),
        at("/opening/dropped"),
        at("/opening/errors")
    )];
    match report["mode"].as_str() {
        Some("fanout") => {
            lines.push(format!(
                "{} of {} delivered ({} missing, {} out of order) in {} s; {} per CPU second, {} CPU s of the server",
                at("/delivered"),
                at("/expected"),
                at("/missing"),
                at("/out_of_order"),
                at("/seconds"),
                at("/server/delivered_per_cpu_s"),
                at("/server/cpu_s")
            ));
            lines.push(format!(
                "latency ms: p50 {} p95 {} p99 {} max {}; senders late p99 {} ms; {} deliveries per read",
                at("/latency_ms/p50"),
                at("/latency_ms/p95"),
                at("/latency_ms/p99"),
                at("/latency_ms/max"),
                at("/lateness_ms/p99"),
                at("/generator/deliveries_per_read")
            ));
        }
        Some("idle") => lines.push(format!(
            "{} bytes and {} us CPU a connection; {} ms to open all; broadcasts {}",
            at("/server/resident_each"),
            at("/server/cpu_us_each"),
            at("/opened_ms"),
            at("/broadcasts")
        )),
        _ => lines.push(format!(
            "{} ms for all; subscribed p50 {} p95 {} max {} ms; {} us CPU a connection, highest memory {} bytes",
            at("/all_ms"),
            at("/opening/subscribed_ms/p50"),
            at("/opening/subscribed_ms/p95"),
            at("/opening/subscribed_ms/max"),
            at("/server/cpu_us_each"),
            at("/server/highest")
        )),
    }
    lines.join("\n")
}

#[expect(clippy::print_stderr, reason = "what a program says beside its data")]
fn say(text: &str) {
    eprintln!("{text}");
}
