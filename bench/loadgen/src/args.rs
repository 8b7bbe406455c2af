//! The command line, which is also the manual.

use std::net::SocketAddrV4;

use clap::{Args, Parser, Subcommand};

use crate::sign::App;

/// Thousands of Pusher clients from one core, and their cost for the server.
///
/// Prints one JSON object on stdout and a short account on stderr. Exit status 0: measured, losses are in the report;
/// 1: it could not be measured; 2: wrong usage.
///
/// A message carries the time at which it was sent (`@@<ns>:<sender and count>@@`). So latency, loss and order are
/// known for each delivery without parsing JSON. Latency runs from the write of the sender to the read of the receiver,
/// on one clock; what the generator was late by is reported beside it (`lateness_ms`) and not hidden in it.
///
/// Pin it to another core than the server's, and tell it the server's process:
///
///     taskset -c 0 hearth channels --listen 127.0.0.1:6001 --app 1:key:secret &
///     taskset -c 1 loadgen --app 1:key:secret --to 127.0.0.1:6001 --pid $! fanout --n 1000 --rate 100
#[derive(Debug, Parser)]
#[command(name = "loadgen", version, verbatim_doc_comment, disable_help_subcommand = true)]
pub(crate) struct Arguments {
    /// Address of the server's WebSocket port.
    #[arg(long, global = true, default_value = "127.0.0.1:6001")]
    pub(crate) to: SocketAddrV4,
    /// Address of the HTTP API, where it is another.
    #[arg(long, global = true)]
    pub(crate) api: Option<SocketAddrV4>,
    /// Application: ID:KEY:SECRET.
    #[arg(long, global = true, default_value = "1:key:secret", value_parser = App::parse)]
    pub(crate) app: App,
    /// Process of the server; more than one are added up. Without it there are no figures of its CPU time and memory.
    #[arg(long, global = true)]
    pub(crate) pid: Vec<u32>,
    /// Threads of the generator, each with its share of the clients.
    #[arg(long, global = true, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) threads: u32,
    /// Seconds that a client may take until it is subscribed.
    #[arg(long, global = true, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=120))]
    pub(crate) patience: u64,
    /// Receive buffer of each client's socket in bytes, as `SO_RCVBUF` takes it.
    #[arg(long, global = true, value_parser = clap::value_parser!(u32).range(1024..=1 << 24))]
    pub(crate) rcvbuf: Option<u32>,
    /// Start of the channels' names; `private-` and `presence-` are signed.
    #[arg(long, global = true)]
    pub(crate) channel: Option<String>,
    #[command(subcommand)]
    pub(crate) mode: Mode,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Mode {
    /// All connect at once, subscribe, and leave.
    ///
    /// Every `connect()` is called before the first answer is looked at, as when a server comes back and all clients with it.
    /// A client that is not subscribed within --patience counts as failed. `all_ms` runs from the first `connect()` to the last
    /// subscription.
    Avalanche(Avalanche),
    /// Idle clients: the cost of each, and the time until one event has reached all.
    ///
    /// Connects --inflight at a time, reads the server's memory, waits --hold seconds, then publishes --bcast events
    /// through the HTTP API, one after another.
    Idle(Idle),
    /// Some send, all others receive: latency, loss, and deliveries per CPU second.
    ///
    /// Senders are clients besides the --n receivers, subscribed to the channels they send on. Open loop: --rate
    /// messages a second in total, whatever arrives. Closed loop (--window): at most this many messages in transit,
    /// which finds the server's maximum. Senders on a private channel send client events; Pusher allows ten a second
    /// for each connection, so raise the server's limit, or --senders, or use --http.
    Fanout(Fanout),
}

#[derive(Debug, Args)]
pub(crate) struct Avalanche {
    /// Clients.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=200_000))]
    pub(crate) n: u32,
}

#[derive(Debug, Args)]
pub(crate) struct Idle {
    /// Clients.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=200_000))]
    pub(crate) n: u32,
    /// Clients that are connecting at a time, in all threads.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub(crate) inflight: u32,
    /// Seconds in which nothing happens.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub(crate) hold: u64,
    /// Events published to all.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub(crate) bcast: u32,
}

#[derive(Debug, Args)]
pub(crate) struct Fanout {
    /// Receivers.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=200_000))]
    pub(crate) n: u32,
    /// Channels, among which receivers and senders are dealt out.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) channels: u32,
    /// Clients that send, or with --http connections that publish.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) senders: u32,
    /// Messages a second, of all senders together.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) rate: u32,
    /// Closed loop: messages on their way at a time.
    #[arg(long, conflicts_with_all = ["rate", "http"], value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) window: Option<u32>,
    /// Seconds of sending.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) secs: u64,
    /// Bytes of each message's data.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(47..=1 << 20))]
    pub(crate) payload: u32,
    /// Publish through the HTTP API and not by client events.
    #[arg(long)]
    pub(crate) http: bool,
    /// Clients besides that subscribe and never read again.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub(crate) slow: u32,
    /// Clients that are connecting at a time, in all threads.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub(crate) inflight: u32,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed_and_every_mode_has_a_manual() {
        let command = Arguments::command();
        command.clone().debug_assert();

        for mode in command.get_subcommands() {
            assert!(mode.get_long_about().is_some(), "{} says nothing at length", mode.get_name());
            for argument in mode.get_arguments() {
                assert!(argument.get_help().is_some(), "--{} says nothing", argument.get_id());
            }
        }
    }

    #[test]
    fn a_closed_loop_has_no_rate() {
        let parse = |line: &str| Arguments::try_parse_from(line.split(' '));

        assert!(parse("loadgen fanout --window 4").is_ok());
        assert!(parse("loadgen fanout --window 4 --rate 9").is_err());
        assert!(parse("loadgen fanout --payload 3").is_err(), "no room for a stamp");
    }
}
