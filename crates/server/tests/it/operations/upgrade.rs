//! Upgrades: a new process replaces the server without refusing a connection.

use std::io::Read;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};

use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use testkit::{Client, ProcessFacts, eventually, head};

use crate::hearth::{Hearth, LIMIT, OverOnDrop, Serve, Site, ask_admin, command, signal};
use crate::realtime;

/// A process that is not a child of the test; it ends with the test.
#[derive(Debug)]
pub(crate) struct Successor(u32);

impl Drop for Successor {
    fn drop(&mut self) {
        signal(self.0, Signal::KILL);
    }
}

impl Successor {
    pub(crate) fn pid(&self) -> u32 {
        self.0
    }

    /// Stops the process with TERM and waits for its end.
    pub(crate) fn stop(self) {
        signal(self.0, Signal::TERM);
        eventually("the successor has ended", LIMIT, || ProcessFacts::of(self.0).is_none());
    }
}

fn ran(mut command: Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

/// Returns the command `hearth upgrade`.
pub(crate) fn upgrade(path: &Path, args: &[&str]) -> Command {
    let mut upgrade = command();
    upgrade.arg("upgrade").arg(path).args(args);
    upgrade
}

/// Upgrades, and returns the new process.
pub(crate) fn upgraded(command: Command) -> Successor {
    let (code, said, why) = ran(command);
    assert_eq!((code, &*why), (Some(0), ""), "{said}");
    let pid = said.strip_prefix("process ").and_then(|rest| rest.split(' ').next());
    Successor(pid.unwrap_or_else(|| panic!("{said}")).parse().unwrap())
}

fn site() -> Site {
    Site::of_scripts().with_file("public/index.php", "<?php echo 'hello';")
}

#[test]
fn an_upgrade_drops_and_refuses_no_request() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let site = site();
    let mut hearth = Serve::new(site.path())
        .model("request")
        .workers(2)
        .set("HEARTH_PHP_BACKLOG", "5000")
        .patient()
        .start();
    hearth.wait_idle(2);
    let (address, over) = (hearth.address, AtomicBool::new(false));
    let (answered, moved) = (AtomicU64::new(0), AtomicU64::new(0));
    // Number of threads whose clients all have had an answer, so that each is connected to the old process.
    let loading = AtomicU64::new(0);
    let successor = std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let connect = || Client::connect(address).expect("no client is refused");
                let mut clients: Vec<Client> = (0..500).map(|_| connect()).collect();
                let mut rounds = 0;
                while !over.load(Ordering::Relaxed) {
                    for client in &mut clients {
                        client.send(head("GET", "/", &[], 0)).unwrap();
                    }
                    for client in &mut clients {
                        // Every request has an answer, even if its connection ends with it.
                        let answer = client.answer_to("GET").unwrap();
                        assert_eq!((answer.status, &*answer.text()), (200, "hello"));
                        answered.fetch_add(1, Ordering::Relaxed);
                        if answer.field("connection") == Some("close") {
                            moved.fetch_add(1, Ordering::Relaxed);
                            *client = connect();
                        }
                    }
                    rounds += 1;
                    loading.fetch_add(u64::from(rounds == 1), Ordering::Relaxed);
                }
            });
        }
        let _over = OverOnDrop(&over);
        eventually("the load runs", LIMIT, || loading.load(Ordering::Relaxed) == 4);
        let successor = upgraded(upgrade(site.path(), &[]));
        // While the old process finishes its requests, clients connect to the new one.
        let before = answered.load(Ordering::Relaxed);
        eventually("the load has moved", LIMIT * 2, || {
            moved.load(Ordering::Relaxed) >= 2000
                && answered.load(Ordering::Relaxed) > before + 4000
        });
        successor
    });
    assert_eq!(hearth.process.wait(LIMIT).code(), Some(0), "{}", hearth.log().text());
    let status = hearth.status();
    assert_eq!((&status["pid"], &status["state"]), (&successor.0.into(), &"ready".into()));
    assert_eq!(status["pool"]["crashes"], 0, "{status}");
    assert_eq!(hearth.get("/").text(), "hello");
    successor.stop();
    assert!(Client::connect(address).is_err(), "no listener is left");
}

#[test]
fn a_failed_upgrade_leaves_the_server_running() {
    let site = site().with_file(
        "worker.php",
        "<?php while (hearth_handle_request(function () { echo 'hello'; })) { }",
    );
    let script = site.path().join("worker.php");
    let run_dir = site.path().join("run");
    let named = ["--run-dir", run_dir.to_str().unwrap()];
    let mut hearth = Serve::new(&script).model("worker").args(&named).workers(1).start();
    let serves = |hearth: &Hearth| {
        assert_eq!(hearth.get("/").text(), "hello");
        assert_eq!(hearth.status()["pid"], hearth.process.pid());
        eventually("nothing of it is left", LIMIT, || {
            ProcessFacts::children(hearth.process.pid()).len() == 1
        });
    };
    site.write("hearth.toml", "[php]\nworkerz = 1\n");
    // The command itself would fail on these settings, too.
    let mut curl = Command::new("curl");
    curl.args(["-s", "-X", "POST", "http://hearth/upgrade", "--unix-socket"]);
    let told = ran({
        curl.arg(run_dir.join("control.sock"));
        curl
    });
    assert!(told.1.contains("unknown setting `php.workerz`"), "{told:?}");
    serves(&hearth);
    std::fs::remove_file(site.path().join("hearth.toml")).unwrap();
    for (broken, why) in [
        (
            "<?php hearth_handle_request(fn () => 1); this is no PHP",
            "error: the application did not boot: ",
        ),
        (
            "<?php exit(3); hearth_handle_request(fn () => 1);",
            "error: the application did not boot",
        ),
    ] {
        site.write("worker.php", broken);
        let (code, said, told) = ran(upgrade(&script, &named));
        assert_eq!((code, &*said), (Some(1), ""), "{told}");
        assert!(told.starts_with(why), "{told}");
        assert!(hearth.log_line("upgrade failed, the server continues")["reason"].is_string());
        serves(&hearth);
    }
    site.write(
        "worker.php",
        "<?php while (hearth_handle_request(function () { echo 'hello again'; })) { }",
    );
    let successor = upgraded(upgrade(&script, &named));
    assert_eq!(hearth.process.wait(LIMIT).code(), Some(0));
    assert_eq!(hearth.get("/").text(), "hello again");
    successor.stop();
}

#[test]
fn named_sockets_survive_upgrades_and_are_removed_at_the_end() {
    let site = site();
    let run_dir = site.path().join("run");
    let unix = site.path().join("web.sock");
    let serve = Serve::new(site.path())
        .args(&["--model", "request", "--run-dir", run_dir.to_str().unwrap()])
        .args(&["--listen", &format!("unix:{}", unix.display())])
        .workers(1);
    let mut hearth = serve.start();
    let names = [
        unix,
        run_dir.join("control.sock"),
        run_dir.join("successor.sock"),
        run_dir.join("egress.sock"),
    ];
    let there = || names.iter().all(|name| UnixStream::connect(name).is_ok());
    assert!(there());
    let first = upgraded(upgrade(site.path(), &["--run-dir", run_dir.to_str().unwrap()]));
    assert!(there(), "as soon as the command says so");
    assert_eq!(hearth.process.wait(LIMIT).code(), Some(0));
    assert!(there(), "and when the old process is gone");
    // USR2 does the same, also for a process that has itself replaced another.
    signal(first.0, Signal::USR2);
    // A client of the previous process may lose its connection.
    eventually("the next one serves", LIMIT, || {
        ask_admin(hearth.admin, "/status").is_ok_and(|answer| answer.json()["pid"] != first.0)
    });
    let pid = hearth.status()["pid"].as_u64().unwrap();
    let second = Successor(pid.try_into().unwrap());
    eventually("the previous one has ended", LIMIT, || ProcessFacts::of(first.0).is_none());
    assert!(there());
    assert_eq!(hearth.get("/").text(), "hello");
    second.stop();
    for name in &names {
        assert!(!name.exists(), "{}", name.display());
    }
    let left: Vec<_> =
        std::fs::read_dir(&run_dir).unwrap().map(|left| left.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name == "egress.origins"), "{left:?}");
}

#[test]
fn check_accepts_the_socket_of_an_upgraded_server() {
    let site = site();
    let run_dir = site.path().join("run");
    let broker = site.path().join("broker.sock");
    let named = ["--run-dir", run_dir.to_str().unwrap()];
    let mut hearth = Serve::new(site.path())
        .model("request")
        .args(&named)
        .set("HEARTH_EGRESS_SOCKET", broker.to_str().unwrap())
        .workers(1)
        .start();
    let successor = upgraded(upgrade(site.path(), &named));
    assert_eq!(hearth.process.wait(LIMIT).code(), Some(0));
    let mut check = command();
    check.arg("check").arg(site.path()).args(named).env("HEARTH_EGRESS_SOCKET", &broker);
    let (_, said, told) = ran(check);
    let expected = format!(
        "egress: the running server (process {}) listens on unix:{}",
        successor.pid(),
        broker.display()
    );
    assert!(format!("{said}{told}").contains(&expected), "{said}{told}");
    successor.stop();
}

#[test]
fn an_unrelated_process_gets_no_sockets() {
    let site = site();
    let run_dir = site.path().join("run");
    let named = ["--run-dir", run_dir.to_str().unwrap()];
    let mut hearth = Serve::new(site.path()).model("request").args(&named).workers(1).start();
    // An unrelated process connects before the real successor does.
    let mut stranger = UnixStream::connect(run_dir.join("successor.sock")).unwrap();
    stranger.set_read_timeout(Some(LIMIT)).unwrap();
    let successor = upgraded(upgrade(site.path(), &named));
    assert_eq!(stranger.read(&mut [0]).unwrap(), 0, "it received nothing");
    hearth.log_line("came for our sockets");
    assert_eq!(hearth.process.wait(LIMIT).code(), Some(0));
    successor.stop();
}

/// Stands in for a service manager (`sd_notify(3)`). It reads notifications at once, since a server waits until they
/// are read.
pub(crate) struct Manager {
    path: PathBuf,
    told: Receiver<String>,
}

impl Manager {
    pub(crate) fn start(folder: &Path) -> Self {
        let path = folder.join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        let (said, told) = mpsc::channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 256];
            while let Ok(length) = socket.recv(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
                if said.send(text).is_err() {
                    break;
                }
            }
        });
        Self { path, told }
    }

    /// Returns the path of the socket.
    pub(crate) fn path(&self) -> &str {
        self.path.to_str().unwrap()
    }

    /// Returns the next notification.
    pub(crate) fn heard(&self) -> String {
        self.told.recv_timeout(LIMIT).unwrap()
    }

    /// Discards all notifications until now.
    fn forget(&self) {
        const HERE: &str = "until here";
        UnixDatagram::unbound().unwrap().send_to(HERE.as_bytes(), &self.path).unwrap();
        while self.heard() != HERE {}
    }
}

#[test]
fn the_watchdog_is_notified_before_and_after_an_upgrade() {
    let site = site();
    let manager = Manager::start(site.path());
    let heard = || manager.heard();
    let mut hearth = Serve::new(site.path())
        .model("request")
        .workers(1)
        .set("NOTIFY_SOCKET", manager.path())
        .set("WATCHDOG_USEC", "400000")
        .start();
    assert_eq!(heard(), "READY=1");
    for _ in 0..3 {
        assert_eq!(heard(), "WATCHDOG=1");
    }
    let successor = upgraded(upgrade(site.path(), &[]));
    assert_eq!(hearth.process.wait(LIMIT).code(), Some(0));
    // Older messages are skipped.
    while heard() != "READY=1" {}
    manager.forget();
    assert_eq!(heard(), "WATCHDOG=1");
    successor.stop();
}

#[test]
fn systemd_is_notified_of_the_new_main_process() {
    let site = site();
    let manager = Manager::start(site.path());
    let heard = || manager.heard();
    let mut hearth = Serve::new(site.path())
        .model("request")
        .workers(1)
        .set("NOTIFY_SOCKET", manager.path())
        .start();
    assert_eq!(heard(), "READY=1");
    let successor = upgraded(upgrade(site.path(), &[]));
    assert_eq!(heard(), format!("MAINPID={}", successor.0));
    // This notification comes from the new process, which the manager follows by now. The old one does not announce its
    // end.
    assert_eq!(heard(), "READY=1");
    assert_eq!(hearth.process.wait(LIMIT).code(), Some(0));
    successor.stop();
    assert_eq!(heard(), "STOPPING=1");
}

#[test]
fn realtime_clients_reconnect_to_the_upgraded_server() {
    let site = site();
    let mut hearth = Serve::new(site.path())
        .args(&["--model", "request", "--app", "1:key:secret"])
        .workers(1)
        .start();
    let mut client = realtime::Client::open(&hearth, "key");
    assert_eq!(client.next().0, "pusher:connection_established");
    let successor = upgraded(upgrade(site.path(), &[]));
    assert_eq!(client.closed(), 4200);
    let mut client = realtime::Client::open(&hearth, "key");
    assert_eq!(client.next().0, "pusher:connection_established");
    assert_eq!(hearth.process.wait(LIMIT).code(), Some(0));
    successor.stop();
}

#[test]
fn an_upgrade_removes_old_sockets_after_the_new_ones_serve() {
    let site = Site::empty().with_file("public/index.html", "files only");
    let (run_dir, kept, dropped) =
        (site.path().join("run"), site.path().join("kept.sock"), site.path().join("dropped.sock"));
    let listen = |sockets: &[&Path]| {
        let sockets: Vec<String> =
            sockets.iter().map(|path| format!("\"unix:{}\"", path.display())).collect();
        let all = format!("[http]\nlisten = [\"127.0.0.1:0\", {}]\n", sockets.join(", "));
        site.write("hearth.toml", &all);
    };
    listen(&[&kept, &dropped]);
    let run = run_dir.to_str().unwrap();
    let mut serve = command();
    serve.args(["serve", "--run-dir", run, "--log-format", "json"]).arg(site.path());
    let mut old = testkit::Running::start(&mut serve);
    let ready = old.log().find(LIMIT, |line| line.contains("dropped.sock").then_some(()));
    assert!(ready.is_some(), "{}", old.log().text());
    assert!(UnixStream::connect(&dropped).is_ok());

    listen(&[&kept]);
    // A failed upgrade changes nothing.
    site.write("worker.php", "<?php hearth_handle_request(fn () => 1); this is no PHP");
    let (code, _, why) = ran(upgrade(site.path(), &["--run-dir", run]));
    assert_eq!(code, Some(1), "{why}");
    assert!(why.starts_with("error: the application did not boot: "), "{why}");
    assert!(UnixStream::connect(&dropped).is_ok());
    std::fs::remove_file(site.path().join("worker.php")).unwrap();

    let new = upgraded(upgrade(site.path(), &["--run-dir", run]));
    assert!(UnixStream::connect(&kept).is_ok());
    assert!(!dropped.exists(), "no listener exists");
    assert_eq!(old.wait(LIMIT).code(), Some(0));
    assert!(kept.exists());

    // The broker starts with the first PHP application.
    assert!(!run_dir.join("egress.sock").exists());
    std::fs::remove_file(site.public().join("index.html")).unwrap();
    site.write("public/index.php", "<?php echo 'hello';");
    let mut reload = command();
    reload.arg("reload").arg(site.path()).args(["--run-dir", run]);
    let (code, _, why) = ran(reload);
    assert_eq!(code, Some(0), "{why}");
    assert!(UnixStream::connect(run_dir.join("egress.sock")).is_ok());
    new.stop();
    assert!(!kept.exists());
}

#[test]
fn a_server_that_cannot_be_upgraded_says_why() {
    let site = site();
    // A folder has the name of the socket for successors.
    let run_dir = site.path().join("run");
    std::fs::create_dir_all(run_dir.join("successor.sock")).unwrap();
    let run = run_dir.to_str().unwrap();
    let hearth =
        Serve::new(site.path()).args(&["--model", "request", "--run-dir", run]).workers(1).start();
    let (code, _, why) = ran(upgrade(site.path(), &["--run-dir", run]));
    assert_eq!(code, Some(1), "{why}");
    assert!(why.starts_with("error: this server cannot be upgraded\n  caused by: "), "{why}");
    hearth.process.signal(Signal::USR2);
    let reason = hearth.log_line("USR2 ignored")["reason"].to_string();
    assert!(reason.starts_with("\"this server cannot be upgraded: "), "{reason}");
    assert_eq!(hearth.get("/").text(), "hello");

    let broker = crate::egress::broker::Broker::start_with(&[], &[]);
    broker.process.signal(Signal::USR2);
    let said = broker.process.log().find(LIMIT, |line| {
        (line.contains("USR2 ignored") && line.contains("there is nothing to upgrade here"))
            .then_some(())
    });
    assert!(said.is_some(), "{}", broker.process.log().text());
}
