//! Servers that are silent: packets without an answer, and listeners that accept nothing. Workers start all the same.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::json;
use testkit::{DATABASE_PASSWORD, Database, DatabaseKind, eventually};

use super::with_extensions;
use crate::hearth::{Hearth, LIMIT, Serve, Site, of_tier};

/// A worker script that opens `open` when it starts; `?look` runs `look` on it.
fn hearth(open: &str, look: &str, workers: usize, model: &str) -> (Site, Hearth) {
    hearth_waiting("300ms", open, look, workers, model)
}

fn hearth_waiting(
    limit: &str,
    open: &str,
    look: &str,
    workers: usize,
    model: &str,
) -> (Site, Hearth) {
    let script = format!(
        "<?php hearth_on_worker_start(function () {{ $GLOBALS['client'] = {open}; }});\n\
         while (hearth_handle_request(function () {{ $client = $GLOBALS['client'] ?? null;\n\
         echo $client === null ? 'without' : {look}; }})) {{ }}"
    );
    let site = Site::empty().with_file("worker.php", &script);
    let serve = Serve::new(site.path().join("worker.php")).args(&["--model", model]);
    let hearth = with_extensions(serve)
        .set("HEARTH_DATABASES_CONNECT_TIMEOUT", limit)
        .workers(workers)
        .start();
    (site, hearth)
}

/// A port whose packets get no answer: its backlog is full.
struct Swallowing {
    listener: TcpListener,
    _in_line: Vec<TcpStream>,
}

impl Swallowing {
    fn new() -> Self {
        let listener = TcpListener::bind((Database::HOST, 0)).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let address = listener.local_addr().unwrap();
        let mut in_line = Vec::new();
        while let Ok(client) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
            in_line.push(client);
        }
        Self { listener, _in_line: in_line }
    }

    fn port(&self) -> u16 {
        self.listener.local_addr().unwrap().port()
    }
}

/// Clients that wait for an answer, each in its own words.
const OPEN: &[(&str, &str)] = &[
    ("mysql", "new PDO('mysql:host=127.0.0.2;port=PORT', 'visitor', 'x')"),
    ("mysqli", "new mysqli('127.0.0.2', 'visitor', 'x', 'shop', PORT)"),
    ("pgsql", "new PDO('pgsql:host=127.0.0.2;port=PORT;sslmode=disable', 'visitor', 'x')"),
    (
        "phpredis",
        "(function () { $r = new Redis(); $r->connect('127.0.0.2', PORT); $r->ping(); return $r; })()",
    ),
    (
        "stream",
        "(function () { $s = stream_socket_client('tcp://127.0.0.2:PORT'); fwrite($s, \"*1\\r\\n\\$4\\r\\nPING\\r\\n\");\n\
         if (fgets($s) === false) { throw new Exception('no answer'); } return $s; })()",
    ),
];

#[test]
fn a_silent_database_delays_no_worker() {
    let swallowing = Swallowing::new();
    let silent = TcpListener::bind((Database::HOST, 0)).unwrap();
    for port in [swallowing.port(), silent.local_addr().unwrap().port()] {
        std::thread::scope(|scope| {
            for (name, open) in OPEN {
                scope.spawn(move || {
                    let open = open.replace("PORT", &port.to_string());
                    let (_site, hearth) = hearth(&open, "'with'", 2, "snapshot");
                    hearth.wait_idle(2);
                    assert_eq!(hearth.get("/").text(), "without", "{name}");
                    let log = hearth.log().text();
                    let told =
                        format!("a connection to 127.0.0.2:{port} got no answer within 300 ms");
                    assert_eq!(log.matches(&told).count(), 1, "{name}: {log}");
                    assert!(!log.contains("died"), "{name}: {log}");
                });
            }
        });
    }
}

/// The processes of `fork` start for each request: after the first ones they do without at once.
#[test]
fn a_silent_database_delays_no_fork_either() {
    let silent = TcpListener::bind((Database::HOST, 0)).unwrap();
    let port = silent.local_addr().unwrap().port();
    let open = OPEN[0].1.replace("PORT", &port.to_string());
    let (_site, hearth) = hearth(&open, "'with'", 1, "fork");
    for _ in 0..5 {
        assert_eq!(hearth.get("/").text(), "without");
    }
    // One that has waited for its request for longer than that server is left alone ends like any other.
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(hearth.get("/").text(), "without");
    hearth.wait_idle(1);
    let pool = hearth.status()["pool"].clone();
    assert_eq!((&pool["ended"], &pool["crashes"]), (&json!([]), &0.into()), "{pool}");
    let log = hearth.log().text();
    assert_eq!(log.matches("got no answer within").count(), 1, "{log}");
}

/// What `php.warm_up` names is requested in the booted application itself, before there is a worker: that server is known by then.
#[test]
fn a_silent_database_in_a_warm_up_does_not_delay_the_boot() {
    let silent = TcpListener::bind((Database::HOST, 0)).unwrap();
    let port = silent.local_addr().unwrap().port();
    let open = OPEN[0].1.replace("PORT", &port.to_string());
    let script = format!(
        "<?php function open() {{ return {open}; }} hearth_on_worker_start(open(...));\n\
         while (hearth_handle_request(function () {{ try {{ if (isset($_SERVER['HEARTH_WARM_UP'])) {{ open(); }} echo 'served'; }}\n\
         catch (PDOException) {{ echo 'without'; }} }})) {{ }}"
    );
    let site = Site::empty().with_file("worker.php", &script);
    for model in of_tier(["snapshot", "fork"]) {
        let serve = Serve::new(site.path().join("worker.php")).args(&["--model", model]);
        let hearth = with_extensions(serve)
            .set("HEARTH_DATABASES_CONNECT_TIMEOUT", "300ms")
            .set("HEARTH_PHP_WARM_UP", "/")
            .workers(1)
            .start();
        assert_eq!(hearth.get("/").text(), "served", "{model}");
        let log = hearth.log().text();
        assert_eq!(log.matches("got no answer within").count(), 1, "{model}: {log}");
    }
}

/// The limit is for the server's silence, not for what the application does before it asks.
#[test]
fn a_slow_callback_is_not_a_silent_database() {
    let listener = TcpListener::bind((Database::HOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    // It ends with the tests' process.
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let mut asked = [0; 64];
            if client.read(&mut asked).is_ok_and(|len| len > 0) {
                std::thread::sleep(Duration::from_millis(20));
                drop(client.write_all(b"+PONG\r\n"));
            }
        }
    });
    let open = format!(
        "(function () {{ $s = stream_socket_client('tcp://127.0.0.2:{port}'); usleep(6100000);\n\
         fwrite($s, \"*1\\r\\n\\$4\\r\\nPING\\r\\n\"); return fgets($s); }})()"
    );
    let (_site, hearth) = hearth_waiting("6s", &open, "$client", 1, "fork");
    assert_eq!(hearth.get("/").text(), "+PONG\r\n");
    let log = hearth.log().text();
    assert!(!log.contains("got no answer"), "{log}");
}

/// A server that was silent at first: nothing of it was lost for good.
#[test]
fn a_recovered_database_gets_kept_connections_again() {
    let database = Database::start(DatabaseKind::MariaDb);
    let listener = TcpListener::bind((Database::HOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let open = format!(
        "new PDO('mysql:host=127.0.0.2;port={port};dbname=shop', 'visitor', '{DATABASE_PASSWORD}')"
    );
    let look = "$client->query('select connection_id()')->fetchColumn()";
    let (_site, hearth) = hearth(&open, look, 3, "snapshot");
    hearth.wait_idle(3);
    assert_eq!(hearth.get("/").text(), "without");
    let place = database.address();
    // It ends with the tests' process.
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let server = UnixStream::connect(&place).unwrap();
            std::thread::spawn(move || pass_on(&client.unwrap(), &server));
        }
    });
    eventually("all are kept", LIMIT, || hearth.status()["pool"]["databases"]["kept"] == 3);
    let id: u32 = hearth.get("/").text().parse().unwrap();
    assert!(id > 0);
    hearth.log_line("the callbacks of hearth_on_worker_start() work again");
    assert!(hearth.stop().success());
}

/// Proxies let clients in before they have a server for them: the greeting and the end of the login come at once, and no command is answered.
#[test]
fn a_proxy_that_answers_no_command_delays_no_worker() {
    let database = Database::start(DatabaseKind::MariaDb);
    let place = database.address();
    let listener = TcpListener::bind((Database::HOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    // It ends with the tests' process.
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (client, server) = (client.unwrap(), UnixStream::connect(&place).unwrap());
            std::thread::spawn(move || {
                std::thread::scope(|scope| {
                    scope.spawn(|| drop(std::io::copy(&mut &server, &mut &client)));
                    let mut login = [0; 4096];
                    let length = (&client).read(&mut login).unwrap();
                    (&server).write_all(&login[..length]).unwrap();
                    // Whatever it says now goes nowhere.
                    drop(std::io::copy(&mut &client, &mut std::io::sink()));
                    drop(server.shutdown(std::net::Shutdown::Both));
                });
            });
        }
    });
    let open = format!(
        "(function () {{ $p = new PDO('mysql:host=127.0.0.2;port={port};dbname=shop', 'visitor', '{DATABASE_PASSWORD}');\n\
         $p->query('select 1'); return $p; }})()"
    );
    for model in of_tier(["snapshot", "fork"]) {
        let (_site, hearth) = hearth(&open, "'with'", 2, model);
        for _ in 0..3 {
            assert_eq!(hearth.get("/").text(), "without", "{model}");
        }
        hearth.wait_idle(2);
        let log = hearth.log().text();
        assert_eq!(log.matches("got no answer within 300 ms").count(), 1, "{model}: {log}");
        assert!(!log.contains("died"), "{model}: {log}");
    }
}

/// Two servers at once, and a worker waits for the second while the first answers: it is known to be back all the same, as is one that refuses.
#[test]
fn any_answer_marks_a_silent_database_as_recovered() {
    let listener = TcpListener::bind((Database::HOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let open = format!(
        "(function () {{ $s = stream_socket_client('tcp://127.0.0.2:{port}', $code, $why, 10);\n\
         if ($s === false) {{ throw new Exception($why); }}\n\
         fwrite($s, \"*1\\r\\n\\$4\\r\\nPING\\r\\n\"); if (fgets($s) === false) {{ throw new Exception('no answer'); }} }})()"
    );
    let (_site, hearth) = hearth(&open, "'with'", 3, "fork");
    let refused = "Connection refused";
    assert_eq!(hearth.get("/").text(), "without");
    hearth.log_line("got no answer within 300 ms");
    drop(listener);
    // One that is let through finds out for all: no other one gets the silence.
    eventually("it is known to refuse", LIMIT, || {
        assert_eq!(hearth.get("/").text(), "without");
        hearth.log().text().contains(refused)
    });
    for _ in 0..6 {
        hearth.get("/");
    }
    hearth.wait_idle(3);
    let log = hearth.log().text();
    let (_, since) = log.split_once(refused).unwrap();
    assert!(!since.contains("timed out"), "{log}");
}

/// Bytes both ways until both have gone.
fn pass_on(client: &TcpStream, server: &UnixStream) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            drop(std::io::copy(&mut { client }, &mut { server }));
            drop(server.shutdown(std::net::Shutdown::Both));
        });
        drop(std::io::copy(&mut { server }, &mut { client }));
        drop(client.shutdown(std::net::Shutdown::Both));
    });
}

/// A reset takes a round trip. While a worker waits for its proof, the next request goes to another.
#[test]
fn a_slow_connection_check_delays_no_request_while_a_worker_is_idle() {
    let database = Database::start(DatabaseKind::Redis);
    let place = database.address();
    let listener = TcpListener::bind((Database::HOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    // It ends with the tests' process.
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (client, server) = (client.unwrap(), UnixStream::connect(&place).unwrap());
            std::thread::spawn(move || pass_on_late(&client, &server));
        }
    });
    let open = format!(
        "(function () {{ $r = new Redis(); $r->connect('127.0.0.2', {port}); $r->auth('{DATABASE_PASSWORD}'); return $r; }})()"
    );
    let look = "$client->ping() . getmypid()";
    let (_site, hearth) = hearth_waiting("5s", &open, look, 2, "snapshot");
    eventually("both are kept", LIMIT, || hearth.status()["pool"]["databases"]["kept"] == 2);
    let mut connection = hearth.connect();
    let mut answered = std::collections::BTreeSet::new();
    for _ in 0..12 {
        answered.insert(connection.get("/").unwrap().text());
    }
    // The one that was last comes first as long as it says so.
    assert_eq!(answered.len(), 2, "{}", hearth.log().text());
    assert_eq!(hearth.status()["pool"]["databases"]["retired"], 0);
}

/// Bytes both ways, each answer 30 ms late.
fn pass_on_late(client: &TcpStream, server: &UnixStream) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = { server }.read(&mut bytes) {
                std::thread::sleep(Duration::from_millis(30));
                if { client }.write_all(&bytes[..count]).is_err() {
                    break;
                }
            }
        });
        drop(std::io::copy(&mut { client }, &mut { server }));
        drop(server.shutdown(std::net::Shutdown::Both));
    });
}
