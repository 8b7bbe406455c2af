//! The connections in Laravel's and Doctrine's configuration that use a connector, and those that keep their address.

use serde_json::{Value, json};

use super::*;
use crate::hearth::{Serve, Site};

/// The page passes connections to Hearth's own script, and prints how the script changed them.
const PAGE: &str = r"<?php
namespace Doctrine\DBAL {
    class Connection
    {
        public function __construct(private array $params) {}
        public function getParams(): array { return $this->params; }
    }
}
namespace Symfony\Component\DependencyInjection {
    interface ContainerInterface {}
}
namespace {
    require __DIR__ . '/connectors.php';
    final class Config
    {
        public function __construct(public array $of) {}
        public function get(string $name): mixed { return $this->of[$name] ?? null; }
        public function set(string $name, mixed $value): void { $this->of[$name] = $value; }
    }
    final class Container implements Symfony\Component\DependencyInjection\ContainerInterface
    {
        public function __construct(public array $connections) {}
        public function has(): bool { return true; }
        public function get(): self { return $this; }
        public function getConnections(): array { return $this->connections; }
    }
    $given = json_decode(file_get_contents(__DIR__ . '/given.json'), true);
    $laravel = new Config(['database.connections' => $given['laravel'], 'database.redis' => $given['redis']]);
    Hearth\Worker\Connectors::ofLaravel($laravel);
    $doctrine = new Container(array_map(fn ($params) => new Doctrine\DBAL\Connection($params), $given['doctrine']));
    Hearth\Worker\Connectors::ofSymfony($doctrine);
    echo json_encode([
        'set' => array_diff_key($laravel->of, ['database.connections' => 1, 'database.redis' => 1]),
        'doctrine' => array_map(fn ($connection) => $connection->getParams(), $doctrine->connections),
    ], JSON_FORCE_OBJECT);
}
";

/// Sends connections to two connectors, for one server of each kind. Nothing listens on these ports, and none is used.
fn sent(given: &Value) -> Value {
    let site = Site::empty()
        .with_file("index.php", PAGE)
        .with_file("connectors.php", include_str!("../../../../src/app/workers/connectors.php"))
        .with_file("given.json", &given.to_string())
        .with_file(
            "hearth.toml",
            "[databases.connectors.shop]\nurl = 'mysql://shop_rw:x@127.0.0.1:1'\nsocket = 'shop.sock'\n\
             [databases.connectors.reports]\nurl = 'mysql://reports_ro:y@127.0.0.1:1'\nsocket = 'reports.sock'\n\
             [databases.connectors.pg]\nurl = 'postgresql://shop:x@127.0.0.1:1'\nsocket = '.s.PGSQL.5432'\n\
             [databases.connectors.cache]\nurl = 'redis://:x@127.0.0.1:1'\nsocket = 'cache.sock'\n\
             [databases.connectors.jobs]\nurl = 'redis://worker:x@127.0.0.1:1'\nsocket = 'jobs.sock'\n",
        );
    let hearth = Serve::new(site.path()).workers(1).start();
    let folder = site.path().canonicalize().unwrap();
    let answer = hearth.get("/index.php").text();
    serde_json::from_str(&answer.replace("\\/", "/").replace(folder.to_str().unwrap(), ""))
        .unwrap_or_else(|error| panic!("{error}: {answer}"))
}

fn given(laravel: &Value, redis: &Value, doctrine: &Value) -> Value {
    json!({ "laravel": laravel, "redis": redis, "doctrine": doctrine })
}

#[test]
fn a_connection_uses_the_connector_of_its_user_or_the_configured_address() {
    let mysql =
        |user: &str| json!({ "driver": "mysql", "host": "127.0.0.1", "port": 1, "username": user });
    let doctrine =
        |user: &str| json!({ "driver": "pdo_pgsql", "host": "127.0.0.1", "port": 1, "user": user });
    let redis = |user: &str| json!({ "host": "127.0.0.1", "port": 1, "username": user });
    let unused = json!({ "driver": "mysql", "host": "127.0.0.1", "port": 1 });
    let told = sent(&given(
        &json!({
            "shop": mysql("shop_rw"), "reports": mysql("reports_ro"), "tenant": mysql("tenant_7"), "unused": unused,
        }),
        &json!({
            "cache": { "host": "127.0.0.1", "port": 1 }, "default": redis("default"), "jobs": redis("worker"), "other": redis("other"),
        }),
        &json!({ "shop": doctrine("shop"), "tenant": doctrine("tenant_7") }),
    ));
    let socket = |name: &str| told["set"][name]["unix_socket"].as_str().map(str::to_owned);
    let socket = |name: &str| socket(&format!("database.connections.{name}"));
    assert_eq!(socket("shop").as_deref(), Some("/shop.sock"), "{told}");
    assert_eq!(socket("reports").as_deref(), Some("/reports.sock"), "{told}");
    assert_eq!(socket("tenant"), None, "{told}");
    assert!(socket("unused").is_some(), "{told}");
    let host = |name: &str| told["set"][format!("database.redis.{name}")]["host"].clone();
    assert_eq!(host("cache"), "/cache.sock", "{told}");
    assert_eq!(host("default"), "/cache.sock", "{told}");
    assert_eq!(host("jobs"), "/jobs.sock", "{told}");
    assert_eq!(host("other"), Value::Null, "{told}");
    assert_eq!(told["doctrine"]["shop"]["host"], "", "{told}");
    assert_eq!(told["doctrine"]["tenant"], doctrine("tenant_7"), "{told}");
}

#[test]
fn a_connection_to_several_hosts_bypasses_connectors() {
    let with = |key: &str| {
        json!({
            "driver": "pgsql", "host": "127.0.0.1", "port": 1, "username": "shop", "user": "shop", "sslmode": "verify-full",
            "sslrootcert": "/ca.pem", key: { "host": "replica.internal" },
        })
    };
    let of_doctrine = |key: &str| {
        let mut params = with(key);
        params["driver"] = json!("pdo_pgsql");
        params
    };
    let told = sent(&given(
        &json!({ "read": with("read"), "write": with("write"), "one": with("prefix") }),
        &json!({}),
        &json!({ "primary": of_doctrine("primary"), "replica": of_doctrine("replica"), "one": of_doctrine("dbname") }),
    ));
    let set: Vec<_> = told["set"].as_object().unwrap().keys().collect();
    assert_eq!(set, ["database.connections.one"], "{told}");
    assert_eq!(told["set"]["database.connections.one"]["sslmode"], Value::Null, "{told}");
    assert_eq!(told["doctrine"]["primary"], of_doctrine("primary"), "{told}");
    assert_eq!(told["doctrine"]["replica"], of_doctrine("replica"), "{told}");
    assert_eq!(told["doctrine"]["one"]["host"], "", "{told}");
}

/// The application is configured for the server itself, as it was without a connector, and needs no change.
#[test]
fn laravel_uses_the_connectors_for_its_servers() {
    let redis = Database::with_tls(DatabaseKind::Redis, &certificates().origin, false);
    let redis_port = redis.port();
    for kind in [DatabaseKind::MariaDb, DatabaseKind::Postgres] {
        let database = Database::with_tls(kind, &certificates().origin, false);
        let (host, port) = (Database::HOST, database.port());
        let (scheme, driver, id) = match kind {
            DatabaseKind::Postgres => ("postgresql", "pgsql", "pg_backend_pid()"),
            _ => ("mysql", "mysql", "connection_id()"),
        };
        let site = crate::isolation::published_leaks::laravel_example();
        certificates().authority.write(site.path(), "authority");
        site.write("password", DATABASE_PASSWORD);
        site.write(
            "hearth.toml",
            &format!(
                "[databases.connectors.main]\nurl = '{scheme}://visitor@{host}:{port}/shop'\npassword_file = 'password'\nsslrootcert = 'authority.pem'\n\
                 [databases.connectors.cache]\nurl = 'rediss://{host}:{redis_port}'\nsslrootcert = 'authority.pem'\n"
            ),
        );
        site.write(
            "config/database.php",
            &format!(
                "<?php return ['default' => 'shop', 'connections' => ['shop' => ['driver' => '{driver}', 'host' => '{host}', 'port' => {port}, 'database' => 'shop',\n\
                 'username' => 'visitor', 'password' => '', 'charset' => 'utf8', 'prefix' => '', 'sslmode' => 'verify-full',\n\
                 'options' => [PDO::MYSQL_ATTR_SSL_CA => '/nowhere.pem']]],\n\
                 'redis' => ['client' => 'phpredis', 'default' =>\n\
                 ['host' => 'tls://{host}', 'port' => {redis_port}, 'password' => '{DATABASE_PASSWORD}', 'database' => 3]]];"
            ),
        );
        site.write(
            "routes/web.php",
            &format!(
                "<?php use Illuminate\\Support\\Facades\\{{DB, Route}};\n\
                 Route::get('/', fn () => 'home');\n\
                 Route::get('/ids', fn () => response()->json(['database' => DB::selectOne('select {id} id')->id,\n\
                 'redis' => app('redis')->connection()->command('client', ['id'])]));"
            ),
        );
        crate::databases::frameworks::with_redis_session(&site);
        let hearth = with_extensions(Serve::new(site.path())).workers(1).start();
        let ids = || crate::databases::frameworks::ids_of(&hearth);
        let first = ids();
        let logins = (database.logins(), redis.logins());
        for _ in 0..5 {
            assert_eq!(ids(), first, "{kind:?}: {}", hearth.log().text());
        }
        assert_eq!((database.logins(), redis.logins()), logins, "{kind:?}: no login for a request");
        assert!(!hearth.log().text().contains(DATABASE_PASSWORD));
    }
}

#[test]
fn doctrine_uses_the_connectors_for_its_servers() {
    for kind in [DatabaseKind::MariaDb, DatabaseKind::Postgres] {
        let database = Database::with_tls(kind, &certificates().origin, false);
        let (host, port) = (Database::HOST, database.port());
        let (scheme, driver, id) = match kind {
            DatabaseKind::Postgres => ("postgresql", "pdo_pgsql", "select pg_backend_pid()"),
            _ => ("mysql", "pdo_mysql", "select connection_id()"),
        };
        let connection = json!({
            "driver": driver, "host": host, "port": port, "dbname": "shop", "user": "visitor", "password": "", "charset": "utf8",
            "sslmode": "verify-full",
        });
        let site = crate::databases::frameworks::symfony_site();
        certificates().authority.write(site.path(), "authority");
        site.write("password", DATABASE_PASSWORD);
        site.write(
            "hearth.toml",
            &format!("[databases.connectors.main]\nurl = '{scheme}://visitor@{host}:{port}/shop'\npassword_file = 'password'\nsslrootcert = 'authority.pem'\n"),
        );
        let serve = Serve::new(site.path())
            .set("CONNECTION", &connection.to_string())
            .set("ID", id)
            .model("snapshot");
        let hearth = with_extensions(serve).workers(1).start();
        let ids = || crate::databases::frameworks::ids_of(&hearth);
        let first = ids();
        let logins = database.logins();
        for _ in 0..5 {
            assert_eq!(ids(), first, "{kind:?}: {}", hearth.log().text());
        }
        assert_eq!(database.logins(), logins, "{kind:?}: no login for a request");
    }
}
