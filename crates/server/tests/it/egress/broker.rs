//! Starts a broker without a server, and runs curl as its caller.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;
use testkit::{Running, certificates};

use crate::hearth::{LIMIT, command};

/// A broker with its own folder.
#[derive(Debug)]
pub(crate) struct Broker {
    pub(crate) process: Running,
    pub(crate) folder: TempDir,
}

impl Broker {
    /// Starts a broker that trusts the tests' authority.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), arguments)
    }

    /// Starts a broker with `settings` as environment variables.
    pub(crate) fn start_with(settings: &[(&str, &str)], arguments: &[&str]) -> Self {
        Self::launch(tempfile::tempdir().unwrap(), settings, arguments)
    }

    pub(crate) fn start_in(folder: TempDir, arguments: &[&str]) -> Self {
        Self::launch(folder, &[], arguments)
    }

    pub(crate) fn launch(folder: TempDir, settings: &[(&str, &str)], arguments: &[&str]) -> Self {
        let (authority, _) = certificates().authority.write(folder.path(), "authority");
        let mut command = command();
        command.envs(settings.iter().copied());
        command.current_dir(folder.path()).args(["egress", "--socket"]);
        command.arg(folder.path().join("egress.sock")).arg("--ca").arg(authority);
        let process = Running::start(command.args(["--log-format", "json"]).args(arguments));
        let ready = process.log().find(LIMIT, |line| line.contains("ready on unix:").then_some(()));
        assert!(ready.is_some(), "never ready:\n{}", process.log().text());
        Self { process, folder }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("egress.sock")
    }

    pub(crate) fn token(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("egress.token")).unwrap()
    }

    /// What curl says to a call through the listener; the target goes in absolute form.
    pub(crate) fn curl(&self, arguments: &[&str], url: &str) -> Curled {
        curl(&self.socket(), arguments, url)
    }
}

/// The result of a run of curl.
#[derive(Debug)]
pub(crate) struct Curled {
    /// Exit status of curl.
    pub(crate) status: i32,
    /// Heads of the answer, unchanged.
    pub(crate) heads: String,
    pub(crate) body: Vec<u8>,
}

impl Curled {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.heads.lines().find_map(|line| {
            let (field, value) = line.split_once(':')?;
            field.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

pub(crate) fn curl(socket: &Path, arguments: &[&str], url: &str) -> Curled {
    let folder = tempfile::tempdir().unwrap();
    let (heads, body) = (folder.path().join("heads"), folder.path().join("body"));
    let Output { status, .. } = Command::new("curl")
        .args(["--silent", "--max-time", "30", "--unix-socket"])
        .arg(socket)
        .arg("--dump-header")
        .arg(&heads)
        .arg("--output")
        .arg(&body)
        .args(["--request-target", url, "--header", "Host: hearth"])
        .args(arguments)
        .arg("http://hearth/")
        .output()
        .unwrap();
    Curled {
        status: status.code().unwrap(),
        heads: std::fs::read_to_string(&heads).unwrap_or_default(),
        body: std::fs::read(&body).unwrap_or_default(),
    }
}
