//! Database servers that do not answer: packets that are lost, and listeners that accept nothing. Workers start
//! nevertheless.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::json;
use testkit::{DATABASE_PASSWORD, Database, DatabaseKind, eventually};

use super::with_extensions;
use crate::hearth::{Hearth, LIMIT, Serve, Site, of_tier};

/// Starts a worker script that runs `open` when it starts; `?look` runs `look`.
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
    let serve = Serve::new(site.path().join("worker.php")).model(model);
    let hearth = with_extensions(serve)
        .set("HEARTH_DATABASES_CONNECT_TIMEOUT", limit)
        .workers(workers)
        .start();
    (site, hearth)
}

/// A port whose packets get no answer, because its backlog is full.
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

/// Clients that wait for an answer, one for each extension and protocol.
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

/// In the model `fork` a process starts for each request. After the first requests, new processes skip the server at
/// once.
#[test]
fn a_silent_database_delays_no_fork_either() {
    let silent = TcpListener::bind((Database::HOST, 0)).unwrap();
    let port = silent.local_addr().unwrap().port();
    let open = OPEN[0].1.replace("PORT", &port.to_string());
    let (_site, hearth) = hearth(&open, "'with'", 1, "fork");
    for _ in 0..5 {
        assert_eq!(hearth.get("/").text(), "without");
    }
    // A worker that has been idle for longer than the server is skipped ends normally.
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(hearth.get("/").text(), "without");
    hearth.wait_idle(1);
    let pool = hearth.status()["pool"].clone();
    assert_eq!((&pool["ended"], &pool["crashes"]), (&json!([]), &0.into()), "{pool}");
    let log = hearth.log().text();
    assert_eq!(log.matches("got no answer within").count(), 1, "{log}");
}

/// Paths in `php.warm_up` are requested in the booted application before any worker exists. The server is known to be
/// silent by then.
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
        let serve = Serve::new(site.path().join("worker.php")).model(model);
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

/// The limit applies to the server's silence, not to the application's own work before its query.
#[test]
fn a_slow_callback_is_not_a_silent_database() {
    let listener = TcpListener::bind((Database::HOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    // This thread ends with the test process.
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

/// A server that was silent at first gets kept connections again when it answers.
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
    // This thread ends with the test process.
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

/// A proxy may accept clients before it has a server for them: it sends the greeting and completes the login, and then
/// answers no command.
#[test]
fn a_proxy_that_answers_no_command_delays_no_worker() {
    let database = Database::start(DatabaseKind::MariaDb);
    let place = database.address();
    let listener = TcpListener::bind((Database::HOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    // This thread ends with the test process.
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (client, server) = (client.unwrap(), UnixStream::connect(&place).unwrap());
            std::thread::spawn(move || {
                std::thread::scope(|scope| {
                    scope.spawn(|| drop(std::io::copy(&mut &server, &mut &client)));
                    let mut login = [0; 4096];
                    let length = (&client).read(&mut login).unwrap();
                    (&server).write_all(&login[..length]).unwrap();
                    // Discards all later bytes of the client.
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

/// Two silent servers: a worker waits for the second while the first answers. The first is marked as recovered
/// nevertheless, and so is one that refuses.
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
    // One worker tries the server on behalf of all; no other worker waits for it.
    eventually("the refusal is known", LIMIT, || {
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

/// Copies bytes in both directions until both ends have closed.
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

/// A reset takes a round trip. While one worker waits for its answer, the next request goes to another.
#[test]
fn a_slow_connection_check_delays_no_request_while_a_worker_is_idle() {
    let database = Database::start(DatabaseKind::Redis);
    let place = database.address();
    let listener = TcpListener::bind((Database::HOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    // This thread ends with the test process.
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
    // The worker used last comes first again once its check is answered.
    assert_eq!(answered.len(), 2, "{}", hearth.log().text());
    assert_eq!(hearth.status()["pool"]["databases"]["retired"], 0);
}

/// Copies bytes in both directions, and delays each answer by 30 ms.
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
