//! Starts `hearth serve` with real PHP for one test, with its own folder and ports, and stops it with the test.

mod php;

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

pub(crate) use self::php::{each_isolating, isolating, php_fpm, php_version, worker_folder};
use pool::Model;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use testkit::{Answer, Client, Log, PhpFpm, ProcessFacts, Running, eventually, head};

/// The longest wait for an event whose time is not under test. It is generous, since both processors may be busy.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);

/// The default models of applications, and `fpm` for the models that run PHP's own programs.
const QUICK_MODELS: &[&str] = &["request", "snapshot", "fpm"];

/// Returns the models of `hearth-worker` that this run tests. Clients get the same answers in all of them.
pub(crate) fn models() -> Vec<&'static str> {
    of_tier(Model::ALL.iter().filter(|model| !model.is_foreign()).map(|model| model.name()))
}

/// Returns the models that this run tests, including those that run PHP's own programs.
pub(crate) fn every_model() -> Vec<&'static str> {
    of_tier(Model::ALL.iter().map(|model| model.name()))
}

/// Returns those of `models` that this run tests: all of them, unless scripts/test-rust runs one tier.
/// `TEST_TIER=quick` selects [`QUICK_MODELS`], at least one, and `TEST_TIER=rest` selects the others.
#[expect(clippy::disallowed_methods, reason = "the tier of all tests of a run")]
pub(crate) fn of_tier(models: impl IntoIterator<Item = &'static str>) -> Vec<&'static str> {
    let models: Vec<_> = models.into_iter().collect();
    let is_quick = |model: &&'static str| QUICK_MODELS.contains(model);
    let mut quick: Vec<_> = models.iter().copied().filter(is_quick).collect();
    if quick.is_empty() {
        quick.extend(models.first());
    }
    match std::env::var("TEST_TIER").as_deref() {
        Err(_) => models,
        Ok("quick") => {
            note_several_models();
            quick
        }
        Ok("rest") => models.into_iter().filter(|model| !quick.contains(model)).collect(),
        Ok(other) => panic!("TEST_TIER is quick or rest, not {other}"),
    }
}

/// Adds the running test to the list of tests that have models left for `TEST_TIER=rest`.
fn note_several_models() {
    let Some(list) = std::env::var_os("TEST_TIER_LIST") else { return };
    let thread = std::thread::current();
    let test = thread.name().expect("libtest names the thread after its test");
    let mut list = fs::File::options().create(true).append(true).open(list).unwrap();
    list.write_all(format!("{test}\n").as_bytes()).unwrap();
}

/// Returns whether a process of this model serves one request after the other.
pub(crate) fn is_resident(model: &str) -> bool {
    matches!(model, "request" | "worker" | "snapshot")
}

/// Returns whether a worker script answers in this model, not the script that the URL names.
pub(crate) fn runs_worker_script(model: &str) -> bool {
    matches!(model, "worker" | "prespawn" | "fork" | "snapshot")
}

/// Starts each model in turn with the scripts of `tests/php` and one worker. It prints the model's name, for tests that
/// fail.
#[expect(clippy::print_stdout, reason = "shown when the test fails")]
pub(crate) fn in_each_model() -> impl Iterator<Item = (&'static str, Site, Hearth)> {
    models().into_iter().map(|model| {
        println!("model {model}");
        let (site, path) = Site::of_scripts_in(model);
        let hearth = Serve::new(path).model(model).workers(1).start();
        (model, site, hearth)
    })
}

/// The folder of an application.
#[derive(Debug)]
pub(crate) struct Site {
    folder: TempDir,
}

impl Site {
    /// Creates a site with the scripts of `tests/php` in `public/`, and an `index.php` that answers "front controller".
    pub(crate) fn of_scripts() -> Self {
        let site = Self::empty().with_file("public/index.php", "<?php echo 'front controller';");
        for entry in fs::read_dir(scripts()).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() && path.file_name().unwrap() != "worker.php" {
                fs::copy(&path, site.public().join(path.file_name().unwrap())).unwrap();
            }
        }
        site
    }

    /// Creates a site with the scripts of `tests/php`, and a worker script that includes the script of a request. Also
    /// returns the path to serve in `model`.
    pub(crate) fn of_scripts_in(model: &str) -> (Self, PathBuf) {
        let site = Self::of_scripts().with_file(
            "worker.php",
            "<?php while (hearth_handle_request(function () {\n\
             $file = __DIR__ . '/public' . parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH);\n\
             require is_file($file) ? $file : __DIR__ . '/public/index.php'; })) { }",
        );
        let served = site.served_in(model, "worker.php");
        (site, served)
    }

    /// Returns the path to serve in `model`: the application's folder, or `script` in it if the model runs a worker
    /// script.
    pub(crate) fn served_in(&self, model: &str, script: &str) -> PathBuf {
        let folder = self.path().to_owned();
        if runs_worker_script(model) { folder.join(script) } else { folder }
    }

    /// Creates a site with an empty `public/`.
    pub(crate) fn empty() -> Self {
        let site = Self { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(site.public()).unwrap();
        site
    }

    /// Adds one script of `tests/php` as a file in `public/`.
    pub(crate) fn with_script(self, script: &str, name: &str) -> Self {
        fs::copy(scripts().join(script), self.public().join(name)).unwrap();
        self
    }

    /// Copies a folder of `tests/php` into the site.
    pub(crate) fn with_folder(self, name: &str) -> Self {
        let from = scripts().join(name).join(".");
        let copied = Command::new("cp").arg("-a").args([from.as_path(), self.path()]).status();
        assert!(copied.unwrap().success());
        self
    }

    /// Writes a file; its path is relative to the application's folder.
    pub(crate) fn with_file(self, path: &str, text: &str) -> Self {
        self.write(path, text);
        self
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // Renamed into place, so that a reader or watcher sees the whole text, or the previous file.
        let mut whole = tempfile::NamedTempFile::new().unwrap();
        whole.write_all(text.as_bytes()).unwrap();
        fs::set_permissions(whole.path(), Permissions::from_mode(0o644)).unwrap();
        whole.persist(path).unwrap();
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn public(&self) -> PathBuf {
        self.folder.path().join("public")
    }
}

/// Returns the text of a file that PHP writes, once it ends with a line break.
pub(crate) fn whole_line(file: &Path) -> String {
    let mut text = String::new();
    eventually("PHP has written it", LIMIT, || {
        text = fs::read_to_string(file).unwrap_or_default();
        text.ends_with('\n')
    });
    text
}

/// The folder of the scripts that tests serve.
pub(crate) fn scripts() -> PathBuf {
    root().join("tests/php")
}

/// The repository's folder.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The whole environment of the tests' programs. The oracle compares every page after each restore
/// (native/snapshot/oracle.c).
pub(crate) const ENVIRONMENT: &[(&str, &str)] = &[
    ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ("APP_COLOUR", "red"),
    ("HEARTH_SNAPSHOT_ORACLE", "1"),
];

/// Returns the command `hearth` with the environment of the tests.
pub(crate) fn command() -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_hearth"));
    let mut command = Command::new(program);
    command.env_clear().envs(ENVIRONMENT.iter().copied());
    let folder = worker_folder();
    if Some(&*folder) != program.parent() {
        command.env("HEARTH_LIB_DIR", folder);
    }
    command
}

/// Returns a command prefix that starts a program to which the kernel refuses system calls. `calls` is `CALL=ERRNO,...`
/// as in `tests/php/refused_calls.php`.
pub(crate) fn refusing(calls: &str) -> Vec<String> {
    let launcher = root().join("tests/php/refused_calls.php").display().to_string();
    let php = format!("/usr/bin/php{}", php_version());
    [&php, "-d", "ffi.enable=1", &launcher, calls].map(str::to_owned).into()
}

/// The command of a server to start.
#[derive(Debug)]
pub(crate) struct Serve {
    command: Command,
}

impl Serve {
    /// Serves an application, or one script of it.
    pub(crate) fn new(path: impl AsRef<Path>) -> Self {
        let mut command = command();
        command.arg("serve").arg(path.as_ref()).args([
            "--listen",
            "127.0.0.1:0",
            "--admin",
            "127.0.0.1:0",
            "--log-format",
            "json",
        ]);
        Self { command }
    }

    pub(crate) fn args(mut self, args: &[&str]) -> Self {
        self.command.args(args);
        self
    }

    pub(crate) fn model(self, model: &str) -> Self {
        self.args(&["--model", model])
    }

    pub(crate) fn workers(self, count: usize) -> Self {
        self.args(&["--workers", &count.to_string()])
    }

    pub(crate) fn ini(self, name: &str, value: &str) -> Self {
        self.args(&["--ini", &format!("{name}={value}")])
    }

    /// Sets an environment variable.
    pub(crate) fn set(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Lets requests wait for a worker, and a drain for requests, for five minutes.
    pub(crate) fn patient(self) -> Self {
        self.set("HEARTH_PHP_BACKLOG_TIMEOUT", "5m")
            .set("HEARTH_PHP_BACKLOG_TARGET", "off")
            .set("HEARTH_SERVER_SHUTDOWN_PATIENCE", "5m")
    }

    /// Starts the server through another program: `launcher`, its `arguments`, then the server's command.
    pub(crate) fn through(mut self, launcher: &[&str], arguments: &[&str]) -> Self {
        let mut command = Command::new(launcher[0]);
        command.env_clear().args(&launcher[1..]).args(arguments);
        command.arg(self.command.get_program()).args(self.command.get_args());
        let variables = self.command.get_envs();
        command.envs(variables.filter_map(|(name, value)| Some((name, value?))));
        self.command = command;
        self
    }

    /// Starts the server and waits for the ready line.
    pub(crate) fn start(self) -> Hearth {
        let process = self.launch();
        let find = |prefix: &'static str| {
            // A terminal ends lines with a carriage return.
            process.log().find(LIMIT, |line| Some(line.strip_prefix(prefix)?.trim_end().to_owned()))
        };
        let url = find("hearth: ready on ");
        let url = url.unwrap_or_else(|| panic!("never ready:\n{}", process.log().text()));
        let admin = find("hearth: admin on http://").unwrap();
        let address = url.split_once("://").unwrap().1.parse().unwrap();
        Hearth { address, url, admin: admin.parse().unwrap(), process }
    }

    /// Starts the server without waiting.
    pub(crate) fn launch(mut self) -> Running {
        Running::start(&mut self.command)
    }
}

/// A server that is ready.
#[derive(Debug)]
pub(crate) struct Hearth {
    pub(crate) process: Running,
    pub(crate) address: SocketAddr,
    pub(crate) url: String,
    pub(crate) admin: SocketAddr,
}

impl Hearth {
    /// Starts the model `request` with one worker.
    pub(crate) fn request(site: &Site) -> Self {
        Serve::new(site.path()).model("request").workers(1).start()
    }

    /// Starts the model `worker` with one worker, and a script in `public/`.
    pub(crate) fn worker(site: &Site, script: &str) -> Self {
        Serve::new(site.public().join(script)).model("worker").workers(1).start()
    }

    pub(crate) fn log(&self) -> &Log {
        self.process.log()
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address).unwrap()
    }

    /// Sends a GET on a new connection.
    pub(crate) fn get(&self, target: &str) -> Answer {
        self.connect().get(target).unwrap()
    }

    pub(crate) fn post(&self, target: &str, fields: &[(&str, &str)], body: &[u8]) -> Answer {
        self.connect().request("POST", target, fields, body).unwrap()
    }

    /// Sends a GET to the admin address.
    pub(crate) fn admin(&self, target: &str) -> Answer {
        admin_of(self.admin, target)
    }

    pub(crate) fn status(&self) -> Value {
        self.admin("/status").json()
    }

    /// Returns the process ids of the workers.
    pub(crate) fn worker_pids(&self) -> Vec<u32> {
        let status = self.status();
        let workers = status["pool"]["workers"].as_array().unwrap();
        let pids = workers.iter().map(|worker| worker["pid"].as_u64().unwrap().try_into().unwrap());
        // A worker without a process yet has the id 0.
        pids.filter(|pid| *pid != 0).collect()
    }

    /// Returns the process id of the only worker.
    pub(crate) fn worker_pid(&self) -> u32 {
        let pids = self.worker_pids();
        assert_eq!(pids.len(), 1, "one worker: {pids:?}");
        pids[0]
    }

    /// Returns the id of the process that the workers are forked from.
    pub(crate) fn zygote_pid(&self) -> u32 {
        let children = ProcessFacts::children(self.process.pid());
        assert_eq!(children.len(), 1, "the zygote is the server's only child: {children:?}");
        children[0]
    }

    /// Returns every process below the server, parents first.
    pub(crate) fn descendants(&self) -> Vec<u32> {
        let mut found = ProcessFacts::children(self.process.pid());
        let mut at = 0;
        while let Some(pid) = found.get(at) {
            found.extend(ProcessFacts::children(*pid));
            at += 1;
        }
        found
    }

    /// Waits until this many workers wait for requests and no other worker exists.
    pub(crate) fn wait_idle(&self, count: usize) {
        eventually("every worker is idle", LIMIT, || {
            let status = self.status();
            let workers = status["pool"]["workers"].as_array().unwrap();
            workers.len() == count && workers.iter().all(|worker| worker["state"] == "idle")
        });
    }

    /// Waits until this many workers run requests.
    pub(crate) fn wait_busy(&self, count: usize) {
        eventually("the workers run requests", LIMIT, || {
            let status = self.status();
            let workers = status["pool"]["workers"].as_array().unwrap();
            workers.iter().filter(|worker| worker["state"] == "busy").count() == count
        });
    }

    /// Starts a request, and returns once the only running one is in a worker.
    pub(crate) fn begin(&self, target: &str) -> Client {
        let client = self.send(target);
        self.wait_busy(1);
        client
    }

    /// Sends a request over a connection of its own, whose answer is still to be read.
    pub(crate) fn send(&self, target: &str) -> Client {
        let mut client = self.connect();
        client.send(head("GET", target, &[], 0)).unwrap();
        client
    }

    /// Returns the log line (JSON) that contains `part`.
    pub(crate) fn log_line(&self, part: &str) -> Value {
        let line = self.log().find(LIMIT, |line| {
            let parsed: Value = serde_json::from_str(line).ok()?;
            line.contains(part).then_some(parsed)
        });
        line.unwrap_or_else(|| panic!("no log line has {part:?}:\n{}", self.log().text()))
    }

    /// Stops the server with TERM, and returns its exit status.
    pub(crate) fn stop(mut self) -> ExitStatus {
        self.process.signal(Signal::TERM);
        self.process.wait(LIMIT)
    }
}

/// Sends a GET to an admin address with the address as host: the server refuses other hosts.
pub(crate) fn admin_of(address: SocketAddr, target: &str) -> Answer {
    ask_admin(address, target).unwrap()
}

/// Sends a GET to the admin address of a process that may be ending.
pub(crate) fn ask_admin(address: SocketAddr, target: &str) -> std::io::Result<Answer> {
    Client::connect(address)?.request("GET", target, &[("Host", &address.to_string())], b"")
}

/// Waits until none of these processes exists.
pub(crate) fn assert_gone(pids: &[u32]) {
    for pid in pids {
        eventually("no process is left", LIMIT, || ProcessFacts::of(*pid).is_none());
    }
}

/// Sends a signal to a process of a test's own server.
pub(crate) fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.try_into().unwrap()).unwrap();
    // The process may have ended already.
    let _gone = kill_process(pid, signal).is_err();
}

/// Sets the flag for other threads when dropped, also when the test fails.
#[derive(Debug)]
pub(crate) struct OverOnDrop<'a>(pub(crate) &'a std::sync::atomic::AtomicBool);

impl Drop for OverOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}
