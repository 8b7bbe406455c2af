//! php-fpm behind nginx, with Debian's `fastcgi.conf` and the usual front controller, as a peer for comparisons.

use std::fmt::Write as _;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::process::{Running, eventually};

/// Time limit for the start of each program.
const LIMIT: Duration = Duration::from_secs(30);

/// php-fpm and nginx for one test. Dropping it stops both.
#[derive(Debug)]
pub struct PhpFpm {
    nginx: Running,
    fpm: Running,
    _folder: TempDir,
    address: SocketAddr,
}

impl PhpFpm {
    /// Serves a document root with PHP `version`, e.g. `8.2`. `ini` overrides php.ini; `env` is the whole environment of scripts.
    pub fn start(
        version: &str,
        document_root: &Path,
        ini: &[(&str, &str)],
        env: &[(&str, &str)],
    ) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let place = folder.path().display();
        let root = document_root.display();
        let mut values = String::new();
        for (name, value) in ini {
            writeln!(values, "php_admin_value[{name}] = {value}").expect("a String takes all");
        }
        let fpm_conf = format!(
            "[global]\nerror_log = {place}/fpm.log\ndaemonize = no\n\
             [www]\nlisten = {place}/fpm.sock\npm = static\npm.max_children = 2\nuser = {user}\ngroup = {user}\n\
             catch_workers_output = yes\nclear_env = no\n{values}",
            user = if rustix::process::getuid().is_root() { "root" } else { "nobody" },
        );
        fs::write(folder.path().join("fpm.conf"), fpm_conf).expect("our own folder is writable");
        let fpm = Running::start(
            Command::new(format!("/usr/sbin/php-fpm{version}"))
                .args(["--nodaemonize", "--allow-to-run-as-root", "--fpm-config"])
                .arg(folder.path().join("fpm.conf"))
                .env_clear()
                .envs(env.iter().copied()),
        );
        eventually("php-fpm listens", LIMIT, || {
            UnixStream::connect(folder.path().join("fpm.sock")).is_ok()
        });

        // Another program may take the port before nginx binds it: then another port is tried.
        let (nginx, address) = (0..5)
            .find_map(|_| {
                let address = free_address();
                let conf = format!(
                    "daemon off;\nmaster_process off;\npid {place}/nginx.pid;\nerror_log {place}/nginx.log;\n\
                     events {{}}\nhttp {{\n access_log off;\n client_max_body_size 0;\n\
                     client_body_temp_path {place}/body;\n proxy_temp_path {place}/proxy;\n\
                     fastcgi_temp_path {place}/fastcgi;\n uwsgi_temp_path {place}/uwsgi;\n scgi_temp_path {place}/scgi;\n\
                     server {{\n  listen {address};\n  server_name example.org;\n  root {root};\n  index index.php;\n\
                     location / {{ try_files $uri $uri/ /index.php$is_args$args; }}\n\
                     location ~ [^/]\\.php(/|$) {{\n\
                     fastcgi_split_path_info ^(.+?\\.php)(/.*)$;\n   try_files $fastcgi_script_name =404;\n\
                     set $path_info $fastcgi_path_info;\n   fastcgi_param PATH_INFO $path_info;\n\
                     include /etc/nginx/fastcgi.conf;\n   fastcgi_pass unix:{place}/fpm.sock;\n  }}\n }}\n}}\n"
                );
                fs::write(folder.path().join("nginx.conf"), conf).expect("our own folder is writable");
                let mut nginx = Running::start(
                    Command::new("/usr/sbin/nginx")
                        .arg("-c")
                        .arg(folder.path().join("nginx.conf"))
                        .arg("-e")
                        .arg(folder.path().join("nginx.log")),
                );
                // Another program may listen there: php-fpm writes its process id once it listens.
                eventually("nginx listens or ends", LIMIT, || {
                    nginx.has_ended() || folder.path().join("nginx.pid").exists()
                });
                (!nginx.has_ended()).then_some((nginx, address))
            })
            .unwrap_or_else(|| {
                let log = fs::read_to_string(folder.path().join("nginx.log")).unwrap_or_default();
                panic!("nginx does not start: {log}")
            });
        Self { nginx, fpm, _folder: folder, address }
    }

    /// Returns the minor version, e.g. 22 of nginx 1.22.1.
    pub fn nginx_minor() -> u32 {
        let output = Command::new("/usr/sbin/nginx").arg("-v").output().expect("nginx is there");
        let text = String::from_utf8_lossy(&output.stderr);
        let minor = text.split_once("nginx/1.").and_then(|(_, rest)| rest.split('.').next());
        minor.and_then(|minor| minor.parse().ok()).expect("nginx says its version")
    }

    /// Returns nginx's address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for PhpFpm {
    fn drop(&mut self) {
        // php-fpm's children outlive a killed master.
        self.nginx.terminate(Duration::from_secs(2));
        self.fpm.terminate(Duration::from_secs(5));
    }
}

fn free_address() -> SocketAddr {
    let probe = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    probe.local_addr().expect("a bound socket has an address")
}
