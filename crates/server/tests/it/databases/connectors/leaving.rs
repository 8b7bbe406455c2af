//! Clients that disconnect in the middle of a command. No other client receives the rest, and the connector's next
//! command is not taken for a part of it.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

use serde_json::json;
use testkit::{DATABASE_PASSWORD, DatabaseKind, eventually};

use super::{Setup, connector};
use crate::databases::{Shop, no_secrets, with_extensions};
use crate::hearth::{LIMIT, Serve};

/// Starts a shop with one session, so that the next client gets it or waits until it is closed.
fn shop_of_one_session(kind: DatabaseKind, class: &str) -> Shop {
    let shop = Setup::new(kind)
        .key("sessions = 1")
        .key("wait = '30s'")
        .open(class, |serve| serve.set("HEARTH_DATABASES_KEEP", "off"));
    eventually("the connector's own first session is free", LIMIT, || {
        connector(&shop)["used"] == 0
    });
    shop
}

/// Otherwise the connector's own login would become the rest of the value.
#[test]
fn a_redis_client_that_disconnects_within_a_value_stores_nothing() {
    let shop = shop_of_one_session(DatabaseKind::Redis, "PhpRedis");
    let socket = shop.site.path().join("connector.sock");
    let whole = format!(
        "*1\r\n$5\r\nRESET\r\n*2\r\n$4\r\nAUTH\r\n${}\r\n{DATABASE_PASSWORD}\r\n",
        DATABASE_PASSWORD.len()
    );
    for length in [whole.len() - 2, whole.len() + 10] {
        let mut client = UnixStream::connect(&socket).unwrap();
        write!(client, "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${length}\r\n").unwrap();
        drop(client);
        let mut next = UnixStream::connect(&socket).unwrap();
        next.set_read_timeout(Some(LIMIT)).unwrap();
        next.write_all(b"*2\r\n$6\r\nEXISTS\r\n$1\r\nk\r\n").unwrap();
        let mut said = [0; 4];
        next.read_exact(&mut said).unwrap();
        assert_eq!(&said, b":0\r\n", "{length}: {}", connector(&shop));
    }
    let status = connector(&shop);
    assert_eq!(status["dropped"], 2, "{status}");
    no_secrets(&shop);
}

/// Reads until PostgreSQL waits for the next query.
fn read_until_ready(client: &mut UnixStream) -> Vec<u8> {
    let mut said = Vec::new();
    while !said.ends_with(b"Z\0\0\0\x05I") {
        let mut byte = [0];
        client.read_exact(&mut byte).unwrap();
        said.extend(byte);
    }
    said
}

fn client_of_postgres(shop: &Shop) -> UnixStream {
    let mut client = UnixStream::connect(shop.site.path().join(".s.PGSQL.5432")).unwrap();
    client.set_read_timeout(Some(LIMIT)).unwrap();
    let startup = b"\0\0\0\x24\0\x03\0\0user\0visitor\0database\0shop\0\0";
    client.write_all(startup).unwrap();
    read_until_ready(&mut client);
    client
}

fn query(text: &str) -> Vec<u8> {
    let length = u32::try_from(text.len() + 5).unwrap();
    [b"Q", &length.to_be_bytes()[..], text.as_bytes(), b"\0"].concat()
}

/// Otherwise the connector's goodbye would become the rest of the query.
#[test]
fn a_postgresql_client_that_disconnects_within_a_query_changes_nothing() {
    let shop = shop_of_one_session(DatabaseKind::Postgres, "PdoPgsql");
    // The goodbye is X and a length of four bytes.
    for missing in 1..=5 {
        let mut client = client_of_postgres(&shop);
        let whole =
            query(&format!("create table half{missing} (a int) -- {}", "x".repeat(missing)));
        client.write_all(&whole[..whole.len() - missing]).unwrap();
        drop(client);
        let mut next = client_of_postgres(&shop);
        next.write_all(&query(
            "select count(*) || ' tables' from pg_tables where tablename like 'half%'",
        ))
        .unwrap();
        let said = String::from_utf8_lossy(&read_until_ready(&mut next)).into_owned();
        assert!(said.contains("0 tables"), "{missing}: {said}");
    }
    let status = connector(&shop);
    assert_eq!(status["dropped"], 5, "{status}");
}

/// Programs that PHP starts inherit its sockets: the connection does not end while they run.
#[test]
fn a_session_is_free_after_its_clients_quit_command() {
    let shop = shop_of_one_session(DatabaseKind::Postgres, "PdoPgsql");
    let mut client = client_of_postgres(&shop);
    assert_eq!(connector(&shop)["used"], 1);
    client.write_all(b"X\0\0\0\x04").unwrap();
    eventually("another client may use it", LIMIT, || connector(&shop)["idle"] == 1);
    assert_eq!(client.read(&mut [0]).unwrap(), 0, "servers close the connection");
}

/// A client whose end is noticed too late would take a job that it cannot read.
#[test]
fn a_redis_client_that_disconnects_while_it_waits_takes_no_job() {
    let shop = Setup::new(DatabaseKind::Redis).open("PhpRedis", |serve| {
        serve.set("HEARTH_DATABASES_KEEP", "off").set("HEARTH_DATABASES_RESET_TIMEOUT", "1h")
    });
    eventually("the connector's own first session is free", LIMIT, || {
        connector(&shop)["used"] == 0
    });
    let socket = shop.site.path().join("connector.sock");
    let other = UnixStream::connect(&socket).unwrap();
    other.set_read_timeout(Some(LIMIT)).unwrap();
    let mut other = BufReader::new(other);
    let mut say = |command: &str| {
        writeln!(other.get_mut(), "{command}\r").unwrap();
        let mut said = String::new();
        other.read_line(&mut said).unwrap();
        if let Some(length) = said.strip_prefix('$') {
            let mut text = vec![0; length.trim().parse::<usize>().unwrap() + 2];
            other.read_exact(&mut text).unwrap();
            said = String::from_utf8(text).unwrap();
        }
        said
    };
    let mut client = UnixStream::connect(&socket).unwrap();
    client.write_all(b"BLPOP q 0\r\n").unwrap();
    eventually("it waits", LIMIT, || say("INFO clients").contains("blocked_clients:1"));
    drop(client);
    eventually("its session has ended", LIMIT, || connector(&shop)["used"] == 1);
    assert_eq!(say("RPUSH q job"), ":1\r\n");
    assert_eq!(say("LLEN q"), ":1\r\n", "the job is still queued");
}

/// After a reset such a session cannot use any `InnoDB` table, and keeps its locks forever.
#[test]
fn a_session_with_a_prepared_transaction_is_not_shared() {
    let setup = Setup::new(DatabaseKind::MariaDb).key("sessions = 1").key("wait = '30s'");
    setup.configure();
    let open =
        format!("new PDO('mysql:dbname=shop;unix_socket={}', '', '')", setup.address().display());
    setup.site.write(
        "php.php",
        &format!(
            "<?php while (hearth_handle_request(function () {{ $client = {open};\n\
             foreach (explode(';', $_GET['sql']) as $sql) {{ $rows = $client->query($sql)->fetchAll(PDO::FETCH_NUM); }}\n\
             echo json_encode($rows); }})) {{ }}"
        ),
    );
    let serve = Serve::new(setup.site.path().join("php.php")).model("snapshot");
    let hearth = with_extensions(serve).workers(1).start();
    let say = |sql: &str| hearth.get(&format!("/?sql={}", sql.replace(' ', "+"))).json();
    say("xa start 'a';insert into things values (7, 1);xa end 'a';xa /* soon */ prepare 'a'");
    assert_eq!(say("select count(*) from things"), json!([[0]]), "{}", hearth.log().text());
    say("xa commit 'a'");
    assert_eq!(say("select id from things"), json!([[7]]), "{}", hearth.log().text());
    let status = || hearth.status()["connectors"][0].clone();
    eventually("the session is free again", LIMIT, || status()["used"] == 0);
    let status = status();
    assert_eq!((&status["dropped"], &status["idle"]), (&json!(1), &json!(1)), "{status}");
}
