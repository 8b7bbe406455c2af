//! Database connections that stay open while a snapshot worker is restored. The next request finds nothing of what a
//! request left in the database session, and clients survive a restart of the database.
//!
//! Frameworks: databases/frameworks.rs. What servers do at a login: databases/logins.rs. Poolers: databases/pgbouncer.rs.
//! Failures: databases/faults.rs. Servers that send no answer: databases/silence.rs. `SQLite`, without a server:
//! databases/sqlite.rs.
//!
//! The tests use real MariaDB, PostgreSQL and Redis, and PHP's own clients (tests/php/databases).
//! `DATABASES_ROUNDS=20000` makes the random runs longer.

mod connectors;
mod faults;
pub(crate) mod frameworks;
mod lifetime;
mod logins;
mod pgbouncer;
mod silence;
mod sqlite;
mod sqlite_kept;
mod statements;
mod transports;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::{DATABASE_PASSWORD, Database, DatabaseKind, Origin, eventually, routes};

pub(crate) use self::lifetime::{a_restart_within_a_transaction, restarts_between_requests};
use crate::hearth::{Hearth, LIMIT, Serve, Site};

/// A database client of PHP, its server, and the `do_*` calls that end the worker because their effect on the server is
/// unknown.
pub(crate) struct Client {
    pub(crate) class: &'static str,
    pub(crate) kind: DatabaseKind,
    pub(crate) retiring: &'static [&'static str],
}

/// The calls that retire a worker whose client speaks the protocol over a stream of PHP.
const STREAM_RETIRING: &[&str] = &[
    "close",
    "reconnect",
    "half_header",
    "half_message",
    "one_and_a_half",
    "half_read",
    "unread",
    "unknown_message",
    "encrypt",
];

const CLIENTS: &[Client] = &[
    Client {
        class: "PdoMysql",
        kind: DatabaseKind::MariaDb,
        retiring: &["killed", "unread", "close", "reconnect", "role", "profiling", "rand_seed"],
    },
    Client {
        class: "MysqliClient",
        kind: DatabaseKind::MariaDb,
        retiring: &[
            "killed",
            "close",
            "reconnect",
            "async_answered",
            "async_under_way",
            "several_under_way",
            "change_user",
            "role",
            "profiling",
            "rand_seed",
        ],
    },
    Client {
        class: "PdoPgsql",
        kind: DatabaseKind::Postgres,
        retiring: &["killed", "close", "reconnect"],
    },
    Client {
        class: "PgsqlClient",
        kind: DatabaseKind::Postgres,
        retiring: &[
            "killed",
            "close",
            "reconnect",
            "copy_in",
            "copy_out",
            "sent_and_under_way",
            "sent_and_answered",
        ],
    },
    Client {
        class: "RedisStream",
        kind: DatabaseKind::Redis,
        retiring: &[
            "killed",
            "close",
            "reconnect",
            "no_answers",
            "unread",
            "under_way",
            "half_sent",
            "half_pipeline",
            "encrypt",
        ],
    },
    Client {
        class: "PhpRedis",
        kind: DatabaseKind::Redis,
        retiring: &["killed", "close", "reconnect", "no_evict"],
    },
    Client {
        class: "PredisClient",
        kind: DatabaseKind::Redis,
        // Its loop closes the connection when no variable refers to it any more.
        retiring: &["killed", "close", "reconnect", "subscribe"],
    },
    Client { class: "MysqlStream", kind: DatabaseKind::MariaDb, retiring: STREAM_RETIRING },
    Client { class: "PgsqlStream", kind: DatabaseKind::Postgres, retiring: STREAM_RETIRING },
];

pub(crate) fn client(class: &str) -> &'static Client {
    CLIENTS.iter().find(|client| client.class == class).unwrap()
}

pub(crate) struct Shop {
    pub(crate) hearth: Hearth,
    pub(crate) database: Database,
    pub(crate) site: Site,
}

impl Shop {
    pub(crate) fn open(client: &Client, configure: impl FnOnce(Serve) -> Serve) -> Self {
        Self::with(client, Database::start(client.kind), configure)
    }

    pub(crate) fn with(
        client: &Client,
        database: Database,
        configure: impl FnOnce(Serve) -> Serve,
    ) -> Self {
        let site = Site::empty().with_folder("databases");
        let address = database.address();
        Self::at(client, database, site, &address, configure)
    }

    /// Starts an application that connects to `address`.
    pub(crate) fn at(
        client: &Client,
        database: Database,
        site: Site,
        address: &Path,
        configure: impl FnOnce(Serve) -> Serve,
    ) -> Self {
        let serve = serve(&site)
            .set("HEARTH_PHP_ENV", &format!("KIND={};SERVER={}", client.class, address.display()));
        Self { hearth: configure(serve.set("HEARTH_PHP_WORKERS", "1")).start(), database, site }
    }

    pub(crate) fn get(&self, query: &str) -> Value {
        let answer = self.hearth.get(&format!("/?{query}"));
        let text = answer.text();
        // After a fatal error of a `do_*` call, PHP's error page follows the JSON.
        let mut values = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
        match values.next() {
            Some(Ok(value)) => value,
            _ => panic!("{query}: {} {text}\n{}", answer.status, self.hearth.log().text()),
        }
    }

    /// Sends enough requests for the connections to count as stable.
    pub(crate) fn use_until_stable(&self) {
        let mut connection = self.hearth.connect();
        for _ in 0..20 {
            connection.get("/?look").unwrap();
        }
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let names = self.get("names");
        let names = names["answer"].as_array().unwrap().iter();
        names.map(|name| name.as_str().unwrap().strip_prefix("do_").unwrap().to_owned()).collect()
    }
}

fn serve(site: &Site) -> Serve {
    with_extensions(Serve::new(site.path().join("worker.php"))).model("snapshot")
}

/// Sets the folder of the database extensions, if there is one, and long time-outs: both processors may be busy.
pub(crate) fn with_extensions(serve: Serve) -> Serve {
    let serve = serve
        .set("HEARTH_DATABASES_RESET_TIMEOUT", "20s")
        .set("HEARTH_DATABASES_CONNECT_TIMEOUT", "20s");
    match std::env::var_os("PHP_INI_SCAN_DIR") {
        Some(folders) => serve.set("PHP_INI_SCAN_DIR", folders.to_str().unwrap()),
        None => serve,
    }
}

/// Runs every row of the table "left by the request" for one client.
fn nothing_is_left_behind(class: &str) {
    let client = client(class);
    nothing_is_left_in(client, &Shop::open(client, |serve| serve));
}

pub(crate) fn nothing_is_left_in(client: &Client, shop: &Shop) {
    let class = client.class;
    let fresh = shop.get("look");
    assert_eq!(fresh["kept"], true, "{}", shop.hearth.log().text());
    let names = shop.names();
    for wanted in client.retiring {
        assert!(names.iter().any(|name| name == wanted), "{class} has no do_{wanted}");
    }
    for name in &names {
        let before = shop.get("look");
        let done = shop.get(&format!("do={name}"));
        assert_eq!(done["id"], before["id"], "{name}: the kept connection is used");
        let after = shop.get("look");
        assert_same(&after, &fresh, &format!("{class}: {name} has left something"));
        let same = after["id"] == before["id"] && after["pid"] == before["pid"];
        let retires = client.retiring.contains(&name.as_str());
        assert_eq!(same, !retires, "{class}: {name}: {}", shop.hearth.log().text());
        if retires {
            shop.use_until_stable();
        }
    }
    let counted = shop.hearth.status()["pool"]["databases"].clone();
    assert_eq!(counted["kept"], 1, "{counted}");
    assert!(counted["resets"].as_u64().unwrap() > names.len() as u64, "{counted}");
    assert_eq!(counted["retired"], client.retiring.len(), "{counted}");
    reports_show(shop, &counted["servers"]);
    // A session that was reset equals one that was never used.
    assert_same(&shop.get("fresh"), &fresh, "a session that was never used");
    no_secrets(shop);
}

/// Checks that `/status`, the dashboard and the metrics show the server, the time of resets, and why workers ended.
fn reports_show(shop: &Shop, servers: &Value) {
    let all = servers.as_array().unwrap();
    assert_eq!(all.len(), 1, "{servers}");
    let server = &all[0];
    assert_eq!(server["kept"], 1, "{server}");
    assert!(server["connection"].as_str().unwrap().contains("/tmp"), "{server}");
    let times = &server["reset_times"];
    let time = |name: &str| times[name].as_f64().unwrap();
    assert!(time("p50") > 0.0 && time("p50") <= time("p99"), "{times}");
    assert!(time("p99") <= time("longest"), "{times}");
    let reasons = server["retired"].as_object().unwrap();
    let ended: u64 = reasons.values().filter_map(Value::as_u64).sum();
    assert_eq!(ended, shop.hearth.status()["pool"]["databases"]["retired"], "{server}");
    let page = shop.hearth.admin("/").text();
    for (why, count) in reasons {
        assert!(page.contains(&format!("; {count} workers retired: {why}")), "{page}");
    }
    let metrics = shop.hearth.admin("/metrics").text();
    let quantile = metrics.lines().find(|line| line.contains("quantile=\"0.99\""));
    assert!(quantile.unwrap().starts_with("hearth_database_server_reset_quantile_seconds{"));
}

/// Compares the state of two sessions and names the differences.
pub(crate) fn assert_same(left: &Value, right: &Value, what: &str) {
    let (left, right) = (left["answer"].as_object(), right["answer"].as_object());
    let (left, right) = (left.expect(what), right.expect(what));
    let names: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
    let differences: Vec<String> = names
        .into_iter()
        .filter(|name| left.get(*name) != right.get(*name))
        .map(|name| format!("{name}: {:?} instead of {:?}", left.get(name), right.get(name)))
        .collect();
    assert!(differences.is_empty(), "{what}: {differences:#?}");
}

pub(crate) fn no_secrets(shop: &Shop) {
    let status = shop.hearth.admin("/status").text();
    let metrics = shop.hearth.admin("/metrics").text();
    for text in [shop.hearth.log().text(), status, metrics] {
        assert!(!text.contains(DATABASE_PASSWORD), "a password in: {text}");
    }
}

#[test]
fn nothing_is_left_in_a_session_of_mariadb_through_pdo() {
    nothing_is_left_behind("PdoMysql");
}

#[test]
fn nothing_is_left_in_a_session_of_mariadb_through_mysqli() {
    nothing_is_left_behind("MysqliClient");
}

#[test]
fn nothing_is_left_in_a_session_of_postgresql_through_pdo() {
    nothing_is_left_behind("PdoPgsql");
}

#[test]
fn nothing_is_left_in_a_session_of_postgresql_through_pgsql() {
    nothing_is_left_behind("PgsqlClient");
}

#[test]
fn nothing_is_left_in_a_session_of_redis_through_a_stream() {
    nothing_is_left_behind("RedisStream");
}

#[test]
fn nothing_is_left_in_a_session_of_redis_through_phpredis() {
    nothing_is_left_behind("PhpRedis");
}

#[test]
fn nothing_is_left_in_a_session_of_redis_through_predis() {
    nothing_is_left_behind("PredisClient");
}

#[test]
fn half_packets_and_sudden_encryption_leave_nothing_in_mariadb() {
    nothing_is_left_behind("MysqlStream");
}

#[test]
fn half_packets_and_sudden_encryption_leave_nothing_in_postgresql() {
    nothing_is_left_behind("PgsqlStream");
}

/// Sends requests in random order that leave several things at once, and compares the session after each.
fn random_requests(class: &str) {
    let client = client(class);
    random_requests_of(client, &Shop::open(client, |serve| serve), 600);
}

/// Runs `rounds` rounds, or as many as `DATABASES_ROUNDS` says.
#[expect(clippy::print_stdout, reason = "shown when the test fails")]
pub(crate) fn random_requests_of(client: &Client, shop: &Shop, rounds: u32) {
    let rounds: u32 = std::env::var_os("DATABASES_ROUNDS")
        .map_or(rounds, |text| text.to_str().unwrap().parse().unwrap());
    let fresh = shop.get("look");
    let names: Vec<String> =
        shop.names().into_iter().filter(|name| !client.retiring.contains(&name.as_str())).collect();
    let mut state = u64::from(std::process::id()) | 1;
    println!("seed {state}");
    let mut draw = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).unwrap()
    };
    let mut connection = shop.hearth.connect();
    let mut ids = BTreeSet::new();
    for round in 0..rounds {
        let chosen: Vec<&str> = (0..=draw(3)).map(|_| names[draw(names.len())].as_str()).collect();
        let chosen = chosen.join(",");
        connection.get(&format!("/?do={chosen}")).unwrap();
        let mut look = connection.get("/?look").unwrap().json();
        for committed in ["rows", "things"] {
            // Several actions together may commit a row that one of them has written.
            if fresh["answer"].get(committed).is_some() {
                look["answer"][committed] = fresh["answer"][committed].clone();
            }
        }
        assert_same(&look, &fresh, &format!("round {round}: {chosen} has left something"));
        ids.insert(look["id"].to_string());
    }
    // Several actions together may leave a session in doubt, but rarely.
    assert!(ids.len() * 4 < rounds as usize, "{} connections for {rounds} requests", ids.len());
}

#[test]
fn random_requests_leave_nothing_in_mariadb() {
    random_requests("PdoMysql");
}

#[test]
fn random_requests_leave_nothing_in_postgresql() {
    random_requests("PdoPgsql");
}

#[test]
fn random_requests_leave_nothing_in_redis() {
    random_requests("PhpRedis");
}
