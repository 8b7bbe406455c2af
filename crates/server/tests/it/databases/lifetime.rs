//! The lifetime of kept connections: restarts, outages, age, and connections that are closed.

use super::*;

#[test]
fn a_database_restart_between_requests_fails_no_request() {
    for class in ["PdoMysql", "PdoPgsql", "PhpRedis"] {
        restarts_between_requests(class, &mut Shop::open(client(class), |serve| serve));
    }
}

/// A database restarts between two requests, by its own end and killed. Another worker answers the next request.
pub(crate) fn restarts_between_requests(class: &str, shop: &mut Shop) {
    for hard in [false, true] {
        eventually("the connection is kept", LIMIT, || shop.get("look")["kept"] == true);
        let before = shop.get("look");
        shop.database.stop(hard);
        shop.database.start_again();
        let after = shop.get("look");
        assert_same(&after, &before, class);
        assert_ne!(after["pid"], before["pid"], "{class}: a worker with a dead connection");
    }
}

/// A database restarts while a request is in a transaction. The next request finds neither its rows nor a dead
/// connection.
pub(crate) fn a_restart_within_a_transaction(class: &str, shop: &mut Shop) {
    let before = shop.get("look");
    assert_eq!(before["kept"], true, "{class}: {}", shop.hearth.log().text());
    let place = |name: &str| shop.site.path().join(name);
    let (within, go) = (place("within"), place("go"));
    std::thread::scope(|scope| {
        let (hearth, database) = (&shop.hearth, &mut shop.database);
        let request = scope.spawn(|| hearth.get("/?within").text());
        eventually("the transaction has begun", LIMIT, || within.exists());
        database.stop(true);
        database.start_again();
        std::fs::write(go, "").unwrap();
        assert_eq!(request.join().unwrap(), r#"{"lost":true}"#, "{class}");
    });
    let after = shop.get("look");
    assert_same(&after, &before, class);
    assert_ne!(after["pid"], before["pid"], "{class}: a worker with a dead connection");
    eventually("the connection is kept", LIMIT, || shop.get("look")["kept"] == true);
}

#[test]
fn a_database_restart_loses_only_the_open_transaction() {
    for class in ["PdoMysql", "PdoPgsql", "PhpRedis"] {
        a_restart_within_a_transaction(class, &mut Shop::open(client(class), |serve| serve));
    }
}

#[test]
fn a_database_outage_stops_no_worker_and_keeping_resumes() {
    let client = client("PdoMysql");
    let mut database = Database::start(client.kind);
    database.stop(false);
    let mut shop = Shop::with(client, database, |serve| serve.set("HEARTH_PHP_WORKERS", "2"));
    shop.hearth.wait_idle(2);
    assert_eq!(shop.hearth.get("/?nothing").text(), "nothing");
    // Both workers failed; one of them logs it.
    let failed = "a callback of hearth_on_worker_start() failed";
    shop.hearth.log_line(failed);
    // Workers try again, and fail again.
    eventually("workers are replaced", LIMIT, || {
        shop.hearth.status()["pool"]["recycled"].as_u64() >= Some(2)
    });
    shop.database.start_again();
    eventually("both connections are kept", LIMIT, || {
        shop.hearth.status()["pool"]["databases"]["kept"] == 2
    });
    shop.hearth.log_line("the callbacks of hearth_on_worker_start() work again");
    let log = shop.hearth.log().text();
    assert_eq!(log.matches(failed).count(), 1, "{log}");
    assert!(!log.contains("workers retire before their first answer"), "{log}");
    assert_eq!(shop.hearth.status()["pool"]["retired"], 0, "{log}");
    assert_eq!(shop.get("look")["kept"], true);
}

#[test]
fn short_lived_connections_are_temporarily_not_kept() {
    let shop = Shop::open(client("PdoMysql"), |serve| serve);
    for _ in 0..8 {
        shop.get("do=reconnect");
    }
    shop.hearth.log_line("it did not last in the workers before");
    let look = shop.get("look");
    assert_eq!(look["kept"], false);
    let pid = &look["pid"];
    assert_eq!(&shop.get("do=reconnect")["pid"], pid, "nothing is kept, so nothing retires");
    assert_eq!(&shop.get("look")["pid"], pid);
}

#[test]
fn idle_connections_are_checked_and_old_ones_replaced() {
    let began = Instant::now();
    let shop = Shop::open(client("RedisStream"), |serve| {
        serve.set("HEARTH_DATABASES_MAX_IDLE", "50ms").set("HEARTH_DATABASES_MAX_LIFETIME", "3s")
    });
    let first = shop.get("look");
    eventually("its worker is replaced", LIMIT, || {
        shop.hearth.worker_pids() != [u32::try_from(first["pid"].as_u64().unwrap()).unwrap()]
    });
    // Workers are replaced up to a tenth earlier, so that not all are replaced at once.
    assert!(began.elapsed() >= Duration::from_millis(2700), "not too early");
    shop.hearth.log_line("have lived long enough");
    assert_same(&shop.get("look"), &first, "after the replacement");
}

#[test]
fn keeping_can_be_switched_off() {
    let shop = Shop::open(client("PdoMysql"), |serve| serve.set("HEARTH_DATABASES_KEEP", "off"));
    let look = shop.get("look");
    assert_eq!(look["kept"], false);
    assert_ne!(shop.get("look")["id"], look["id"], "each request opens its own");
}

#[test]
fn connections_of_a_request_are_closed_politely() {
    for class in ["PdoMysql", "MysqliClient", "PdoPgsql", "PgsqlClient"] {
        let shop = Shop::open(client(class), |serve| serve);
        for _ in 0..5 {
            shop.get("fresh");
        }
        shop.get("look");
        // Kept connections are closed when the server stops.
        let Shop { hearth, database, site: _site } = shop;
        assert!(hearth.stop().success());
        clients_closed_politely(&database);
    }
}

/// Checks that every client closed its connection in the way of its protocol.
pub(super) fn clients_closed_politely(database: &Database) {
    // The database may notice a closed connection a little later.
    std::thread::sleep(Duration::from_millis(100));
    let log = database.log();
    assert!(!log.contains("Aborted connection"), "{log}");
    assert!(!log.contains("unexpected EOF"), "{log}");
}

/// A connection without any bytes, and one of an unknown protocol: requests would leave state in them that cannot be
/// reset.
#[test]
fn a_connection_of_an_unknown_protocol_is_closed_before_the_snapshot() {
    let database = Database::start(DatabaseKind::Redis);
    let address = database.address();
    let connect = format!("$GLOBALS['redis']->connect('{}')", address.display());
    let other = "fwrite($GLOBALS['other'], \"PING\\r\\n\"); fgets($GLOBALS['other']);";
    for (say, why) in [
        ("", "(unknown) cannot stay open: nothing was said over it yet"),
        (other, "(unknown) cannot stay open: its protocol is none that can be put back"),
    ] {
        let script = format!(
            "<?php hearth_on_worker_start(function () {{ $GLOBALS['redis'] = new Redis(); {connect};\n\
             $GLOBALS['other'] = stream_socket_client('unix://{}'); {say}\n\
             $GLOBALS['kept'] = hearth_keep_connection($GLOBALS['redis']); }});\n\
             while (hearth_handle_request(function () {{\n\
             $login = fn () => $GLOBALS['redis']->auth('{DATABASE_PASSWORD}');\n\
             try {{ $login(); }} catch (RedisException) {{ {connect}; $login(); }}\n\
             $left = $GLOBALS['redis']->rawCommand('CLIENT', 'GETNAME');\n\
             $GLOBALS['redis']->client('setname', 'visitor');\n\
             @fwrite($GLOBALS['other'], \"PING\\r\\n\");\n\
             echo json_encode([$GLOBALS['kept'], (string) $left, (string) @fgets($GLOBALS['other'])]); }})) {{ }}",
            address.display()
        );
        let site = Site::empty().with_file("worker.php", &script);
        let hearth = serve(&site).workers(1).start();
        for _ in 0..3 {
            assert_eq!(hearth.get("/").json(), json!([false, "", ""]), "{}", hearth.log().text());
        }
        hearth.log_line(why);
    }
}

/// The worker observes 64 connections, and only descriptors below 1024. It does not know the bytes of others.
#[test]
fn unobserved_connections_are_closed_before_the_snapshot() {
    let database = Database::start(DatabaseKind::Redis);
    let script = format!(
        "<?php function say($stream, $what) {{ return @fwrite($stream, $what) ? (string) @fgets($stream) : ''; }}\n\
         hearth_on_worker_start(function () {{\n\
         for ($i = 0; $i < 70; $i++) {{\n\
         $GLOBALS['open'][$i] = $stream = stream_socket_client('unix://{}');\n\
         $GLOBALS['said'][] = say($stream, \"*2\\r\\n\\$4\\r\\nAUTH\\r\\n\\$10\\r\\n{DATABASE_PASSWORD}\\r\\n\"); }} }});\n\
         while (hearth_handle_request(function () {{\n\
         $answers = array_map(fn ($stream) => say($stream, \"*1\\r\\n\\$4\\r\\nPING\\r\\n\"), $GLOBALS['open']);\n\
         echo json_encode([array_count_values($GLOBALS['said']), array_count_values($answers)]); }})) {{ }}",
        database.address().display()
    );
    let site = Site::empty().with_file("worker.php", &script);
    let hearth = serve(&site).workers(1).start();
    for _ in 0..3 {
        assert_eq!(
            hearth.get("/").json(),
            json!([{ "+OK\r\n": 70 }, { "+PONG\r\n": 16, "": 54 }]),
            "{}",
            hearth.log().text()
        );
    }
    hearth.log_line("cannot stay open: its beginning was not seen");
}

#[test]
fn an_encrypted_connection_is_closed_before_the_snapshot() {
    let origin = Origin::tls(routes);
    let script = format!(
        "<?php hearth_on_worker_start(function () {{\n\
         $context = stream_context_create(['ssl' => ['verify_peer' => false, 'verify_peer_name' => false]]);\n\
         $GLOBALS['peer'] = stream_socket_client('tls://{}', $code, $why, 10, STREAM_CLIENT_CONNECT, $context);\n\
         $GLOBALS['kept'] = hearth_keep_connection(new stdClass()); }});\n\
         while (hearth_handle_request(function () {{\n\
         @fwrite($GLOBALS['peer'], \"GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n\");\n\
         echo json_encode([$GLOBALS['kept'], (string) @fgets($GLOBALS['peer'])]); }})) {{ }}",
        origin.address()
    );
    let site = Site::empty().with_file("worker.php", &script);
    let hearth = serve(&site).workers(1).start();
    for _ in 0..3 {
        assert_eq!(hearth.get("/").json(), json!([false, ""]));
    }
    hearth.log_line("(TLS) cannot stay open: it is encrypted");
    assert_eq!(origin.requests().len(), 0);
}
