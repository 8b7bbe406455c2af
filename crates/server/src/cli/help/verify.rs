//! The command line of `hearth verify`.

use std::path::PathBuf;

use clap::{Arg, ArgAction, Command, value_parser};
use pool::Model;

use super::with_target;
use crate::cli::offered::of_verify;

pub(super) fn verify() -> Command {
    with_target(Command::new("verify"), of_verify)
        .about("Replay requests in several models, and show every answer that differs")
        .long_about(
            "Replays requests in `request`, which shuts PHP down after each of them, and in `snapshot` and `worker`, which keep the application booted. \
             It reports every answer that differs in status, header fields, body, session or files written, with the shortest sequence of \
             requests that causes it. What differs between two runs of `request` is masked: clocks, random tokens, session ids.\n\n\
             The requests come from a crawl of the application's links, from an access log, or from a HAR file of a browser. They are replayed one after \
             the other, in order and then shuffled. The application's own databases and files are used: run it on a copy, not in production.",
        )
        .arg(
            Arg::new("log")
                .long("log")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .conflicts_with("har")
                .help("Replay the requests of an access log: common, combined, or JSON lines"),
        )
        .arg(
            Arg::new("har")
                .long("har")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("Replay the requests of a HAR file, with their bodies; each model has its own cookies"),
        )
        .arg(
            Arg::new("models")
                .long("models")
                .value_name("NAMES")
                .value_parser(model)
                .value_delimiter(',')
                .default_value("snapshot,worker")
                .help("The models that are compared with `request`"),
        )
        .arg(
            Arg::new("requests")
                .long("requests")
                .value_name("N")
                .value_parser(value_parser!(u64).range(1..))
                .help("How many requests each model gets: the found ones again and again [default: each three times]"),
        )
        .arg(
            Arg::new("max-requests")
                .long("max-requests")
                .value_name("N")
                .value_parser(value_parser!(u64).range(1..))
                .default_value("200")
                .help("The most distinct requests; a crawl ends there"),
        )
        .arg(
            Arg::new("seed")
                .long("seed")
                .value_name("N")
                .value_parser(value_parser!(u64))
                .help("Shuffle by this number [default: 1]"),
        )
        .arg(
            Arg::new("reset")
                .long("reset")
                .value_name("COMMAND")
                .help("Put databases and files back before each run, by this shell command in the application's folder"),
        )
        .arg(
            Arg::new("ignore")
                .long("ignore")
                .value_name("PATTERN")
                .action(ArgAction::Append)
                .help("Files that are not compared, `*` for any text; `.git`, `node_modules` and `vendor` never are"),
        )
        .arg(
            Arg::new("unsafe")
                .long("unsafe")
                .action(ArgAction::SetTrue)
                .help("Replay POST and the like from a log, too, without their bodies; from a HAR file they always are"),
        )
        .arg(
            Arg::new("format")
                .long("format")
                .value_name("FORMAT")
                .value_parser(["text", "json"])
                .default_value("text")
                .help("The form of the report"),
        )
        .after_long_help(
            "Examples:\n  \
             hearth verify                                   this folder's application, by its links\n  \
             hearth verify --har session.har                 what a browser did, with its login and forms\n  \
             hearth verify /srv/shop --log access.log --requests 5000\n  \
             hearth verify --reset 'cp seed.sqlite database.sqlite' --models snapshot\n\n\
             Exit status: 0 no difference, 1 differences, 2 wrong usage, or it could not be run.",
        )
}

fn model(name: &str) -> Result<Model, String> {
    let ours =
        || Model::ALL.iter().filter(|model| !model.is_foreign() && **model != Model::Request);
    ours().copied().find(|model| model.name() == name).ok_or_else(|| {
        let names: Vec<&str> = ours().map(|model| model.name()).collect();
        format!("the models that can be compared are {}", names.join(", "))
    })
}
