//! Databases behind TLS: PHP connects to a Unix socket in plain text, and the connector to the server with TLS. Every
//! promise about kept connections (databases.rs) holds through it.
//!
//! The tests use real MariaDB, PostgreSQL and Redis with certificates of the tests' own authority.

mod frameworks;
mod leaving;
mod limits;
mod upgrades;

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use serde_json::{Value, json};
use testkit::{Certificate, DATABASE_PASSWORD, Database, DatabaseKind, certificates, eventually};

use crate::databases::{
    Client, Shop, a_restart_within_a_transaction, assert_same, client, no_secrets,
    nothing_is_left_in, random_requests_of, restarts_between_requests, with_extensions,
};
use crate::hearth::{LIMIT, Serve, Site};

/// A server behind TLS, an application, and the connector between them.
struct Setup {
    database: Database,
    site: Site,
    /// Additional lines of the connector's table in hearth.toml.
    keys: String,
}

impl Setup {
    fn new(kind: DatabaseKind) -> Self {
        Self::showing(kind, &certificates().origin)
    }

    fn showing(kind: DatabaseKind, certificate: &Certificate) -> Self {
        Self::of(Database::with_tls(kind, certificate, false))
    }

    fn of(database: Database) -> Self {
        let site = Site::empty().with_folder("databases");
        certificates().authority.write(site.path(), "authority");
        certificates().client.write(site.path(), "client");
        Self { database, site, keys: "sslrootcert = 'authority.pem'\n".to_owned() }
    }

    fn key(mut self, line: &str) -> Self {
        writeln!(self.keys, "{line}").unwrap();
        self
    }

    /// The address that PHP's clients connect to.
    fn address(&self) -> PathBuf {
        match self.database.kind() {
            DatabaseKind::Postgres => self.site.path().to_owned(),
            _ => self.site.path().join("connector.sock"),
        }
    }

    fn configure(&self) {
        let (host, port) = (Database::HOST, self.database.port());
        let password = DATABASE_PASSWORD.replace(' ', "%20");
        let password = if self.keys.contains("password_file") {
            String::new()
        } else {
            format!(":{password}")
        };
        let (url, socket) = match self.database.kind() {
            DatabaseKind::MariaDb => {
                (format!("mysql://visitor{password}@{host}:{port}/shop"), "connector.sock")
            }
            DatabaseKind::Postgres => {
                (format!("postgresql://visitor{password}@{host}:{port}/shop"), ".s.PGSQL.5432")
            }
            DatabaseKind::Redis => (format!("rediss://{password}@{host}:{port}"), "connector.sock"),
        };
        let keys = &self.keys;
        self.site.write(
            "hearth.toml",
            &format!("[databases.connectors.main]\nurl = '{url}'\nsocket = '{socket}'\n{keys}"),
        );
    }

    fn open(self, class: &str, configure: impl FnOnce(Serve) -> Serve) -> Shop {
        self.configure();
        let address = self.address();
        Shop::at(client(class), self.database, self.site, &address, configure)
    }
}

fn connector(shop: &Shop) -> Value {
    shop.hearth.status()["connectors"][0].clone()
}

/// Runs every row of the table "left by the request", and checks that it costs no TLS handshake.
fn nothing_is_left_behind_tls(class: &str) {
    let client: &Client = client(class);
    let shop = Setup::new(client.kind).open(class, |serve| serve);
    nothing_is_left_in(client, &shop);
    let before = shop.database.logins();
    shop.use_until_stable();
    assert_eq!(shop.database.logins(), before, "20 requests and no login");
    let status = connector(&shop);
    let opened = usize::try_from(status["opened"].as_u64().unwrap()).unwrap();
    // The connector opens one at the start; `do_` methods open some.
    assert!(before <= opened + 1, "{before} logins: {status}");
    assert_eq!(status["used"], 1, "{status}");
    no_secrets(&shop);
}

#[test]
fn nothing_is_left_in_a_session_of_mariadb_behind_tls_through_mysqli() {
    nothing_is_left_behind_tls("MysqliClient");
}

#[test]
fn nothing_is_left_in_a_session_of_redis_behind_tls_through_predis() {
    nothing_is_left_behind_tls("PredisClient");
}

/// Like the test in databases.rs, with fewer rounds; `DATABASES_ROUNDS` sets the same number for both.
#[test]
fn random_requests_leave_nothing_behind_tls() {
    std::thread::scope(|scope| {
        for class in ["PdoMysql", "PdoPgsql", "PhpRedis"] {
            scope.spawn(move || {
                let client = client(class);
                let shop = Setup::new(client.kind).open(class, |serve| serve);
                random_requests_of(client, &shop, 150);
                let status = connector(&shop);
                assert_eq!(status["used"], 1, "{class}: {status}");
                no_secrets(&shop);
            });
        }
    });
}

#[test]
fn a_tls_database_restart_loses_only_the_open_transaction() {
    for class in ["PdoMysql", "PdoPgsql", "PhpRedis"] {
        let mut shop = Setup::new(client(class).kind).open(class, |serve| serve);
        a_restart_within_a_transaction(class, &mut shop);
    }
}

#[test]
fn nothing_is_left_in_a_session_of_mariadb_behind_tls() {
    nothing_is_left_behind_tls("PdoMysql");
}

#[test]
fn nothing_is_left_in_a_session_of_postgresql_behind_tls() {
    nothing_is_left_behind_tls("PdoPgsql");
}

#[test]
fn nothing_is_left_in_a_session_of_redis_behind_tls() {
    nothing_is_left_behind_tls("PhpRedis");
}

/// Each request opens a connection, which is not kept, and leaves something in its session. The session is reset and
/// used again with its login.
#[test]
fn sessions_of_closed_connections_are_reset_and_shared() {
    for class in ["PdoMysql", "PdoPgsql", "PhpRedis"] {
        let kind = client(class).kind;
        // With one session, a connection that arrives during the reset waits for it, however long that takes.
        let shop = Setup::new(kind)
            .key("sessions = 1")
            .key("wait = '30s'")
            .open(class, |serve| serve.set("HEARTH_DATABASES_KEEP", "off"));
        let fresh = shop.get("look");
        assert_eq!(fresh["kept"], false);
        let before = shop.database.logins();
        let retiring = client(class).retiring;
        let names = shop.names();
        // An action that would end a kept connection ends a session here. These cannot be reset.
        let stays = ["role", "profiling", "rand_seed", "no_evict"];
        let is_tried = |name: &str| stays.contains(&name) || !retiring.contains(&name);
        let names = names.iter().filter(|name| is_tried(name));
        let mut left = 0;
        for name in names {
            shop.hearth.get(&format!("/?do={name}"));
            let after = shop.get("look");
            assert_same(&after, &fresh, &format!("{class}: {name} has left something"));
            left += 2;
        }
        let status = connector(&shop);
        let dropped = usize::try_from(status["dropped"].as_u64().unwrap()).unwrap();
        // After some actions it is unknown whether the session could be reset.
        assert!(dropped * 4 < left, "{class}: {left} connections: {status}");
        let logins = shop.database.logins() - before;
        assert!(logins <= dropped, "{class}: {logins} logins: {status}");
    }
}

#[test]
fn a_tls_database_restart_fails_no_request() {
    for class in ["PdoMysql", "PdoPgsql", "PhpRedis"] {
        let mut shop = Setup::new(client(class).kind).open(class, |serve| serve);
        restarts_between_requests(class, &mut shop);
    }
}

/// `RESET` ends the login, which this client never sent.
#[test]
fn a_redis_client_without_a_password_uses_the_connectors() {
    let setup = Setup::new(DatabaseKind::Redis);
    setup.configure();
    let open = format!(
        "$GLOBALS['redis'] = $redis = new Redis(); $redis->connect('{}'); $redis->select(3);",
        setup.address().display()
    );
    setup.site.write(
        "php.php",
        &format!(
            "<?php hearth_on_worker_start(function () {{ {open} $GLOBALS['kept'] = hearth_keep_connection($redis); }});\n\
             while (hearth_handle_request(function () {{ $redis = $GLOBALS['redis'];\n\
             if (isset($_GET['reset'])) {{ $redis->rawCommand('RESET'); $redis->select(3); }}\n\
             preg_match('/id=(\\d+) .* name=(\\w*) .* db=(\\d+) .* user=(\\w+)/', $redis->rawCommand('CLIENT', 'INFO'), $client);\n\
             $redis->select(5); $redis->client('setname', 'visitor'); $redis->multi();\n\
             echo json_encode([$GLOBALS['kept'], ...array_slice($client, 1)]); }})) {{ }}"
        ),
    );
    let serve = Serve::new(setup.site.path().join("php.php")).model("snapshot");
    let hearth = with_extensions(serve).workers(1).start();
    let first = hearth.get("/").json();
    assert_eq!(first, json!([true, first[1], "", "3", "default"]), "{}", hearth.log().text());
    let logins = setup.database.logins();
    for path in ["/", "/?reset", "/"] {
        assert_eq!(hearth.get(path).json(), first, "{path}: {}", hearth.log().text());
    }
    assert_eq!(setup.database.logins(), logins);
    assert_eq!(hearth.status()["pool"]["databases"]["retired"], 0);
}

/// The error of PHP's client when it cannot connect, as a page shows it.
fn refusal(setup: Setup, class: &str) -> String {
    let shop = setup.open(class, |serve| serve.set("HEARTH_DATABASES_KEEP", "off"));
    let answer = shop.hearth.get("/?look");
    assert_eq!(answer.status, 500, "{}", answer.text());
    no_secrets(&shop);
    eventually("it is in the log", LIMIT, || {
        shop.hearth.log().text().contains("no session of the database")
    });
    eventually("PHP has said it", LIMIT, || shop.hearth.log().text().contains("Uncaught"));
    shop.hearth.log().text()
}

#[test]
fn a_certificate_that_fails_verification_is_named_to_the_client() {
    let certificates = certificates();
    let expired = (&certificates.expired, "has expired");
    let other = (&certificates.other_host, "is not for 127.0.0.2");
    let stranger = (&certificates.stranger, "no trusted authority has signed");
    // The check of certificates is the same for all clients; their messages differ.
    for (class, (certificate, expected)) in [
        ("PdoMysql", expired),
        ("PdoMysql", other),
        ("PdoMysql", stranger),
        ("PdoPgsql", other),
        ("PhpRedis", stranger),
    ] {
        let said = refusal(Setup::showing(client(class).kind, certificate), class);
        let uncaught = said.lines().find(|line| line.contains("Uncaught")).unwrap();
        assert!(uncaught.contains(expected), "{class}: {expected}: {uncaught}");
    }
}

#[test]
fn a_rejected_login_passes_on_the_servers_message() {
    for (class, kind, expected) in [
        ("PdoMysql", DatabaseKind::MariaDb, "Access denied for user 'visitor'"),
        ("PdoPgsql", DatabaseKind::Postgres, "password authentication failed for user"),
    ] {
        let setup = Setup::new(kind).key("password_file = 'password'");
        setup.site.write("password", "not the one");
        let said = refusal(setup, class);
        let uncaught = said.lines().find(|line| line.contains("Uncaught")).unwrap();
        assert!(uncaught.contains(expected), "{class}: {uncaught}");
        assert!(!said.contains("not the one"), "{said}");
    }
}

#[test]
fn a_server_that_requires_a_client_certificate_gets_the_connectors() {
    for (class, kind) in [
        ("PdoMysql", DatabaseKind::MariaDb),
        ("PdoPgsql", DatabaseKind::Postgres),
        ("PhpRedis", DatabaseKind::Redis),
    ] {
        let database = || Database::with_tls(kind, &certificates().origin, true);
        let with = Setup::of(database()).key("sslcert = 'client.pem'").key("sslkey = 'client.key'");
        let shop = with.open(class, |serve| serve);
        assert_eq!(shop.get("look")["kept"], true, "{class}: {}", shop.hearth.log().text());
        refusal(Setup::of(database()), class);
    }
}

#[test]
fn a_changed_password_is_used_for_the_next_login() {
    let setup = Setup::new(DatabaseKind::Postgres).key("password_file = 'password'");
    setup.site.write("password", &format!("{DATABASE_PASSWORD}\n"));
    let mut shop = setup.open("PdoPgsql", |serve| serve);
    let before = shop.get("look");
    assert_eq!(before["kept"], true, "{}", shop.hearth.log().text());
    shop.database.change_password("a new password");
    shop.site.write("password", "a new password\n");
    assert_eq!(shop.get("look")["id"], before["id"], "an existing session stays");
    shop.database.stop(true);
    shop.database.start_again();
    eventually("the connection is kept", LIMIT, || shop.get("look")["kept"] == true);
    let log = shop.hearth.log().text();
    assert!(!log.contains("a new password"), "{log}");
}

/// The request holds the only session. Its second connection waits, and then gets the database protocol's own error.
#[test]
fn a_client_without_a_free_session_waits_then_gets_a_protocol_error() {
    for (class, expected) in [
        ("PdoMysql", "[1040] connector: none of the 1 sessions became free within 300ms"),
        ("PdoPgsql", "FATAL:  connector: none of the 1 sessions became free within 300ms"),
        ("PhpRedis", "UNAVAILABLE connector: none of the 1 sessions became free within 300ms"),
    ] {
        let kind = client(class).kind;
        let shop = Setup::new(kind)
            .key("sessions = 1")
            .key("wait = '300ms'")
            .open(class, |serve| serve.set("HEARTH_DATABASES_KEEP", "off"));
        eventually("the connector's own first session is free", LIMIT, || {
            connector(&shop)["used"] == 0
        });
        shop.get("look");
        assert_eq!(shop.hearth.get("/?fresh").status, 500);
        eventually("PHP has said it", LIMIT, || shop.hearth.log().text().contains(expected));
        eventually("the session is free again", LIMIT, || connector(&shop)["used"] == 0);
        shop.get("look");
    }
}

#[test]
fn a_session_with_unsolicited_server_messages_is_not_shared() {
    let setup = Setup::new(DatabaseKind::MariaDb).key("sessions = 1").key("wait = '30s'");
    setup.configure();
    let script = "<?php while (hearth_handle_request(function () {\n\
         $client = new PDO('mysql:dbname=shop;unix_socket=' . getenv('HEARTH_DATABASE_MAIN'), 'visitor', '');\n\
         $id = $client->query('select connection_id()')->fetchColumn();\n\
         echo $id;\n\
         if (isset($_GET['say'])) { $client->query($_GET['say'] . (isset($_GET['own']) ? $id : '')); }\n\
         })) { }";
    setup.site.write("worker.php", script);
    let serve = Serve::new(setup.site.path().join("worker.php")).model("snapshot");
    let hearth = with_extensions(serve).workers(1).start();
    let id = || hearth.get("/").text();
    let first = id();
    assert_eq!(id(), first);
    hearth.get("/?say=set%20global%20init_connect='set%20@tenant=5'");
    // The next request gets another session.
    hearth.get("/?own&say=kill%20");
    let ids = [id(), id(), id()];
    assert!(ids[0] != ids[1] && ids[1] != ids[2], "{ids:?}: {}", hearth.log().text());
    hearth.log_line("no reset runs again what the server runs at each login");
}

#[test]
fn more_clients_than_sessions_are_served_in_turn() {
    let shop = Setup::new(DatabaseKind::MariaDb)
        .key("sessions = 1")
        .key("wait = '30s'")
        .open("PdoMysql", |serve| {
            serve.set("HEARTH_DATABASES_KEEP", "off").set("HEARTH_PHP_WORKERS", "3")
        });
    let before = shop.database.logins();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..10 {
                    assert_eq!(shop.get("look")["kept"], false);
                }
            });
        }
    });
    // One session, used by thirty connections in turn.
    assert!(shop.database.logins() <= before + 1, "{}", connector(&shop));
}

#[test]
fn many_clients_never_exceed_the_session_limit() {
    let setup = Setup::new(DatabaseKind::Redis).key("sessions = 2").key("wait = '2s'");
    let socket = setup.address();
    let shop = setup.open("PhpRedis", |serve| serve.set("HEARTH_DATABASES_KEEP", "off"));
    eventually("the connector's own first session is free", LIMIT, || {
        connector(&shop)["used"] == 0
    });
    let crowd: Vec<UnixStream> = (0..50).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    eventually("two have sessions", LIMIT, || connector(&shop)["used"] == 2);
    eventually("the others were refused", LIMIT, || connector(&shop)["refused"] == 48);
    let refused = crowd.into_iter().filter(|mut client| {
        client.set_read_timeout(Some(LIMIT)).unwrap();
        client.write_all(b"*1\r\n$4\r\nPING\r\n").unwrap();
        let mut said = [0; 7];
        client.read_exact(&mut said).unwrap();
        said == *b"-UNAVAI"
    });
    assert_eq!(refused.count(), 48);
    eventually("every client has disconnected", LIMIT, || connector(&shop)["used"] == 0);
    assert_eq!(connector(&shop)["idle"], 2, "{}", connector(&shop));
}

/// The server must offer TLS: an attacker in between cannot make the connector continue in plain text.
#[test]
fn a_server_without_tls_gets_no_login() {
    for (kind, class) in [(DatabaseKind::MariaDb, "PdoMysql"), (DatabaseKind::Postgres, "PdoPgsql")]
    {
        let mut database = Database::with_tls(kind, &certificates().origin, false);
        database.stop(false);
        let plain = plain_server(kind, database.port());
        let said = refusal(Setup::of(database), class);
        assert!(said.contains("the server offers none"), "{said}");
        let heard = plain.join().unwrap();
        assert!(!heard.windows(7).any(|window| window == b"visitor"), "{class} has named its user");
    }
}

/// Answers every client that it does not support TLS, and returns the bytes that they sent.
fn plain_server(kind: DatabaseKind, port: u16) -> std::thread::JoinHandle<Vec<u8>> {
    let listener = TcpListener::bind((Database::HOST, port)).unwrap();
    std::thread::spawn(move || {
        let mut heard = Vec::new();
        for _ in 0..2 {
            let (mut client, _) = listener.accept().unwrap();
            client.set_read_timeout(Some(LIMIT)).unwrap();
            if kind == DatabaseKind::MariaDb {
                // A greeting of protocol version 10, server "5.7", with every capability except TLS.
                let mut greeting =
                    b"\x0a5.7\0\x01\0\0\0abcdefgh\0\xff\xf7\x21\x02\0\xff\xc1\x15".to_vec();
                greeting.extend([0; 10]);
                greeting.extend(b"ijklmnopqrst\0mysql_native_password\0");
                let length = u8::try_from(greeting.len()).unwrap();
                client.write_all(&[length, 0, 0, 0]).unwrap();
                client.write_all(&greeting).unwrap();
            } else {
                let mut request = [0; 8];
                client.read_exact(&mut request).unwrap();
                client.write_all(b"N").unwrap();
            }
            let mut rest = Vec::new();
            client.read_to_end(&mut rest).unwrap();
            heard.extend(rest);
        }
        heard
    })
}
