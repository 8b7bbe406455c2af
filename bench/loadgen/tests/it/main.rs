//! The program as a bench runs it, against a server of a hundred lines that can be told to lose messages.

mod server;

use std::process::{Command, Output};

use serde_json::Value;

use crate::server::Server;

fn loadgen(server: &Server, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_loadgen"))
        .args(["--to", &server.address(), "--pid", &std::process::id().to_string()])
        .args(arguments)
        .output()
        .expect("cargo has built it")
}

fn report(server: &Server, arguments: &[&str]) -> Value {
    let output = loadgen(server, arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {said}"))
}

#[test]
fn every_delivery_of_an_open_loop_is_counted_and_timed() {
    let server = Server::start(0);

    let report =
        report(&server, &["fanout", "--n", "8", "--senders", "2", "--rate", "40", "--secs", "1"]);

    assert_eq!(report["sent"], 40);
    // Eight readers and the other sender.
    assert_eq!(report["expected"], 40 * 9);
    assert_eq!(report["delivered"], 40 * 9);
    assert_eq!(report["missing"], 0);
    assert_eq!(report["latency_ms"]["count"], 40 * 9);
    assert_eq!(report["lateness_ms"]["count"], 40);
    assert_eq!((&report["out_of_order"], &report["skipped"]), (&0.into(), &0.into()));
    assert_eq!(report["ended"], "everything was delivered");
}

#[test]
fn what_a_server_loses_is_in_the_report() {
    // Each tenth message reaches no client.
    let server = Server::start(10);

    let report = report(&server, &["fanout", "--n", "5", "--rate", "50", "--secs", "1"]);

    assert_eq!(report["sent"], 50);
    assert_eq!(report["expected"], 250);
    assert_eq!(report["delivered"], 225);
    assert_eq!(report["missing"], 25);
    // The last one that is lost has none behind it that would show it.
    assert_eq!(report["skipped"], 20);
    assert_eq!(report["ended"], "nothing more came");
}

#[test]
fn a_closed_loop_ends_although_the_server_loses_what_it_waits_for() {
    let server = Server::start(5);

    let report = report(&server, &["fanout", "--n", "4", "--window", "1", "--secs", "30"]);

    assert_eq!(report["sent"], 5, "the fifth was lost, and a window of one waits for it");
    assert_eq!(report["missing"], 4);
}

#[test]
fn several_threads_share_the_clients() {
    let server = Server::start(0);

    let report = report(
        &server,
        &[
            "--threads",
            "3",
            "fanout",
            "--n",
            "7",
            "--channels",
            "2",
            "--senders",
            "2",
            "--rate",
            "20",
            "--secs",
            "1",
        ],
    );

    // Four readers in one channel, three in the other, and each sender leaves itself out.
    assert_eq!(report["expected"], 10 * 4 + 10 * 3);
    assert_eq!(report["missing"], 0);
}

#[test]
fn an_avalanche_counts_those_who_came_through() {
    let server = Server::start(0);

    let report = report(&server, &["avalanche", "--n", "60"]);

    assert_eq!(report["opening"]["subscribed"], 60);
    assert_eq!(report["opening"]["failed"], 0);
    assert_eq!(report["success"], 1.0);
    assert_eq!(report["opening"]["subscribed_ms"]["count"], 60);
}

#[test]
fn idle_clients_hear_what_is_published_over_http() {
    let server = Server::start(0);

    let report = report(&server, &["idle", "--n", "12", "--hold", "0", "--bcast", "2"]);

    let broadcasts = report["broadcasts"].as_array().unwrap();
    assert_eq!(broadcasts.len(), 2);
    for broadcast in broadcasts {
        assert_eq!(broadcast["status"], 200);
        assert_eq!(broadcast["delivered"], 12);
        assert!(broadcast["last_ms"].as_f64().unwrap() > 0.0);
    }
    assert!(report["held"]["resident"].as_u64().unwrap() > 0);
}

#[test]
fn a_run_without_a_client_is_an_error() {
    let server = Server::start(0);
    let nobody = ["--app", "1:another-key:secret", "idle", "--n", "3", "--bcast", "0"];

    let output = loadgen(&server, &nobody);

    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no client is subscribed"));
    assert!(output.stdout.is_empty(), "half a report is none");
}

#[test]
fn misuse_is_told_apart_from_failure() {
    let server = Server::start(0);

    assert_eq!(
        loadgen(&server, &["fanout", "--window", "4", "--rate", "4"]).status.code(),
        Some(2)
    );
    assert_eq!(loadgen(&server, &["--app", "x", "idle"]).status.code(), Some(2));
}
