//! Real database servers on unix sockets in a temporary folder, each for one test only; never the system's own services.
//!
//! Invariants
//! - Every server has a database `shop` (Redis: none) and a user `visitor` with the password `a password`.
//! - A stopped server can be started again with its data.
//! - A server with TLS also listens on 127.0.0.2, and rejects unencrypted connections there.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::certificates::{Certificate, certificates};
use crate::process::{Running, eventually};

/// The password of `visitor`.
pub const DATABASE_PASSWORD: &str = "a password";

const LIMIT: Duration = Duration::from_mins(1);

/// The kind of database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseKind {
    /// `mariadbd` of Debian's mariadb-server-core.
    MariaDb,
    /// `postgres` of Debian's postgresql.
    Postgres,
    /// `redis-server`.
    Redis,
}

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct Database {
    kind: DatabaseKind,
    folder: TempDir,
    server: Option<Running>,
    tls: Option<Tls>,
}

/// The server's certificate for TCP, and its rule for client certificates.
#[derive(Debug)]
struct Tls {
    certificate: Certificate,
    /// If true, clients must have a certificate of our authority.
    asks: bool,
    port: u16,
}

impl Database {
    /// Creates the files of a new server and starts it.
    pub fn start(kind: DatabaseKind) -> Self {
        Self::start_as(kind, None)
    }

    /// Starts a server with `certificate` at [`Self::HOST`]. If `asks` is true, it requires a client certificate.
    pub fn with_tls(kind: DatabaseKind, certificate: &Certificate, asks: bool) -> Self {
        let port = TcpListener::bind((Self::HOST, 0)).and_then(|free| free.local_addr());
        let port = port.expect("a port of loopback is free").port();
        Self::start_as(kind, Some(Tls { certificate: certificate.clone(), asks, port }))
    }

    fn start_as(kind: DatabaseKind, tls: Option<Tls>) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let mut database = Self { kind, folder, server: None, tls };
        match kind {
            DatabaseKind::MariaDb => database.make_mariadb(),
            DatabaseKind::Postgres => database.make_postgres(),
            DatabaseKind::Redis => {}
        }
        database.start_again();
        if kind == DatabaseKind::Postgres {
            database.fill_postgres();
        }
        database
    }

    /// The address of servers with TLS. No other program uses it, so a free port stays free.
    pub const HOST: &str = "127.0.0.2";

    /// The port of a server with TLS.
    pub fn port(&self) -> u16 {
        self.tls.as_ref().expect("it was started with TLS").port
    }

    /// Sets the certificate for the next start.
    pub fn show(&mut self, certificate: &Certificate) {
        self.tls.as_mut().expect("it was started with TLS").certificate = certificate.clone();
    }

    /// Changes the password of `visitor`. Existing sessions stay open.
    pub fn change_password(&self, password: &str) {
        assert_eq!(self.kind, DatabaseKind::Postgres, "only there so far");
        self.psql(&format!("alter role visitor password '{password}';\n"));
    }

    /// Returns the number of logins over TLS since the last start (Redis: connections).
    pub fn logins(&self) -> usize {
        let general = || fs::read_to_string(self.path().join("general.log")).unwrap_or_default();
        let log = self.log();
        let is_login = |line: &&str| match self.kind {
            DatabaseKind::MariaDb => line.contains("Connect\tvisitor@"),
            DatabaseKind::Postgres => {
                line.contains("connection authorized") && line.contains("SSL enabled")
            }
            DatabaseKind::Redis => line.contains("Accepted 127."),
        };
        let general = if self.kind == DatabaseKind::MariaDb { general() } else { log };
        general.lines().filter(is_login).count()
    }

    /// Returns the kind of database.
    pub fn kind(&self) -> DatabaseKind {
        self.kind
    }

    /// Returns the address for clients: the socket, or its folder for `PostgreSQL`.
    pub fn address(&self) -> PathBuf {
        match self.kind {
            DatabaseKind::Postgres => self.path().to_owned(),
            _ => self.path().join("socket"),
        }
    }

    /// Returns the server's log since its last start.
    pub fn log(&self) -> String {
        fs::read(self.log_file())
            .map_or_else(|_| String::new(), |log| String::from_utf8_lossy(&log).into_owned())
    }

    fn log_file(&self) -> PathBuf {
        self.path().join("log")
    }

    /// Suspends the server until [`Self::resume`]; the kernel still accepts connections. Not for `PostgreSQL`,
    /// which consists of many processes.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Resumes a suspended server.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        assert_ne!(self.kind, DatabaseKind::Postgres, "its clients have processes of their own");
        self.server.as_ref().expect("it runs").signal(signal);
    }

    /// Stops the server. If `hard` is true, clients are not notified.
    pub fn stop(&mut self, hard: bool) {
        let Some(mut server) = self.server.take() else { return };
        let gentle = match self.kind {
            // "fast shutdown": does not wait for clients
            DatabaseKind::Postgres => Signal::INT,
            _ => Signal::TERM,
        };
        if hard && self.kind != DatabaseKind::Postgres {
            server.signal(Signal::KILL);
        } else {
            // PostgreSQL's "immediate shutdown": a killed one would leave its shared memory behind
            server.signal(if hard { Signal::QUIT } else { gentle });
        }
        server.wait(LIMIT);
    }

    /// Starts a stopped server, and waits until it accepts connections.
    pub fn start_again(&mut self) {
        let place = self.path().display();
        let mut command = match self.kind {
            DatabaseKind::MariaDb => {
                let mut command = self.mariadbd();
                command.args([
                    format!("--socket={place}/socket"),
                    format!("--pid-file={place}/pid"),
                    format!("--init-file={place}/init.sql"),
                    "--log-warnings=2".to_owned(),
                ]);
                match &self.tls {
                    None => {
                        command.arg("--skip-networking");
                    }
                    Some(tls) => {
                        let (chain, key, authority) = self.write_certificates(tls);
                        command.args([
                            format!("--bind-address={}", Self::HOST),
                            format!("--port={}", tls.port),
                            format!("--ssl-cert={chain}"),
                            format!("--ssl-key={key}"),
                            format!("--ssl-ca={authority}"),
                            "--require-secure-transport=on".to_owned(),
                            "--skip-name-resolve".to_owned(),
                            "--general-log=on".to_owned(),
                            format!("--general-log-file={place}/general.log"),
                        ]);
                        drop(fs::remove_file(self.path().join("general.log")));
                    }
                }
                command
            }
            DatabaseKind::Postgres => {
                let mut command = as_owner(&postgres_program("postgres"));
                command.arg("-D").arg(self.path().join("data")).args([
                    "-c",
                    &format!("unix_socket_directories={place}"),
                    "-c",
                    "fsync=off",
                    "-c",
                    "shared_buffers=8MB",
                ]);
                let mut set = |setting: String| {
                    command.arg("-c").arg(setting);
                };
                match &self.tls {
                    None => set("listen_addresses=".to_owned()),
                    Some(tls) => {
                        let (chain, key, authority) = self.write_certificates(tls);
                        set(format!("listen_addresses={}", Self::HOST));
                        set(format!("port={}", tls.port));
                        set("ssl=on".to_owned());
                        set(format!("ssl_cert_file={chain}"));
                        set(format!("ssl_key_file={key}"));
                        set(format!("ssl_ca_file={authority}"));
                        set("log_connections=on".to_owned());
                    }
                }
                command
            }
            DatabaseKind::Redis => {
                let mut command = Command::new("redis-server");
                if let Some(tls) = &self.tls {
                    let (chain, key, authority) = self.write_certificates(tls);
                    command.args(["--tls-port", &tls.port.to_string(), "--bind", Self::HOST]);
                    command.args(["--tls-cert-file", &chain, "--tls-key-file", &key]);
                    command.args(["--tls-ca-cert-file", &authority]);
                    command.args(["--tls-auth-clients", if tls.asks { "yes" } else { "no" }]);
                    command.args(["--loglevel", "verbose"]);
                }
                command.args(["--port", "0", "--save", "", "--requirepass", DATABASE_PASSWORD]);
                command.arg("--unixsocket").arg(self.path().join("socket"));
                command
            }
        };
        // A file instead of a pipe: lines logged before a response can be counted after it.
        let log = fs::File::create(self.log_file()).expect("our own folder is writable");
        let server = Running::start_into(&log, &mut command);
        let ready = match self.kind {
            DatabaseKind::MariaDb => "ready for connections",
            DatabaseKind::Postgres => "database system is ready to accept connections",
            DatabaseKind::Redis => "eady to accept connections", // since 7.2 with a capital
        };
        eventually("the database takes connections", LIMIT, || self.log().contains(ready));
        self.server = Some(server);
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the paths of a server's certificate, its key and the authority.
    fn write_certificates(&self, tls: &Tls) -> (String, String, String) {
        let (chain, key) = tls.certificate.write(self.path(), "server");
        let (authority, _) = certificates().authority.write(self.path(), "authority");
        if self.kind == DatabaseKind::Postgres {
            // The server rejects a key that others may read.
            fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("our own file");
            if rustix::process::getuid().is_root() {
                let own =
                    Command::new("chown").arg("postgres").args([&chain, &key, &authority]).status();
                assert!(own.expect("chown is there").success());
            }
        }
        let text = |path: PathBuf| path.display().to_string();
        (text(chain), text(key), text(authority))
    }

    fn mariadbd(&self) -> Command {
        let program = ["/usr/sbin/mariadbd", "/usr/libexec/mariadbd"];
        let program = program.into_iter().find(|path| Path::new(path).exists());
        let program = program.expect("mariadbd is missing: apt-get install mariadb-server-core");
        let mut command = Command::new(program);
        command.args(["--no-defaults", "--innodb-buffer-pool-size=16M"]);
        command.args(["--innodb-log-file-size=4M", "--innodb-flush-log-at-trx-commit=0"]);
        command.arg(format!("--datadir={}", self.path().join("data").display()));
        if rustix::process::getuid().is_root() {
            command.arg("--user=root");
        }
        command
    }

    /// Does what `mariadb-install-db` does, which needs programs of the client's package.
    fn make_mariadb(&self) {
        const TABLES: &[&str] =
            &["system_tables.sql", "performance_tables.sql", "system_tables_data.sql"];
        // MariaDB 11, then MariaDB 10.
        let new = "/usr/share/mariadb/mariadb_";
        let is_new = Path::new(&format!("{new}{}", TABLES[0])).exists();
        let prefix = if is_new { new } else { "/usr/share/mysql/mysql_" };
        let mut sql = String::from("use mysql;\nset @auth_root_socket=null;\n");
        for name in TABLES {
            let tables = fs::read_to_string(format!("{prefix}{name}"));
            sql.push_str(&tables.expect("mariadb-server-core brings its tables"));
        }
        let file = self.path().join("bootstrap.sql");
        fs::write(&file, sql).expect("our own folder is writable");
        // MariaDB 10.11 sometimes crashes in its bootstrap, in ha_maria::drop_table().
        let mut said = String::new();
        let made = (0..5).any(|_| {
            let data = self.path().join("data");
            drop(fs::remove_dir_all(&data));
            fs::create_dir_all(data.join("mysql")).expect("our own folder is writable");
            let bootstrap = self
                .mariadbd()
                .args(["--bootstrap", "--log-warnings=0"])
                .stdin(fs::File::open(&file).expect("it was just written"))
                .output()
                .expect("mariadbd starts");
            said = String::from_utf8_lossy(&bootstrap.stderr).into_owned();
            bootstrap.status.success()
        });
        assert!(made, "{said}");
        fs::write(
            self.path().join("init.sql"),
            format!(
                "create database if not exists shop;\n\
                 create table if not exists shop.things (id int auto_increment primary key, amount int) engine=innodb;\n\
                 grant all on *.* to visitor@localhost identified by '{DATABASE_PASSWORD}';\n\
                 {}\
                 create role if not exists limited with admin visitor@'{}';\n",
                match &self.tls {
                    None => String::new(),
                    Some(tls) => format!(
                        "grant all on *.* to visitor@'{}' identified by '{DATABASE_PASSWORD}' require {};\n",
                        "127.0.0.%",
                        if tls.asks { "x509" } else { "ssl" }
                    ),
                },
                if self.tls.is_some() { "127.0.0.%" } else { "localhost" },
            ),
        )
        .expect("our own folder is writable");
    }

    fn make_postgres(&self) {
        if rustix::process::getuid().is_root() {
            let own = Command::new("chown").arg("postgres").arg(self.path()).status();
            assert!(own.expect("chown is there").success());
        }
        let made = as_owner(&postgres_program("initdb"))
            .arg("-D")
            .arg(self.path().join("data"))
            .args(["--auth=trust", "--username=postgres", "--no-sync", "--encoding=UTF8"])
            .output()
            .expect("initdb starts");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        fs::write(
            self.path().join("data/pg_hba.conf"),
            format!(
                "local all postgres trust\nlocal all all scram-sha-256\nhostssl all all all scram-sha-256{}\n",
                if self.tls.as_ref().is_some_and(|tls| tls.asks) { " clientcert=verify-ca" } else { "" }
            ),
        )
        .expect("our own folder is writable");
    }

    fn fill_postgres(&self) {
        let sql = format!(
            "create role visitor login superuser password '{DATABASE_PASSWORD}';\n\
             create role other;\ncreate database shop;\n\\connect shop\n\
             create schema shop;\ncreate table shop.things (id int);\n\
             grant usage on schema shop to other;\ngrant all on shop.things to other;\n"
        );
        self.psql(&sql);
    }

    fn psql(&self, sql: &str) {
        fs::write(self.path().join("shop.sql"), sql).expect("our own folder is writable");
        let port = self.tls.as_ref().map_or(5432, |tls| tls.port).to_string();
        let filled = Command::new(postgres_program("psql"))
            .args(["-v", "ON_ERROR_STOP=1", "-U", "postgres", "-d", "postgres", "-p", &port, "-h"])
            .arg(self.path())
            .arg("-f")
            .arg(self.path().join("shop.sql"))
            .output()
            .expect("psql starts");
        assert!(filled.status.success(), "{}", String::from_utf8_lossy(&filled.stderr));
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.stop(false);
    }
}

/// Drops privileges, because `PostgreSQL` refuses to run as root.
pub(crate) fn as_owner(program: &Path) -> Command {
    if !rustix::process::getuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]).arg(program);
    command.current_dir("/");
    command
}

/// Returns the newest version that Debian has installed.
fn postgres_program(name: &str) -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql")
        .unwrap_or_else(|error| panic!("apt-get install postgresql: {error}"));
    let mut found: Vec<PathBuf> = versions
        .filter_map(|version| Some(version.ok()?.path().join("bin").join(name)))
        .filter(|path| path.exists())
        .collect();
    found.sort();
    found.pop().expect("postgresql brings its programs")
}
