//! Statements whose effects go beyond settings in MariaDB and PostgreSQL: other databases, files, transactions that
//! outlive their session, replication origins.

use serde_json::{Value, json};
use testkit::{DATABASE_PASSWORD, Database, DatabaseKind};

use super::serve;
use crate::hearth::{Hearth, Site};

/// Starts a worker script that keeps `clients`, each a name and the part of its DSN after the socket. A request is
/// `NAME STATEMENT; STATEMENT`; its answer has their rows.
fn start(database: &Database, clients: &[(&str, &str)]) -> (Site, Hearth) {
    let address = database.address();
    let open = |(name, part): &(&str, &str)| {
        format!(
            "'{name}' => new PDO('mysql:unix_socket={};charset=utf8mb4{part}', 'visitor', '{DATABASE_PASSWORD}', [PDO::MYSQL_ATTR_LOCAL_INFILE => true])",
            address.display()
        )
    };
    serve_clients(&clients.iter().map(open).collect::<Vec<_>>())
}

/// Starts the same script with clients as PHP code: `'NAME' => EXPRESSION`.
fn serve_clients(clients: &[String]) -> (Site, Hearth) {
    let all = clients.join(",\n");
    let script = format!(
        "<?php hearth_on_worker_start(function () {{ $GLOBALS['clients'] = [{all}];\n\
         $GLOBALS['kept'] = !in_array(false, array_map('hearth_keep_connection', $GLOBALS['clients']), true); }});\n\
         while (hearth_handle_request(function () {{\n\
         [$name, $text] = explode(' ', ($_GET['say'] ?? '') . ' ', 2);\n\
         if ($name === '') {{ return; }}\n\
         foreach (explode(';', $text) as $sql) {{\n\
         $result = $GLOBALS['clients'][$name]->query($sql);\n\
         $said[] = $result->columnCount() > 0 ? $result->fetchAll(PDO::FETCH_NUM) : $result->rowCount(); }}\n\
         echo json_encode(['kept' => $GLOBALS['kept'], 'pid' => getmypid(), 'said' => $said]); }})) {{ }}"
    );
    let site = Site::empty().with_file("worker.php", &script);
    let hearth = serve(&site).workers(1).start();
    (site, hearth)
}

fn say(hearth: &Hearth, text: &str) -> Value {
    let encode = |byte: u8| format!("%{byte:02x}");
    let answer = hearth.get(&format!("/?say={}", text.bytes().map(encode).collect::<String>()));
    assert_eq!(answer.status, 200, "{text}: {}\n{}", answer.text(), hearth.log().text());
    answer.json()
}

#[test]
fn each_request_starts_in_the_sessions_original_database() {
    let database = Database::start(DatabaseKind::MariaDb);
    {
        let (_site, hearth) = start(&database, &[("shop", ";dbname=shop")]);
        say(&hearth, "shop create database own collate utf8mb4_bin");
    }
    // The server's own collation differs from the database's.
    let clients = [("shop", ";dbname=shop"), ("own", ";dbname=own"), ("none", "")];
    let (_site, hearth) = start(&database, &clients);
    let look = |name| {
        let said = say(&hearth, &format!("{name} select database(), @@collation_database"));
        assert_eq!(said["kept"], true, "{}", hearth.log().text());
        (said["said"][0][0].clone(), said["pid"].clone())
    };
    let pid = look("shop").1;
    let server = look("shop").0[1].clone();
    assert_ne!(server, "utf8mb4_bin");
    for leaving in [
        "select 1",
        "use mysql",
        "drop database if exists other; create database other; use other; drop database other",
        "prepare s from 'select 1'; execute s",
    ] {
        for (name, expected) in
            [("shop", json!(["shop", server])), ("own", json!(["own", "utf8mb4_bin"]))]
        {
            say(&hearth, &format!("{name} {leaving}"));
            assert_eq!(look(name), (expected, pid.clone()), "{leaving}: {}", hearth.log().text());
        }
    }
    // A session cannot return to having no database selected.
    say(&hearth, "none select 1");
    assert_eq!(look("none"), (json!([null, server]), pid.clone()));
    say(&hearth, "none use shop");
    let (found, now) = look("none");
    assert_eq!(found, json!([null, server]));
    assert_ne!(now, pid, "{}", hearth.log().text());
    hearth.log_line("its reset does not bring its current database back");
}

#[test]
fn a_local_file_load_is_rolled_back_with_its_session() {
    let database = Database::start(DatabaseKind::MariaDb);
    let (site, hearth) = start(&database, &[("shop", ";dbname=shop")]);
    site.write("amounts", "1\n2\n3\n");
    let file = site.path().join("amounts").display().to_string();
    let load = format!("load data local infile '{file}' into table things (amount)");
    let loaded = say(&hearth, &format!("shop begin; {load}; select count(*) from things"));
    assert_eq!(loaded["said"][2], json!([[3]]), "{loaded}");
    // The engine does not parse the bytes of a file as commands.
    hearth.log_line("the server asked for a file of the client");
    let after = say(&hearth, "shop select count(*) from things");
    assert_eq!((&after["kept"], &after["said"]), (&json!(true), &json!([[[0]]])));
    assert_ne!(after["pid"], loaded["pid"]);
}

/// A prepared transaction belongs to the server once its session has ended, and any client can end it.
#[test]
fn a_prepared_transaction_survives_and_closes_its_session() {
    let database = Database::start(DatabaseKind::MariaDb);
    let (_site, hearth) = start(&database, &[("shop", ";dbname=shop")]);
    say(&hearth, "shop xa start 'a'; insert into things values (7, 1); xa end 'a'; xa prepare 'a'");
    hearth.log_line("the request prepared a transaction (XA PREPARE)");
    let after = say(&hearth, "shop select @@in_transaction, count(*) from things; xa recover");
    assert_eq!(after["kept"], true, "{}", hearth.log().text());
    assert_eq!(after["said"], json!([[[0, 0]], [[1, 1, 0, "a"]]]));
    say(&hearth, "shop begin; insert into things values (8, 1); commit");
    say(&hearth, "shop xa commit 'a'");
    let committed = say(&hearth, "shop select id from things order by id; xa recover");
    assert_eq!(committed["said"], json!([[[7], [8]], []]));
}

#[test]
fn connections_with_a_server_message_at_login_are_not_kept() {
    let database = Database::start(DatabaseKind::MariaDb);
    let shop = &[("shop", ";dbname=shop")];
    // The connection of `first` was opened before the change.
    let (_site, first) = start(&database, shop);
    let of_each = |what: &str| {
        say(&first, &format!("shop set global init_connect=\"{what}\""));
    };
    // Character set names are compared without regard to case.
    for harmless in ["", "SET NAMES 'utf8mb4' COLLATE utf8mb4_general_ci"] {
        of_each(harmless);
        let (_site, hearth) = start(&database, shop);
        let kept = say(&hearth, "shop select 1")["kept"].clone();
        assert_eq!(kept, true, "{harmless}: {}", hearth.log().text());
    }
    for more in ["set @tenant=5", "set names utf8mb4, @tenant=5"] {
        of_each(more);
        let (_site, hearth) = start(&database, shop);
        hearth.log_line("what the server says to each client (init_connect)");
    }
}

/// `DISCARD ALL` keeps the origin: later commits of the session would be taken for replicated ones.
#[test]
fn a_replication_origin_closes_its_session() {
    let database = Database::start(DatabaseKind::Postgres);
    let host = database.address().display().to_string();
    let (_site, hearth) = serve_clients(&[format!(
        "'shop' => new PDO('pgsql:host={host};dbname=shop', 'visitor', '{DATABASE_PASSWORD}')"
    )]);
    let look = "shop select pg_replication_origin_session_is_setup()";
    let before = say(&hearth, look);
    assert_eq!((&before["kept"], &before["said"]), (&json!(true), &json!([[[false]]])));
    say(
        &hearth,
        "shop select pg_replication_origin_create('a'); select pg_replication_origin_session_setup('a')",
    );
    hearth
        .log_line("the request set up a replication origin (pg_replication_origin_session_setup)");
    let after = say(&hearth, look);
    assert_eq!((&after["kept"], &after["said"]), (&json!(true), &json!([[[false]]])));
    assert_ne!(after["pid"], before["pid"]);
}
