//! What a server does only at a login: settings of the account and of the client, event triggers, reported settings. A
//! session that is reset has them as a new one has, or it is closed.

use serde_json::{Value, json};
use testkit::{DATABASE_PASSWORD, Database, DatabaseKind, certificates};

use super::with_extensions;
use crate::hearth::{Hearth, Serve, Site};

/// Starts a worker script that defines `open()` to connect to a server, and answers requests with `answer`. A connection
/// in `$GLOBALS['client']` is kept if that is possible.
fn start(site: &Site, keeps: bool, open: &str, answer: &str) -> Hearth {
    let keep = if keeps {
        "hearth_on_worker_start(function () { $GLOBALS['client'] = open();\n\
         if (!($GLOBALS['kept'] = hearth_keep_connection($GLOBALS['client']))) { $GLOBALS['client'] = null; } });\n"
    } else {
        ""
    };
    site.write(
        "worker.php",
        &format!(
            "<?php function open() {{ {open} }}\n{keep}\
             while (hearth_handle_request(function () {{ $client = $GLOBALS['client'] ?? open(); {answer} }})) {{ }}"
        ),
    );
    let serve = Serve::new(site.path().join("worker.php")).model("snapshot");
    with_extensions(serve).workers(1).start()
}

/// Returns a site with a connector that has one session of the server.
fn site_with_connector(database: &Database, scheme: &str) -> Site {
    let site = Site::empty();
    certificates().authority.write(site.path(), "authority");
    let (host, port) = (Database::HOST, database.port());
    let password = DATABASE_PASSWORD.replace(' ', "%20");
    site.write(
        "hearth.toml",
        &format!(
            "[databases.connectors.main]\nurl = '{scheme}://visitor:{password}@{host}:{port}/shop'\n\
             sslrootcert = 'authority.pem'\nsessions = 1\nwait = '30s'\n"
        ),
    );
    site
}

/// Connects as an interactive client that ignores spaces behind function names.
fn open_mariadb(socket: &str) -> String {
    format!(
        "mysqli_report(MYSQLI_REPORT_ERROR | MYSQLI_REPORT_STRICT); $client = mysqli_init();\n\
         $client->real_connect('localhost', 'visitor', '{DATABASE_PASSWORD}', 'shop', 0, {socket},\n\
         MYSQLI_CLIENT_INTERACTIVE | MYSQLI_CLIENT_IGNORE_SPACE); return $client;"
    )
}

/// Answers with the session's number and all settings but its name and clock, then changes some of them.
const MARIADB_ANSWER: &str = "\
    if (isset($_GET['prepare'])) {\n\
        $client->query('set global interactive_timeout=1234, global wait_timeout=777');\n\
        $client->query('alter user current_user() with max_statement_time 7.5');\n\
    }\n\
    if (isset($_GET['fresh'])) { $client = open(); }\n\
    $settings = array_column($client->query('show session variables')->fetch_all(), 1, 0);\n\
    foreach (['timestamp', 'rand_seed1', 'rand_seed2', 'pseudo_thread_id'] as $own) { unset($settings[$own]); }\n\
    $count = $client->query('select count (*) from information_schema.schemata')->num_rows;\n\
    $id = $client->thread_id;\n\
    $client->query(\"set max_statement_time=1, wait_timeout=5, sql_mode=''\");\n\
    echo json_encode(['kept' => $GLOBALS['kept'] ?? null, 'id' => $id, 'rows' => $count, 'settings' => $settings]);";

fn has_the_settings_of_its_login(answer: &Value) {
    let settings = &answer["settings"];
    assert_eq!(settings["wait_timeout"], "1234", "{settings}");
    assert_eq!(settings["max_statement_time"], "7.500000", "{settings}");
    let mode = settings["sql_mode"].as_str().unwrap();
    assert!(mode.contains("IGNORE_SPACE") && mode.contains("STRICT_TRANS_TABLES"), "{mode}");
    assert_eq!(answer["rows"], 1);
}

#[test]
fn a_kept_session_has_the_settings_that_its_login_made() {
    let database = Database::start(DatabaseKind::MariaDb);
    let open = open_mariadb(&format!("'{}'", database.address().display()));
    let site = Site::empty();
    start(&site, false, &open, MARIADB_ANSWER).get("/?prepare").json();
    let hearth = start(&site, true, &open, MARIADB_ANSWER);
    let fresh = hearth.get("/?fresh").json();
    has_the_settings_of_its_login(&fresh);
    let first = hearth.get("/").json();
    assert_eq!(first["kept"], true, "{}", hearth.log().text());
    for _ in 0..3 {
        let answer = hearth.get("/").json();
        assert_eq!(answer["id"], first["id"], "{}", hearth.log().text());
        assert_eq!(answer["settings"], fresh["settings"]);
        has_the_settings_of_its_login(&answer);
    }
}

#[test]
fn a_shared_session_has_the_settings_that_its_login_made() {
    let database = Database::with_tls(DatabaseKind::MariaDb, &certificates().origin, false);
    let site = site_with_connector(&database, "mysql");
    let open = open_mariadb("getenv('HEARTH_DATABASE_MAIN')");
    let hearth = start(&site, false, &open, MARIADB_ANSWER);
    hearth.get("/?prepare").json();
    let fresh = hearth.get("/").json();
    has_the_settings_of_its_login(&fresh);
    for _ in 0..3 {
        assert_eq!(hearth.get("/").json(), fresh, "the same session: {}", hearth.log().text());
    }
}

fn open_postgres(host: &str) -> String {
    format!(
        "return pg_connect('host=' . {host} . ' user=visitor dbname=shop password=\\'{DATABASE_PASSWORD}\\'', PGSQL_CONNECT_FORCE_NEW);"
    )
}

/// Answers with the session's process, the number of logins and the results of the statement `say`.
const POSTGRES_ANSWER: &str = "\
    if (isset($_GET['say'])) { pg_query($client, $_GET['say']); }\n\
    $one = fn (string $sql) => pg_fetch_result(pg_query($client, $sql), 0, 0);\n\
    while (isset($_GET['until']) && $one('show timezone') !== $_GET['until']) { usleep(1000); }\n\
    echo json_encode(['kept' => $GLOBALS['kept'] ?? null, 'pid' => $one('select pg_backend_pid()'),\n\
    'version' => (int) $one('show server_version_num'), 'logins' => (int) $one('select count(*) from shop.things'),\n\
    'told' => pg_parameter_status($client, 'TimeZone'), 'is' => $one('show timezone')]);";

fn say(hearth: &Hearth, sql: &str) -> Value {
    let encode = |byte: u8| format!("%{byte:02x}");
    let sql: String = sql.bytes().map(encode).collect();
    hearth.get(&format!("/?say={sql}")).json()
}

/// A trigger that counts logins. Superusers' logins run it, too.
const TRIGGER: &str = "create function shop.note() returns event_trigger language plpgsql as \
    $$ begin insert into shop.things values (1); end $$; \
    create event trigger note on login execute function shop.note()";

/// Returns whether the server has login event triggers. Debian 12's PostgreSQL 15 has none.
fn has_login_triggers(answer: &Value) -> bool {
    answer["version"].as_u64().unwrap() >= 170_000
}

#[test]
fn a_database_with_a_login_event_trigger_is_not_kept() {
    let database = Database::start(DatabaseKind::Postgres);
    let open = open_postgres(&format!("'{}'", database.address().display()));
    let site = Site::empty();
    let started = || start(&site, true, &open, POSTGRES_ANSWER);
    let first = started();
    let before = first.get("/").json();
    assert_eq!(before["kept"], true, "{}", first.log().text());
    if !has_login_triggers(&before) {
        return;
    }
    say(&first, TRIGGER);
    let with = started();
    with.log_line("does not run the database's login event triggers again");
    let logins = |hearth: &Hearth| hearth.get("/").json()["logins"].as_u64().unwrap();
    let one = logins(&with);
    // A worker that starts logs in, too.
    assert!(logins(&with) > one, "each request logs in");
    assert_eq!(with.get("/").json()["kept"], false);
    for (state, kept) in [("disable", true), ("enable always", false), ("disable", true)] {
        say(&with, &format!("alter event trigger note {state}"));
        let hearth = started();
        assert_eq!(hearth.get("/").json()["kept"], kept, "{state}: {}", hearth.log().text());
    }
}

fn connector_to_postgres(database: &Database) -> (Site, Hearth) {
    let site = site_with_connector(database, "postgresql");
    let open = open_postgres("getenv('HEARTH_DATABASE_MAIN')");
    let hearth = start(&site, false, &open, POSTGRES_ANSWER);
    (site, hearth)
}

#[test]
fn a_session_with_a_login_event_trigger_is_not_shared() {
    let database = Database::with_tls(DatabaseKind::Postgres, &certificates().origin, false);
    let (_site, first) = connector_to_postgres(&database);
    let before = first.get("/").json();
    assert_eq!(first.get("/").json(), before, "the same session");
    if !has_login_triggers(&before) {
        return;
    }
    say(&first, TRIGGER);
    drop(first);
    let (_site, with) = connector_to_postgres(&database);
    let one = with.get("/").json();
    let two = with.get("/").json();
    assert_ne!(one["pid"], two["pid"], "{}", with.log().text());
    assert_eq!(two["logins"].as_u64(), one["logins"].as_u64().map(|logins| logins + 1));
    with.log_line("no reset runs again what the server runs at each login");
}

/// A server reports some settings, which clients remember: how to quote a text depends on them. A session whose server
/// has changed one is closed, because the next client would be told the value of the login.
#[test]
fn a_shared_session_has_the_settings_that_its_client_is_told() {
    let database = Database::with_tls(DatabaseKind::Postgres, &certificates().origin, false);
    let (_site, hearth) = connector_to_postgres(&database);
    let before = hearth.get("/").json();
    assert_eq!(hearth.get("/").json(), before, "the same session");
    assert_eq!(before["told"], before["is"]);
    // ALTER SYSTEM cannot run with others in one message.
    say(&hearth, "alter system set timezone = 'Asia/Tokyo'");
    // An idle session that reports a change is closed at once.
    let changed = hearth.get("/?say=select%20pg_reload_conf()&until=Asia/Tokyo").json();
    assert_eq!(changed["pid"], before["pid"], "{}", hearth.log().text());
    let after = hearth.get("/").json();
    assert_eq!((&after["told"], &after["is"]), (&json!("Asia/Tokyo"), &json!("Asia/Tokyo")));
    assert_ne!(after["pid"], before["pid"]);
    assert_eq!(hearth.get("/").json(), after, "the same session");
}
