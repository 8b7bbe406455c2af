//! Real database servers on unix sockets in a temporary folder, each of one test alone; never the system's own services.
//!
//! Invariants
//! - Every server has a database `shop` (Redis: none) and a user `visitor` with the password `a password`.
//! - A server that was stopped can be started again: what it held is there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::process::{Running, eventually};

/// The password of `visitor`.
pub const DATABASE_PASSWORD: &str = "a password";

const LIMIT: Duration = Duration::from_mins(1);

/// Which database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseKind {
    /// `mariadbd` of Debian's mariadb-server-core.
    MariaDb,
    /// `postgres` of Debian's postgresql.
    Postgres,
    /// `redis-server`.
    Redis,
}

/// A running server; ended when dropped.
#[derive(Debug)]
pub struct Database {
    kind: DatabaseKind,
    folder: TempDir,
    server: Option<Running>,
}

impl Database {
    /// Makes the files of a new server and starts it.
    pub fn start(kind: DatabaseKind) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let mut database = Self { kind, folder, server: None };
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

    /// Which it is.
    pub fn kind(&self) -> DatabaseKind {
        self.kind
    }

    /// What a client connects to: the socket; of `PostgreSQL` its folder.
    pub fn address(&self) -> PathBuf {
        match self.kind {
            DatabaseKind::Postgres => self.path().to_owned(),
            _ => self.path().join("socket"),
        }
    }

    /// What the server has logged since it was started last.
    pub fn log(&self) -> String {
        self.server.as_ref().map(|server| server.log().text()).unwrap_or_default()
    }

    /// Ends it; `hard`: without a word to its clients.
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

    /// Starts a server that was stopped, and waits until it takes connections.
    pub fn start_again(&mut self) {
        let place = self.path().display();
        let mut command = match self.kind {
            DatabaseKind::MariaDb => {
                let mut command = self.mariadbd();
                command.args([
                    format!("--socket={place}/socket"),
                    format!("--pid-file={place}/pid"),
                    format!("--init-file={place}/init.sql"),
                    "--skip-networking".to_owned(),
                    "--log-warnings=2".to_owned(),
                ]);
                command
            }
            DatabaseKind::Postgres => {
                let mut command = as_owner(&postgres_program("postgres"));
                command.arg("-D").arg(self.path().join("data")).args([
                    "-c",
                    "listen_addresses=",
                    "-c",
                    &format!("unix_socket_directories={place}"),
                    "-c",
                    "fsync=off",
                    "-c",
                    "shared_buffers=8MB",
                ]);
                command
            }
            DatabaseKind::Redis => {
                let mut command = Command::new("redis-server");
                command.args(["--port", "0", "--save", "", "--requirepass", DATABASE_PASSWORD]);
                command.arg("--unixsocket").arg(self.path().join("socket"));
                command
            }
        };
        let server = Running::start(&mut command);
        let ready = match self.kind {
            DatabaseKind::MariaDb => "ready for connections",
            DatabaseKind::Postgres => "database system is ready to accept connections",
            DatabaseKind::Redis => "eady to accept connections", // since 7.2 with a capital
        };
        eventually("the database takes connections", LIMIT, || server.log().text().contains(ready));
        self.server = Some(server);
    }

    fn path(&self) -> &Path {
        self.folder.path()
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

    /// What `mariadb-install-db` does, which needs programs of the client's package.
    fn make_mariadb(&self) {
        const TABLES: &[&str] =
            &["system_tables.sql", "performance_tables.sql", "system_tables_data.sql"];
        // Of MariaDB 11 and of 10.
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
        // MariaDB 10.11 crashes in a bootstrap now and then, in ha_maria::drop_table().
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
                 grant all on *.* to visitor@localhost identified by '{DATABASE_PASSWORD}';\n"
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
            "local all postgres trust\nlocal all all scram-sha-256\n",
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
        fs::write(self.path().join("shop.sql"), sql).expect("our own folder is writable");
        let filled = Command::new(postgres_program("psql"))
            .args(["-v", "ON_ERROR_STOP=1", "-U", "postgres", "-d", "postgres", "-h"])
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

/// `PostgreSQL` refuses to run as root.
fn as_owner(program: &Path) -> Command {
    if !rustix::process::getuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]).arg(program);
    command.current_dir("/");
    command
}

/// The newest of Debian's.
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
