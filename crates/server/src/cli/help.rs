//! The commands, their flags and their help texts.

mod verify;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::ValueParser;
use clap::{Arg, ArgAction, Command, value_parser};

use self::verify::verify;
use super::offered::{of_application, of_channels, of_control, of_egress, of_lambda};
use crate::commands::top::Sort;
use crate::config::{KEYS, Key, paragraphs};

/// The whole command line, for parsing and for the reference page.
pub(crate) fn command() -> Command {
    Command::new("hearth")
        .bin_name("hearth")
        .version(env!("CARGO_PKG_VERSION"))
        .about("An application server for PHP")
        .long_about(
            "An application server for PHP. It serves HTTP, TLS and static files, and runs PHP in separate worker processes. \
             Run it in an application's folder: it detects Laravel, Symfony, a worker script or an index.php.",
        )
        .after_help("Try `hearth serve` in your application's folder, or `hearth help serve` for all flags.")
        .after_long_help(
            "Examples:\n  \
             hearth serve                 this folder's application, on http://127.0.0.1:8080\n  \
             hearth check                 what `hearth serve` would run, and its problems\n  \
             hearth verify                whether requests leave anything behind for others\n  \
             hearth status                the state of this application's server\n  \
             hearth reload                reload the application without dropping requests\n  \
             hearth php artisan migrate   the same PHP on the command line\n  \
             hearth channels              only channels, for clients of Pusher and Laravel Echo\n  \
             hearth egress                warm outgoing connections for every PHP on this machine\n\n\
             `hearth help serve` explains every flag. Exit status: 0 success, 1 failure, 2 wrong usage.",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(serve())
        .subcommand(status())
        .subcommand(reload())
        .subcommand(purge())
        .subcommand(upgrade())
        .subcommand(stop())
        .subcommand(check())
        .subcommand(verify())
        .subcommand(top())
        .subcommand(lambda())
        .subcommand(channels())
        .subcommand(egress())
        .subcommand(tls())
        .subcommand(php())
}

fn serve() -> Command {
    with_target(Command::new("serve"), of_application).about("Serve the application in a folder").after_long_help(
        "Examples:\n  \
             hearth serve\n  \
             hearth serve /srv/shop --listen 127.0.0.1:8080 --workers 4\n  \
             hearth serve --model worker --max-requests 1000 --admin 127.0.0.1:9180\n  \
             hearth serve public/worker.php --php 8.2\n  \
             hearth serve --watch                 in development: every change takes effect at once\n  \
             hearth serve --listen :443 --tls-cert fullchain.pem --tls-key key.pem\n  \
             hearth serve --listen https://:443 --listen http://:80 --acme shop.example.com --acme-accept-terms\n  \
             hearth serve --tls-local             in development: https://localhost:8080\n  \
             hearth serve --ini memory_limit=256M --ini opcache.validate_timestamps=0\n\n\
             Every setting is also a key of hearth.toml, with or without a flag: docs/reference/config.md.\n\
             Signals: TERM and INT finish running requests and exit; a second one exits at once. HUP reloads,\n\
             like `hearth reload`. USR1 opens the access log's file again.",
    )
}

fn reload() -> Command {
    with_target(Command::new("reload"), of_control)
        .about("Reload the application without dropping requests")
        .long_about(
            "Boots a new generation of workers beside the running one. It reads settings, code and symbolic links again, and has a new OPcache. \
             When it answers, it gets all new requests, and the old generation finishes its requests. If it fails, the old generation stays, \
             and this command prints the reason.",
        )
        .after_long_help(
            "Examples:\n  \
             hearth reload                          the server of this folder's application\n  \
             hearth reload /srv/shop/current\n  \
             hearth reload --run-dir /run/hearth\n\n\
             The signal HUP does the same. PATH is the path given to `hearth serve`. Exit status: 0 the new generation serves, \
             1 the old one continues, 2 wrong usage.",
        )
}

fn purge() -> Command {
    let named = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).action(ArgAction::Append).help(help)
    };
    with_target(Command::new("purge"), of_control)
        .about("Remove stored answers from the answer cache")
        .long_about(
            "Asks a running server over its control socket to remove answers that its answer cache (`http.cache`) has stored. \
             An answer that PHP makes at this moment is not stored either.",
        )
        .arg(named("tag", "NAME", "Remove answers with this tag; several tags are removed together"))
        .arg(named("url", "URL", "Remove the answers for this URL, such as https://shop.example.com/cart"))
        .arg(
            Arg::new("all")
                .long("all")
                .action(ArgAction::SetTrue)
                .help("Remove all stored answers"),
        )
        .group(clap::ArgGroup::new("what").args(["tag", "url", "all"]).required(true).multiple(true))
        .after_long_help(
            "Examples:\n  \
             hearth purge --tag news --tag front-page\n  \
             hearth purge /srv/shop/current --url https://shop.example.com/\n  \
             hearth purge --all\n\n\
             PATH is the path given to `hearth serve`. Exit status: 0 done, 1 no server runs or it has no answer cache, 2 wrong usage.",
        )
}

fn status() -> Command {
    with_target(Command::new("status"), of_control)
        .about("Show the state of a running server")
        .long_about(
            "Asks a running server over its control socket. Shows its problems, applications and addresses, rates and times, and every worker \
             with its current request.",
        )
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print the server's /status, one JSON object, instead of text"),
        )
        .after_long_help(
            "Examples:\n  \
             hearth status                          the server of this folder's application\n  \
             hearth status /srv/shop/current --json\n  \
             hearth status --run-dir /run/hearth\n\n\
             PATH is the path given to `hearth serve`. Exit status: 0 the server accepts requests, 1 it does not, or no server runs, \
             2 wrong usage.",
        )
}

fn upgrade() -> Command {
    with_target(Command::new("upgrade"), of_control)
        .about("Replace a running server with the installed program")
        .long_about(
            "Makes a running server start its program again with the same arguments: a newer version if one was installed, with all settings read \
             again. The new process gets the listening sockets, boots the application, and takes over when it is ready. The old process \
             finishes its requests and exits. No connection is refused. If the new process fails, the old one continues, and this command \
             prints the reason.",
        )
        .after_long_help(
            "Examples:\n  \
             hearth upgrade                         the server of this folder's application\n  \
             hearth upgrade --run-dir /run/hearth\n\n\
             The signal USR2 does the same. The new process has another process id: systemd is notified (MAINPID), other supervisors must\n\
             detect it. Exit status: 0 the new process serves, 1 the old one continues, 2 wrong usage.",
        )
}

fn stop() -> Command {
    with_target(Command::new("stop"), of_control)
        .about("Stop a running server after its current requests")
        .long_about(
            "Makes a running server accept no new requests, answer the accepted ones, close its connections and exit. Waits for that, and prints \
             on stderr what it waits for. The server ends requests that take longer than `server.shutdown_patience`.",
        )
        .arg(
            Arg::new("now")
                .long("now")
                .action(ArgAction::SetTrue)
                .help("Stop at once and end running requests"),
        )
        .after_long_help(
            "Examples:\n  \
             hearth stop\n  \
             hearth stop /srv/shop/current --now\n  \
             hearth stop --run-dir /run/hearth\n\n\
             The signal TERM does the same; a second one stops at once. PATH is the path given to `hearth serve`.\n\
             Exit status: 0 the server has stopped, 1 it has not, or no server runs, 2 wrong usage.",
        )
}

fn check() -> Command {
    with_target(Command::new("check"), of_application)
        .about("Show what would run, and all problems with it")
        .arg(
            Arg::new("lambda")
                .long("lambda")
                .action(ArgAction::SetTrue)
                .help("Also show what a cold start on AWS Lambda would spend time on"),
        )
        .arg(
            Arg::new("boot")
                .long("boot")
                .action(ArgAction::SetTrue)
                .help("Boot the application with two workers, measure how many fit into memory, and list what the boot reads: request data, clock, random numbers, and more"),
        )
        .arg(
            Arg::new("no-boot")
                .long("no-boot")
                .action(ArgAction::SetTrue)
                .conflicts_with("boot")
                .help("Run no code of the application; otherwise it is booted once, and asked for one page"),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print one JSON object instead of text"),
        )
        .after_long_help(
            "Examples:\n  \
             hearth check\n  \
             hearth check /srv/shop --model worker --json\n\n\
             Exit status: 0 no problem, 1 at least one, 2 wrong usage.",
        )
}

fn top() -> Command {
    Command::new("top")
        .about("Show the state of a running server in the terminal, live")
        .long_about(
            "Asks a running server once a second, by its control socket or at an admin address: what is wrong, rates and times, and every worker with the request that \
             it has. Without a terminal it prints one screen and ends.",
        )
        .arg(
            Arg::new("server")
                .value_name("PATH|ADDR")
                .help("The application's folder, or an admin address [default: `admin.listen` of the settings, else this folder, else 127.0.0.1:9180]"),
        )
        .arg(
            Arg::new("once")
                .long("once")
                .action(ArgAction::SetTrue)
                .help("Print one screen and exit"),
        )
        .arg(
            Arg::new("sort")
                .long("sort")
                .value_name("BY")
                .value_parser(clap::builder::EnumValueParser::<Sort>::new())
                .default_value("time")
                .help("Sort workers by this"),
        )
        .arg(config_file("hearth.toml in the current folder"))
        .after_long_help(
            "Keys: t, r, m, p sort by time, requests, memory, process id; q or Ctrl-C quits.\n\n\
             Examples:\n  \
             hearth top                   the server of this folder's application\n  \
             hearth top /srv/shop\n  \
             hearth top 127.0.0.1:9180 --sort memory\n  \
             HEARTH_ADMIN_TOKEN=… hearth top --once 10.0.0.7:9180\n\n\
             Exit status: 0 success, 1 no server answers, 2 wrong usage.",
        )
}

fn egress() -> Command {
    Command::new("egress")
        .about("Keep outgoing connections warm for every PHP on this machine")
        .long_about(
            "Runs only the egress broker. It makes outgoing HTTP calls for other processes (php-fpm, cron, the command line), over \
             connections that are already open. `hearth serve` includes a broker and needs no other.",
        )
        .arg(config_file("hearth.toml in the current folder"))
        .args(settings(of_egress))
        .after_long_help(
            "Examples:\n  \
             hearth egress --socket /run/hearth/egress.sock --group www-data --allow-user www-data\n  \
             hearth egress --socket /tmp/egress/egress.sock --admin 127.0.0.1:9181\n\n\
             Try it:\n  \
             curl --unix-socket /tmp/egress/egress.sock -H 'Hearth-Origin: https://www.php.net' http://hearth/\n\n\
             PHP finds it through the environment variable HEARTH_EGRESS, the path of the socket. An answer with Hearth-Declined means that \
             nothing was sent, and gives the reason: the caller then makes the call directly, as without a broker.\n\n\
             Every setting is also a key of hearth.toml, section `egress`: docs/reference/config.md.\n\
             Signals: TERM and INT finish running calls and exit; a second one exits at once.",
        )
}

fn tls() -> Command {
    Command::new("tls")
        .about("Trust Hearth's local certificate authority on this machine")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            Command::new("trust")
                .about("Print how to trust this machine's own authority")
                .long_about(
                    "Creates the authority of `hearth serve --tls-local` if it does not exist, and prints the commands that make systems and browsers \
                     trust it. It changes no settings itself.",
                )
                .arg(config_file("hearth.toml in the current folder")),
        )
        .after_long_help(
            "Examples:\n  \
             hearth serve --tls-local --listen 127.0.0.1:8443\n  \
             hearth tls trust",
        )
}

fn channels() -> Command {
    Command::new("channels")
        .about("Serve only channels for browsers, in the Pusher protocol")
        .long_about(
            "Runs only channels: clients of Pusher and Laravel Echo connect here, and any Pusher server library publishes here. \
             `hearth serve` includes channels, on the application's own port, and needs no other server for them.",
        )
        .arg(config_file("hearth.toml in the current folder"))
        .args(settings(of_channels))
        .after_long_help(
            "Examples:\n  \
             hearth channels                      in a Laravel application's folder: REVERB_* or PUSHER_* of its .env\n  \
             hearth channels --listen :6001 --app ID:KEY:SECRET\n  \
             hearth channels --listen :443 --tls-cert fullchain.pem --tls-key key.pem --app ID:KEY:SECRET\n\n\
             Every setting is also a key of hearth.toml, section `realtime`: docs/reference/config.md.\n\
             Signals: TERM and INT close all sockets gradually and exit; a second one exits at once.",
        )
}

fn php() -> Command {
    Command::new("php")
        .about("Run the same PHP on the command line")
        .long_about(
            "Runs the PHP command line program of the version that `hearth serve` would use (`php.version`), with all \
             arguments unchanged. `php.cli` selects another program.",
        )
        .disable_help_flag(true)
        .arg(
            Arg::new("arguments")
                .value_name("ARGS")
                .help("Arguments for PHP, passed on unchanged")
                .num_args(0..)
                .trailing_var_arg(true)
                .allow_hyphen_values(true)
                .value_parser(ValueParser::os_string()),
        )
        .after_help("Examples:\n  hearth php artisan migrate\n  hearth php -v")
}

fn lambda() -> Command {
    Command::new("lambda")
        .about("Serve the events of an AWS Lambda function: its custom runtime's bootstrap")
        .long_about(
            "Boots the application in Lambda's init phase, and gets events from the Runtime API. HTTP events of API Gateway, Function URLs and \
             load balancers are answered as `hearth serve` answers a request. Other events go to a function handler.",
        )
        .arg(
            Arg::new("path")
                .value_name("PATH|HANDLER")
                .value_parser(value_parser!(PathBuf))
                .help("The application's folder, or one script [default: the function's configured handler]")
                .long_help(
                    "The application's folder, or one script: a front controller, a worker script, or a function handler. \
                     A relative path starts at the current folder, or at LAMBDA_TASK_ROOT.\n\
                     [default: _HANDLER in LAMBDA_TASK_ROOT, else LAMBDA_TASK_ROOT, else this folder]",
                ),
        )
        .arg(
            Arg::new("emulate")
                .long("emulate")
                .value_name("ADDR")
                .value_parser(value_parser!(SocketAddr))
                .help("Emulate the Runtime API on this address, and accept events and HTTP requests there"),
        )
        .arg(config_file("hearth.toml in the application's folder"))
        .args(settings(of_lambda))
        .args_conflicts_with_subcommands(true)
        .subcommand(invoke())
        .after_long_help(
            "Examples:\n  \
             hearth lambda                                as `bootstrap` of a function: everything comes from the environment\n  \
             hearth lambda public/index.php --model request\n  \
             hearth lambda handler.php --emulate 127.0.0.1:9000\n  \
             hearth lambda --emulate 127.0.0.1:9000 --as apigw-v2\n  \
             hearth lambda invoke event.json              sends an event to the one above\n\n\
             Reads AWS_LAMBDA_RUNTIME_API, _HANDLER, LAMBDA_TASK_ROOT, AWS_LAMBDA_MAX_CONCURRENCY, AWS_LAMBDA_INITIALIZATION_TYPE,\n\
             AWS_LAMBDA_LOG_FORMAT and AWS_LAMBDA_LOG_LEVEL. Every setting is also a key of hearth.toml: docs/reference/config.md.",
        )
}

fn invoke() -> Command {
    Command::new("invoke")
        .about("Send an event to an emulated function, and print its result")
        .long_about(
            "Sends an event to `hearth lambda --emulate`, or to AWS's own Runtime Interface Emulator. Prints the result on stdout, and the end of \
             the function's log on stderr.",
        )
        .arg(
            Arg::new("event")
                .value_name("EVENT")
                .help("A file with the event, `-` for stdin, or the name of a sample [default: stdin]"),
        )
        .arg(
            Arg::new("to")
                .long("to")
                .value_name("ADDR")
                .default_value("127.0.0.1:9000")
                .help("Address of the emulator"),
        )
        .arg(
            Arg::new("sample")
                .long("sample")
                .value_name("NAME")
                .conflicts_with("event")
                .help("Print a sample event instead, to edit and send"),
        )
        .arg(
            Arg::new("samples")
                .long("samples")
                .action(ArgAction::SetTrue)
                .conflicts_with_all(["event", "sample"])
                .help("List the sample events instead"),
        )
        .after_long_help(
            "Examples:\n  \
             hearth lambda invoke event.json\n  \
             hearth lambda invoke sqs                    the sample of that name\n  \
             hearth lambda invoke --sample sqs > event.json\n  \
             echo '{}' | hearth lambda invoke --to 127.0.0.1:8080\n\n\
             Exit status: 0 the function returned, 1 it failed or cannot be reached, 2 wrong usage.",
        )
}

fn with_target(command: Command, offered: fn(&Key) -> bool) -> Command {
    command
        .arg(
            Arg::new("path")
                .value_name("PATH")
                .value_parser(value_parser!(PathBuf))
                .help("The application's folder, or one script [default: this folder]")
                .long_help(
                    "The application's folder, or one script: a front controller or a worker script.\n[default: this folder]",
                ),
        )
        .arg(config_file("hearth.toml in the application's folder"))
        .args(settings(offered))
}

fn config_file(default: &str) -> Arg {
    Arg::new("config")
        .long("config")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .help(format!("Settings file [default: {default}]"))
        .long_help(format!(
            "Settings file.\n[environment: HEARTH_CONFIG] [default: {default}, if there is one]"
        ))
}

/// Returns the flags of the settings that `offered` selects.
fn settings(offered: fn(&Key) -> bool) -> impl Iterator<Item = Arg> {
    let keys = KEYS.iter().filter(move |key| offered(key));
    keys.filter_map(|key| key.flag.map(|flag| setting(key, flag)))
}

/// Creates a flag from its row of the table.
fn setting(key: &'static Key, flag: &'static str) -> Arg {
    let doc = paragraphs(key.doc);
    let first = doc.lines().next().unwrap_or_default();
    let default =
        if key.default.is_empty() { String::new() } else { format!(" [default: {}]", key.default) };
    let long = format!(
        "{doc}\nTakes {}.\n[key: {}] [environment: {}]{default}",
        (key.expected)(),
        key.name,
        key.environment(),
    );
    let arg = match key.alone {
        // A path may follow it.
        Some(value) => {
            Arg::new(key.name).num_args(0..=1).require_equals(true).default_missing_value(value)
        }
        None => Arg::new(key.name),
    };
    arg.long(flag)
        .value_name(key.placeholder)
        .action(if key.repeats { ArgAction::Append } else { ArgAction::Set })
        .help(format!("{first}{default}"))
        .long_help(long)
        .allow_hyphen_values(false)
}
