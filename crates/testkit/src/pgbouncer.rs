//! A real `PgBouncer` between its own unix socket and a test's server, each for one test only.
//!
//! Invariants
//! - Clients are not authenticated; `PgBouncer` logs in with the server's password.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::databases::{DATABASE_PASSWORD, Database, as_owner};
use crate::process::{Running, eventually};

const LIMIT: Duration = Duration::from_mins(1);

/// A running pooler. Dropping it stops it.
#[derive(Debug)]
pub struct PgBouncer {
    folder: TempDir,
    process: Running,
}

impl PgBouncer {
    /// Starts a pooler for `database` with `pool_mode` `session` or `transaction`.
    pub fn start(database: &Database, pool_mode: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let place = folder.path().display();
        let write = |name: &str, text: &str| {
            fs::write(folder.path().join(name), text).expect("our own folder is writable");
        };
        write("users", &format!("\"visitor\" \"{DATABASE_PASSWORD}\"\n"));
        write(
            "ini",
            &format!(
                "[databases]\nshop = host={} port=5432\n\
                 [pgbouncer]\nlisten_addr =\nlisten_port = 5432\nunix_socket_dir = {place}\n\
                 auth_type = trust\nauth_file = {place}/users\npool_mode = {pool_mode}\n\
                 default_pool_size = 10\nserver_reset_query = DISCARD ALL\n",
                database.address().display()
            ),
        );
        if rustix::process::getuid().is_root() {
            // `PgBouncer` refuses to run as root.
            let own = Command::new("chown").args(["-R", "postgres"]).arg(folder.path()).status();
            assert!(own.expect("chown is there").success());
        }
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folder.path(), open).expect("our own folder");
        let mut command = as_owner(Path::new("/usr/sbin/pgbouncer"));
        let process = Running::start(command.arg(folder.path().join("ini")));
        let socket = folder.path().join(".s.PGSQL.5432");
        eventually("PgBouncer listens", LIMIT, || UnixStream::connect(&socket).is_ok());
        Self { folder, process }
    }

    /// Returns the host for clients.
    pub fn address(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the log.
    pub fn log(&self) -> String {
        self.process.log().text()
    }
}
