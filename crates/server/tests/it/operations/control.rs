//! `hearth status` and `hearth stop` find a running server, show its state, and stop it.

use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rustix::process::geteuid;
use serde_json::Value;
use testkit::{Running, eventually};

use crate::hearth::{Hearth, LIMIT, Serve, Site, command};

/// Returns the command `hearth NAME PATH ARGS...`.
fn about(name: &str, path: &Path, args: &[&str]) -> Command {
    let mut about = command();
    about.arg(name).arg(path).args(args);
    about
}

fn ran(mut command: Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn status_reports_the_server_as_text_and_json() {
    let site = Site::of_scripts();
    let hearth = Hearth::request(&site);
    hearth.wait_idle(1);
    let (code, text, why) = ran(about("status", site.path(), &[]));
    assert_eq!((code, &*why), (Some(0), ""), "{text}");
    let line = |beginning: &str| {
        let found = text.lines().find(|line| line.starts_with(beginning));
        found.unwrap_or_else(|| panic!("no line begins with {beginning}:\n{text}"))
    };
    let process = hearth.process.pid();
    let first = line(concat!("Hearth ", env!("CARGO_PKG_VERSION"), "  ready  up "));
    assert!(first.ends_with(&format!("process {process}  model request")), "{first}");
    assert_eq!(line("listens"), format!("listens   {}", hearth.url));
    assert!(line("serves").contains(site.path().to_str().unwrap()), "{text}");
    assert_eq!(line("release"), "release   generation 1; reloads: 0 done, 0 failed");
    assert!(line("workers").starts_with("workers   0 of 1 busy, 0 requests wait; "), "{text}");
    assert!(text.contains(&format!("{} idle", hearth.worker_pid())), "{text}");
    // `--run-dir` with the run folder in the output finds the same server.
    let run_dir = line("control").split("--run-dir ").nth(1).unwrap();
    let (code, json, _) = ran(about("status", Path::new("/"), &["--json", "--run-dir", run_dir]));
    assert_eq!(code, Some(0));
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["pid"], &json["state"]), (&process.into(), &"ready".into()), "{json}");
}

#[test]
fn stop_waits_for_the_process_and_reports_why() {
    let site = Site::of_scripts();
    let mut hearth = Hearth::request(&site);
    let gate = site.path().join("gate");
    let mut client = hearth.begin(&format!("/gate.php?gate={}", gate.display()));
    let stop = Running::start(&mut about("stop", site.path(), &[]));
    let waits = stop.log().find(LIMIT, |line| {
        line.starts_with("hearth: waiting for 1 request that runs, at most ")
            .then(|| line.to_owned())
    });
    assert!(waits.is_some(), "{}", stop.log().text());
    // Exit status 1: a load balancer should send no requests to it.
    let (code, text, _) = ran(about("status", site.path(), &[]));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("  draining  "), "{text}");
    std::fs::write(&gate, "").unwrap();
    assert_eq!(client.answer_to("GET").unwrap().status, 200);
    let ended = format!("process {} has ended after ", hearth.process.pid());
    let said = stop.log().find(LIMIT, |line| line.starts_with(&ended).then_some(()));
    assert!(said.is_some(), "{}", stop.log().text());
    // The command returns only when the server has ended.
    assert!(hearth.process.has_ended());
    assert_eq!(hearth.process.wait(LIMIT).code(), Some(0));
}

#[test]
fn stop_now_aborts_running_requests() {
    let site = Site::of_scripts();
    let mut hearth = Serve::new(site.path())
        .model("request")
        .workers(1)
        .set("HEARTH_SERVER_SHUTDOWN_PATIENCE", "10m")
        .start();
    let mut client = hearth.begin("/sleep.php?ms=50000");
    // Also after a graceful stop was requested.
    let mut patient = Running::start(&mut about("stop", site.path(), &[]));
    eventually("it drains", LIMIT, || hearth.status()["state"] == "draining");
    let (code, said, why) = ran(about("stop", site.path(), &["--now"]));
    assert_eq!(code, Some(0), "{why}");
    assert!(said.starts_with(&format!("process {} has ended", hearth.process.pid())), "{said}");
    assert!(hearth.process.has_ended());
    assert!(client.answer_to("GET").is_err(), "its answer was cut off");
    assert_eq!(patient.wait(LIMIT).code(), Some(0), "the graceful stop succeeds, too");
}

#[test]
fn an_ambiguous_command_lists_the_running_servers() {
    let site = Site::of_scripts();
    for name in ["status", "stop"] {
        let (code, _, why) = ran(about(name, site.path(), &[]));
        assert_eq!(code, Some(1), "{why}");
        assert!(why.starts_with("error: no server of this user serves "), "{why}");
    }
    let servers = [Hearth::request(&site), Hearth::request(&site)];
    let (code, _, why) = ran(about("stop", site.path(), &[]));
    assert_eq!(code, Some(1), "{why}");
    assert!(why.starts_with("error: several servers serve "), "{why}");
    let hint = why.lines().find(|line| line.starts_with("hint: say which one")).unwrap();
    for server in servers {
        let before = format!("(process {}, --run-dir ", server.process.pid());
        let run_dir = hint.split(&before).nth(1).unwrap().split(')').next().unwrap();
        let (code, said, why) = ran(about("stop", site.path(), &["--run-dir", run_dir]));
        assert_eq!(code, Some(0), "{why}");
        assert!(said.contains(&server.process.pid().to_string()), "{said}");
    }
    let empty = site.path().join("empty");
    let (code, _, why) = ran(about("stop", site.path(), &["--run-dir", empty.to_str().unwrap()]));
    assert_eq!(code, Some(1), "{why}");
    assert!(why.contains("no server answers at"), "{why}");
}

#[test]
fn secrets_appear_in_no_report_and_no_log() {
    const SECRET: &str = "secret-of-";
    let site = Site::of_scripts().with_file(
        "hearth.toml",
        r#"
        [admin]
        token = "secret-of-admin-0123456789"
        [php.env]
        DB_PASSWORD = "secret-of-environment"
        [php.ini]
        "mysqli.default_pw" = "secret-of-ini"
        [realtime]
        adapter = "redis://user:secret-of-adapter@127.0.0.1:1"
        [realtime.apps.1]
        key = "key"
        secret = "secret-of-application"
        "#,
    );
    let site = site.with_file("public/secret.php", "<?= ini_get('mysqli.default_pw');");
    let hearth = Serve::new(site.path())
        .args(&["--model", "request", "--log-level", "debug"])
        .workers(1)
        .start();
    // No server runs, and the command reports that.
    hearth.log_line("cannot connect to Redis");
    assert_eq!(hearth.get("/secret.php").text(), "secret-of-ini");
    // Every user of the machine can read these.
    for pid in hearth.descendants().into_iter().chain([hearth.process.pid()]) {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap();
        assert!(!String::from_utf8_lossy(&line).contains(SECRET), "{pid}: {line:?}");
    }
    for args in [&["status"][..], &["status", "--json"], &["check"], &["check", "--json"]] {
        let (code, text, why) = ran(about(args[0], site.path(), &args[1..]));
        assert!(code.is_some() && text.len() > 100, "{text}{why}");
        assert!(!text.contains(SECRET) && !why.contains(SECRET), "{args:?}: {text}{why}");
    }
    let log = hearth.log().clone();
    assert_eq!(hearth.stop().code(), Some(0));
    assert!(!log.text().contains(SECRET), "{}", log.text());
}

/// Creates a run folder with a server's name and the id of a living process.
fn folder_like_a_servers(temporary: &Path, number: u32) -> PathBuf {
    let folder = temporary.join(format!("hearth-{}-{number}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    folder
}

/// Answers connections in such a folder.
fn stand_in(temporary: &Path, number: u32, answer: impl Fn(&mut UnixStream) + Send + 'static) {
    let folder = folder_like_a_servers(temporary, number);
    let listener = UnixListener::bind(folder.join("control.sock")).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _asked = stream.read(&mut [0; 1024]).unwrap();
            stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n").unwrap();
            answer(&mut stream);
        }
    });
}

#[test]
fn an_impostor_hides_no_running_server() {
    let site = Site::empty().with_file("public/index.html", "hello");
    let temporary = tempfile::tempdir().unwrap();
    let shown = temporary.path().to_str().unwrap();
    stand_in(temporary.path(), 0, |drips| {
        while drips.write_all(b" ").is_ok() {
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    stand_in(temporary.path(), 1, |floods| while floods.write_all(&[b' '; 4096]).is_ok() {});
    stand_in(temporary.path(), 2, |lies| {
        let who = r#"{"pid":1,"target":"/srv/\u001b[2J\u202eshop"}"#;
        // The peer may have disconnected.
        drop(lies.write_all(who.as_bytes()));
    });
    // No connection is accepted, and the queue of connections is full.
    let deaf = folder_like_a_servers(temporary.path(), 3).join("control.sock");
    let _listener = UnixListener::bind(&deaf).unwrap();
    let filled = std::iter::repeat_with(|| {
        let socket = rustix::net::socket_with(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::STREAM,
            rustix::net::SocketFlags::NONBLOCK | rustix::net::SocketFlags::CLOEXEC,
            None,
        );
        let socket = socket.unwrap();
        let address = rustix::net::SocketAddrUnix::new(&deaf).unwrap();
        rustix::net::connect(&socket, &address).is_ok().then_some(socket)
    });
    let _filled: Vec<_> = filled.map_while(|socket| socket).collect();

    let hearth = Serve::new(site.path()).set("TMPDIR", shown).start();
    let mut right = about("status", site.path(), &["--json"]);
    right.env("TMPDIR", shown);
    let (code, json, why) = ran(right);
    assert_eq!(code, Some(0), "{why}");
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["pid"], hearth.process.pid());

    let other = Site::empty();
    let mut none = about("status", other.path(), &[]);
    none.env("TMPDIR", shown);
    let (code, _, why) = ran(none);
    assert_eq!(code, Some(1), "{why}");
    assert!(why.contains("/srv/?[2J?shop (process 1, --run-dir "), "{why:?}");
}

#[test]
fn root_does_not_mistake_another_users_server_for_its_own() {
    const UNPRIVILEGED: &str = "65534";
    if !geteuid().is_root() {
        return;
    }
    let site = Site::empty().with_file("public/index.html", "hello");
    crate::isolation::user::open(site.path());
    let temporary = tempfile::tempdir().unwrap();
    // The permissions of /tmp.
    std::fs::set_permissions(temporary.path(), PermissionsExt::from_mode(0o1777)).unwrap();
    let shown = temporary.path().to_str().unwrap();
    let status = || {
        let mut status = about("status", site.path(), &["--json"]);
        status.env("TMPDIR", shown);
        ran(status)
    };
    let serve = || Serve::new(site.path()).set("TMPDIR", shown);
    let others = serve().args(&["--user", UNPRIVILEGED]).start();
    let pid_in = |json: &str| serde_json::from_str::<Value>(json).unwrap()["pid"].clone();
    let (code, json, why) = status();
    assert_eq!((code, pid_in(&json)), (Some(0), others.process.pid().into()), "{why}");

    let ours = serve().start();
    let run_dir = |pid: u32| {
        let of_pid = format!("hearth-{pid}-");
        let mut all = std::fs::read_dir(temporary.path()).unwrap().map(|entry| entry.unwrap());
        let its = all.find(|entry| entry.file_name().to_str().unwrap().starts_with(&of_pid));
        its.expect("the server has a run folder").path()
    };
    // The other user's folder, with a link to root's server in it.
    let leads = folder_like_a_servers(temporary.path(), 0);
    symlink(run_dir(ours.process.pid()).join("control.sock"), leads.join("control.sock")).unwrap();
    let other = Some(UNPRIVILEGED.parse().unwrap());
    std::os::unix::fs::chown(&leads, other, other).unwrap();
    let (code, json, why) = status();
    assert_eq!(code, Some(0), "{why}");
    assert_eq!(pid_in(&json), ours.process.pid());
    // The server is found if its run folder is named.
    let named = run_dir(others.process.pid());
    let (code, json, why) =
        ran(about("status", site.path(), &["--json", "--run-dir", named.to_str().unwrap()]));
    assert_eq!((code, pid_in(&json)), (Some(0), others.process.pid().into()), "{why}");
}

#[test]
fn an_insecure_run_folder_stops_the_start_with_a_hint() {
    let site = Site::empty().with_file("public/index.html", "hello");
    let run_dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(run_dir.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let start = |folder: &Path| {
        let mut serve = about("serve", site.path(), &["--listen", "127.0.0.1:0", "--run-dir"]);
        serve.arg(folder);
        Running::start(&mut serve)
    };
    let mut refused = start(run_dir.path());
    let (status, text) = refused.finish(LIMIT);
    assert!(!status.success(), "{text}");
    for part in ["cannot use the run folder", "its mode is 777", "chmod go-w"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // The hint suggests a folder below, which the server creates.
    let mut below = start(&run_dir.path().join("hearth"));
    below.log().wait_for("ready on ");
    below.terminate(LIMIT);

    // The command does not trust another user's socket in our folder.
    if geteuid().is_root() {
        let other = Some(65_534);
        std::fs::set_permissions(run_dir.path(), PermissionsExt::from_mode(0o700)).unwrap();
        std::os::unix::fs::chown(run_dir.path(), other, other).unwrap();
        let _listener = UnixListener::bind(run_dir.path().join("control.sock")).unwrap();
        let shown = run_dir.path().to_str().unwrap();
        let (code, _, why) = ran(about("status", site.path(), &["--run-dir", shown]));
        assert_eq!(code, Some(1), "{why}");
        assert!(why.contains("another user listens there"), "{why}");
    }
}
