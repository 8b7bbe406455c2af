//! The transports of PHP's database clients. A connection on which the client itself starts TLS is closed after the
//! callbacks; plain TCP is kept.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread;

use serde_json::json;
use testkit::{DATABASE_PASSWORD, Database, DatabaseKind, certificates};

use super::serve;
use crate::hearth::{Hearth, Site};

/// Starts a worker script with the client that `open` creates. A request reports whether it was kept, and its session's
/// id (`id`).
fn start(site: &Site, open: &str, id: &str) -> Hearth {
    site.write(
        "worker.php",
        &format!(
            "<?php error_reporting(0);\n\
             function open() {{ return $GLOBALS['client'] = {open}; }}\n\
             function id() {{ $client = $GLOBALS['client']; return {id}; }}\n\
             hearth_on_worker_start(function () {{ open(); id(); $GLOBALS['kept'] = hearth_keep_connection($GLOBALS['client']); }});\n\
             while (hearth_handle_request(function () {{\n\
             try {{ $id = id(); }} catch (Exception) {{ open(); $id = id(); }}\n\
             echo json_encode(['kept' => $GLOBALS['kept'], 'id' => (int) $id]); }})) {{ }}"
        ),
    );
    serve(site).workers(1).start()
}

const MYSQL_ID: &str = "$client->query('select connection_id()')->fetchColumn()";
const POSTGRES_ID: &str = "$client->query('select pg_backend_pid()')->fetchColumn()";

#[test]
fn client_side_tls_is_reported_and_opened_per_request() {
    let (host, user) = (Database::HOST, format!("'visitor', '{DATABASE_PASSWORD}'"));
    for kind in [DatabaseKind::MariaDb, DatabaseKind::Postgres] {
        let database = Database::with_tls(kind, &certificates().origin, false);
        let port = database.port();
        let pgsql = |mode| {
            let open = format!(
                "new PDO('pgsql:host={host};port={port};dbname=shop;sslmode={mode}', {user})"
            );
            (open, POSTGRES_ID)
        };
        let clients = match kind {
            DatabaseKind::Postgres => vec![pgsql("prefer"), pgsql("require")],
            _ => vec![(
                format!(
                    "new PDO('mysql:host={host};port={port};dbname=shop', {user}, [PDO::MYSQL_ATTR_SSL_CA => __DIR__ . '/authority.pem',\n\
                     PDO::MYSQL_ATTR_SSL_VERIFY_SERVER_CERT => false])"
                ),
                MYSQL_ID,
            )],
        };
        for (open, id) in clients {
            let site = Site::empty();
            certificates().authority.write(site.path(), "authority");
            let hearth = start(&site, &open, id);
            let logins = database.logins();
            let ask = || {
                let answer = hearth.get("/");
                assert_eq!(answer.status, 200, "{open}: {}", hearth.log().text());
                let answer = answer.json();
                assert_eq!(answer["kept"], false, "{open}: {}", hearth.log().text());
                answer["id"].clone()
            };
            let (first, second) = (ask(), ask());
            assert_ne!(first, second, "{open}");
            assert!(
                first.as_u64() > Some(0) && second.as_u64() > Some(0),
                "{open}: {first} {second}"
            );
            assert!(database.logins() >= logins + 2, "{open}");
            hearth.log_line("(TLS) cannot stay open: it is encrypted");
            assert!(!hearth.log().text().contains(DATABASE_PASSWORD));
        }
    }
}

/// Returns a TCP address whose clients are connected to `socket`.
fn tcp_in_front_of(socket: PathBuf) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (mut up, mut server) = (client.unwrap(), UnixStream::connect(&socket).unwrap());
            let (mut down, mut answers) = (up.try_clone().unwrap(), server.try_clone().unwrap());
            thread::spawn(move || {
                let ended = io::copy(&mut up, &mut server);
                drop(server.shutdown(Shutdown::Both));
                ended
            });
            thread::spawn(move || {
                let ended = io::copy(&mut answers, &mut down);
                drop(TcpStream::shutdown(&down, Shutdown::Both));
                ended
            });
        }
    });
    address
}

#[test]
fn plain_tcp_stays() {
    for kind in [DatabaseKind::MariaDb, DatabaseKind::Postgres, DatabaseKind::Redis] {
        let database = Database::start(kind);
        let socket = match kind {
            DatabaseKind::Postgres => database.address().join(".s.PGSQL.5432"),
            _ => database.address(),
        };
        let port = tcp_in_front_of(socket).port();
        let user = format!("'visitor', '{DATABASE_PASSWORD}'");
        let (open, id) = match kind {
            DatabaseKind::MariaDb => (
                format!("new PDO('mysql:host=127.0.0.1;port={port};dbname=shop', {user})"),
                MYSQL_ID,
            ),
            // libpq's default mode: it requests TLS first, and the server does not support it.
            DatabaseKind::Postgres => (
                format!("new PDO('pgsql:host=127.0.0.1;port={port};dbname=shop', {user})"),
                POSTGRES_ID,
            ),
            DatabaseKind::Redis => (
                format!(
                    "(function () {{ $redis = new Redis(); $redis->connect('127.0.0.1', {port}); $redis->auth('{DATABASE_PASSWORD}'); return $redis; }})()"
                ),
                "$client->rawCommand('CLIENT', 'ID')",
            ),
        };
        let site = Site::empty();
        let hearth = start(&site, &open, id);
        let first = hearth.get("/").json();
        assert_eq!(first["kept"], true, "{kind:?}: {}", hearth.log().text());
        assert!(first["id"].as_u64() > Some(0), "{kind:?}: {first}");
        for _ in 0..3 {
            assert_eq!(hearth.get("/").json(), first, "{kind:?}: {}", hearth.log().text());
        }
        let databases = &hearth.status()["pool"]["databases"];
        assert_eq!(
            (&databases["kept"], &databases["retired"]),
            (&json!(1), &json!(0)),
            "{databases}"
        );
    }
}
