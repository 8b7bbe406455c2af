//! Laravel and Symfony keep their connections without any configuration, and find sessions, cache and jobs through
//! them.

use std::net::TcpListener;

use serde_json::{Value, json};
use testkit::{DATABASE_PASSWORD, Database, DatabaseKind};

use super::with_extensions;
use crate::hearth::{Hearth, LIMIT, Serve, Site};

/// Writes Laravel's own configuration files for a MariaDB or PostgreSQL and a Redis, and pages that report on their
/// connections.
///
/// `client`: `phpredis` or `predis`. Sessions and cache are in Redis; the queue has its own Redis database. MariaDB has
/// one connection for reads and another for writes, as with replicas.
fn laravel(site: &Site, database: &Database, redis: &Database, client: &str) {
    let address = database.address().display().to_string();
    let driver = match database.kind() {
        DatabaseKind::Postgres => {
            format!("'driver' => 'pgsql', 'host' => '{address}', 'port' => 5432")
        }
        _ => format!(
            "'driver' => 'mysql', 'read' => ['unix_socket' => '{address}'], 'write' => ['unix_socket' => '{address}'], 'sticky' => true"
        ),
    };
    let redis = redis.address().display().to_string();
    site.write(
        "config/database.php",
        &format!(
            "<?php if ('{client}' === 'predis') {{ require_once '/usr/share/php/Predis/autoload.php'; }}\n\
             $redis = ['scheme' => 'unix', 'path' => '{redis}', 'host' => '{redis}', 'port' => 0, 'password' => '{DATABASE_PASSWORD}'];\n\
             return ['default' => 'shop', 'connections' => ['shop' => [{driver}, 'database' => 'shop',\n\
             'username' => 'visitor', 'password' => '{DATABASE_PASSWORD}', 'charset' => 'utf8', 'prefix' => '', 'strict' => true]],\n\
             'redis' => ['client' => '{client}', 'options' => ['prefix' => ''], 'default' => $redis + ['database' => 3], 'jobs' => $redis + ['database' => 4]]];"
        ),
    );
    site.write(
        "config/queue.php",
        "<?php return ['default' => 'redis', 'connections' => ['redis' => ['driver' => 'redis', 'connection' => 'jobs', 'queue' => 'default',\n\
         'retry_after' => 90, 'block_for' => null]], 'failed' => ['driver' => 'null']];",
    );
    with_redis_session(site);
    let id = match database.kind() {
        DatabaseKind::Postgres => "pg_backend_pid()",
        _ => "connection_id()",
    };
    site.write(
        "routes/web.php",
        &format!(
            "<?php use Illuminate\\Support\\Facades\\{{DB, Queue, Route}};\n\
             Route::get('/', fn () => 'home');\n\
             $client = fn ($name) => app('redis')->connection($name)->client();\n\
             $id = fn ($client) => $client instanceof Redis ? $client->rawCommand('CLIENT', 'ID') : $client->executeRaw(['CLIENT', 'ID']);\n\
             Route::get('/ids', fn () => response()->json([\n\
                 'level' => DB::transactionLevel(), 'read' => DB::selectOne('select {id} id')->id,\n\
                 'write' => DB::selectFromWriteConnection('select {id} id')[0]->id,\n\
                 'redis' => $id($client('default')), 'jobs' => $id($client('jobs')), 'pid' => getmypid()]));\n\
             Route::get('/leave', function () use ($client) {{\n\
                 DB::beginTransaction(); DB::insert('insert into shop.things (id) values (7)');\n\
                 $client('default')->select(5); $client('default')->multi(); return 'left'; }});\n\
             Route::get('/push', fn () => [Queue::pushRaw('a job'), Queue::size()][1]);\n\
             Route::get('/visits', fn () => session(['visits' => session('visits', 0) + 1]) ?? session('visits'));\n\
             Route::get('/count', fn () => DB::selectOne('select count(*) n from shop.things')->n);"
        ),
    );
}

/// Configures sessions and cache in Redis, with their service provider and that of queues.
pub(crate) fn with_redis_session(site: &Site) {
    site.write(
        "config/session.php",
        "<?php return ['driver' => 'redis', 'connection' => null, 'lifetime' => 60, 'expire_on_close' => false, 'encrypt' => false,\n\
         'lottery' => [0, 1], 'cookie' => 's', 'path' => '/', 'domain' => null, 'secure' => false, 'http_only' => true, 'same_site' => 'lax'];",
    );
    site.write(
        "config/cache.php",
        "<?php return ['default' => 'redis', 'stores' => ['redis' => ['driver' => 'redis']], 'prefix' => 'chat'];",
    );
    let app = std::fs::read_to_string(site.path().join("config/app.php")).unwrap();
    let provider = "'providers' => [Illuminate\\Redis\\RedisServiceProvider::class, Illuminate\\Queue\\QueueServiceProvider::class,";
    site.write("config/app.php", &app.replace("'providers' => [", provider));
}

/// Requests a page that counts a session's visits, and returns the session's cookie.
fn visit(hearth: &Hearth, cookie: &str, expected: &str) -> String {
    let answer = hearth.connect().request("GET", "/visits", &[("cookie", cookie)], b"").unwrap();
    assert_eq!(answer.text(), expected, "{}", hearth.log().text());
    let cookies = answer.all("set-cookie");
    let cookie = cookies.iter().find(|cookie| cookie.starts_with("s=")).unwrap();
    cookie.split(';').next().unwrap().to_owned()
}

#[test]
fn laravel_keeps_its_default_connections_without_configuration() {
    for (kind, client) in [(DatabaseKind::MariaDb, "phpredis"), (DatabaseKind::Postgres, "predis")]
    {
        let redis = Database::start(DatabaseKind::Redis);
        let database = Database::start(kind);
        let site = crate::isolation::published_leaks::laravel_example();
        laravel(&site, &database, &redis, client);
        let hearth = with_extensions(Serve::new(site.path())).workers(1).start();
        let ids = || ids_of(&hearth);
        let first = ids();
        for _ in 0..3 {
            assert_eq!(ids(), first, "{kind:?}: {}", hearth.log().text());
        }
        // Without a replica both are the same connection.
        assert_eq!(first["read"] == first["write"], kind == DatabaseKind::Postgres);
        assert_eq!(hearth.get("/leave").status, 200);
        assert_eq!(ids(), first, "{kind:?}: {}", hearth.log().text());
        assert_eq!(hearth.get("/count").text(), "0");
        // Jobs and sessions are available to the next request, over the same connections.
        assert_eq!([hearth.get("/push").text(), hearth.get("/push").text()], ["1", "2"]);
        let cookie = visit(&hearth, "", "1");
        visit(&hearth, &cookie, "2");
        assert_eq!(ids(), first, "{kind:?}: {}", hearth.log().text());
        let kept = if kind == DatabaseKind::Postgres { 3 } else { 4 };
        assert_eq!(hearth.status()["pool"]["databases"]["kept"], kept);
        assert!(!hearth.log().text().contains(DATABASE_PASSWORD));
    }
}

/// The answer of `/ids`: the ids of the application's connections at their servers.
pub(crate) fn ids_of(hearth: &Hearth) -> Value {
    let answer = hearth.get("/ids");
    let is_json = answer.status == 200 && answer.text().starts_with('{');
    assert!(is_json, "{}\n{}", answer.text(), hearth.log().text());
    answer.json()
}

/// Creates a Symfony application with Doctrine's connections.
pub(crate) fn symfony_site() -> Site {
    let autoload = format!(
        "<?php $loader = require '{}'; require '/usr/share/php/Doctrine/DBAL/autoload.php';\n\
         require dirname(__DIR__) . '/src/Kernel.php'; return $loader;",
        crate::isolation::published_leaks::example("symfony-api")
            .join("vendor/autoload.php")
            .display()
    );
    Site::empty()
        .with_folder("databases_symfony")
        .with_file("vendor/autoload.php", &autoload)
        .with_file("bin/console", "")
}

#[test]
fn symfony_keeps_doctrines_connections_without_configuration() {
    for kind in [DatabaseKind::MariaDb, DatabaseKind::Postgres] {
        let database = Database::start(kind);
        let address = database.address().display().to_string();
        let (driver, place, id) = match kind {
            DatabaseKind::Postgres => ("pdo_pgsql", "host", "select pg_backend_pid()"),
            _ => ("pdo_mysql", "unix_socket", "select connection_id()"),
        };
        let connection = json!({
            "driver": driver, place: address, "dbname": "shop", "user": "visitor",
            "password": DATABASE_PASSWORD, "charset": "utf8",
        });
        let site = symfony_site();
        let serve = Serve::new(site.path())
            .set("CONNECTION", &connection.to_string())
            .set("ID", id)
            .model("snapshot");
        let hearth = with_extensions(serve).workers(1).start();
        let ids = || ids_of(&hearth);
        let first = ids();
        for _ in 0..3 {
            assert_eq!(ids(), first, "{kind:?}: {}", hearth.log().text());
        }
        assert_eq!(hearth.get("/leave").status, 200);
        assert_eq!(ids(), first, "{kind:?}: {}", hearth.log().text());
        assert_eq!(hearth.get("/count").text(), "0");
    }
}

#[test]
fn a_symfony_boot_that_does_not_reach_its_database_names_host_and_port() {
    // A port on which nothing listens: it was free a moment ago.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let connection = json!({
        "driver": "pdo_mysql", "host": "127.0.0.1", "port": port, "dbname": "shop", "user": "visitor", "password": DATABASE_PASSWORD,
    });
    let site = symfony_site();
    let serve = Serve::new(site.path())
        .set("CONNECTION", &connection.to_string())
        .set("ASKS_AT_BOOT", "1")
        .model("snapshot");
    let process = with_extensions(serve).workers(1).launch();
    let found = process.log().find(LIMIT, |line| {
        let is_failure = line.contains("the application did not boot: ");
        is_failure.then(|| line.to_owned())
    });
    let failure = found.unwrap_or_else(|| panic!("it boots:\n{}", process.log().text()));
    for part in ["SQLSTATE[HY000] [2002]", &format!("(the database at 127.0.0.1:{port})")] {
        assert!(failure.contains(part), "no {part:?} in {failure}");
    }
    assert!(!process.log().text().contains(DATABASE_PASSWORD));
}

/// A request reads from the replica, over a kept connection, until it writes. From then on it uses the primary, until
/// its end.
#[test]
fn symfony_keeps_the_replica_that_doctrine_reads_from() {
    let database = Database::start(DatabaseKind::MariaDb);
    let server = json!({
        "unix_socket": database.address().display().to_string(), "dbname": "shop", "user": "visitor",
        "password": DATABASE_PASSWORD, "charset": "utf8",
    });
    let connection = json!({
        "driver": "pdo_mysql", "wrapperClass": "Doctrine\\DBAL\\Connections\\PrimaryReadReplicaConnection",
        "primary": server, "replica": [server],
        // Without this option Doctrine closes the connection to its replica when it writes.
        "keepReplica": true,
    });
    let site = symfony_site();
    let serve = Serve::new(site.path())
        .set("CONNECTION", &connection.to_string())
        .set("ID", "select connection_id()")
        .model("snapshot");
    let hearth = with_extensions(serve).workers(1).start();
    let ids = || ids_of(&hearth);
    let first = ids();
    for _ in 0..3 {
        assert_eq!(ids(), first, "{}", hearth.log().text());
        assert_eq!(hearth.get("/leave").status, 200);
    }
    assert_eq!(ids(), first, "{}", hearth.log().text());
    assert_eq!(hearth.get("/count").text(), "0");
    assert_eq!(hearth.status()["pool"]["databases"]["kept"], 1);
}
