//! PostgreSQL through `PgBouncer`: connections are kept in session mode, and closed in modes that would lose the client's
//! settings.

use std::path::Path;

use testkit::{DATABASE_PASSWORD, Database, DatabaseKind, PgBouncer, eventually};

use super::{Shop, client, nothing_is_left_in, with_extensions};
use crate::hearth::{Hearth, LIMIT, Serve, Site};

#[test]
fn nothing_is_left_in_a_session_of_postgresql_behind_a_pooler() {
    let client = client("PdoPgsql");
    let database = Database::start(DatabaseKind::Postgres);
    let pooler = PgBouncer::start(&database, "session");
    let site = Site::empty().with_folder("databases");
    let shop = Shop::at(client, database, site, pooler.address(), |serve| serve);
    nothing_is_left_in(client, &shop);
}

/// Starts a worker script that keeps one connection, opened with `options`. Each request reports whether it was kept,
/// and its time zone.
fn hearth(host: &Path, options: &str, workers: usize) -> (Site, Hearth) {
    let script = format!(
        "<?php hearth_on_worker_start(function () {{\n\
         $GLOBALS['open'] = $open = fn () => new PDO('pgsql:host={};dbname=shop;{options}', 'visitor', '{DATABASE_PASSWORD}');\n\
         $GLOBALS['client'] = $open(); $GLOBALS['client']->exec(\"set time zone 'Europe/Berlin'\");\n\
         if (!hearth_keep_connection($GLOBALS['client'])) {{ $GLOBALS['client'] = null; }} }});\n\
         while (hearth_handle_request(function () {{ $client = $GLOBALS['client'] ?? $GLOBALS['open']();\n\
         $client->query('select pg_sleep(0.02)');\n\
         echo isset($GLOBALS['client']) ? 'kept ' : 'own ', $client->query('show client_encoding')->fetchColumn(); }})) {{ }}",
        host.display()
    );
    let site = Site::empty().with_file("worker.php", &script);
    let serve = Serve::new(site.path().join("worker.php")).model("snapshot");
    let hearth = with_extensions(serve).workers(workers).start();
    (site, hearth)
}

/// `PgBouncer` turns a start-up message into `SET` commands, which the reset undoes. PostgreSQL itself returns to the
/// start-up values.
#[test]
fn a_connection_is_kept_only_with_its_start_up_parameters() {
    let database = Database::start(DatabaseKind::Postgres);
    let pooler = PgBouncer::start(&database, "session");
    for (host, expected) in
        [(database.address().as_path(), "kept LATIN1"), (pooler.address(), "own LATIN1")]
    {
        let (_site, hearth) = hearth(host, "client_encoding=LATIN1", 1);
        for _ in 0..3 {
            assert_eq!(hearth.get("/").text(), expected, "{}", hearth.log().text());
        }
        if expected.starts_with("own") {
            hearth.log_line("does not bring back what the client said when it began");
        }
    }
}

#[test]
fn a_pooler_in_transaction_mode_is_noticed() {
    let database = Database::start(DatabaseKind::Postgres);
    let pooler = PgBouncer::start(&database, "transaction");
    let (_site, hearth) = hearth(pooler.address(), "", 3);
    eventually("a worker has detected the pooler's mode", LIMIT, || {
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| hearth.get("/"));
            }
        });
        hearth.log().text().contains("a pooler in transaction mode has changed the server")
    });
}
