//! Socket activation: sockets that a service manager has bound are served by its rules (`sd_listen_fds(3)`).

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use testkit::{Client, ProcessFacts, Running};

use crate::hearth::{LIMIT, Serve, Site, admin_of, command};

/// Binds the sockets in its arguments (`NAME=tcp`, `NAME=udp`, `NAME=/path`), prints their addresses, and executes the
/// program after `--`.
const LAUNCHER: &str = r"
import fcntl, os, socket, sys
at = sys.argv.index('--')
names, sockets = [], []
for name, _, where in (argument.partition('=') for argument in sys.argv[1:at]):
    family = socket.AF_UNIX if where.startswith('/') else socket.AF_INET
    made = socket.socket(family, socket.SOCK_DGRAM if where == 'udp' else socket.SOCK_STREAM)
    made.bind(where if family == socket.AF_UNIX else ('127.0.0.1', 0))
    if where != 'udp':
        made.listen()
    address = made.getsockname()
    print('passed', name, address if family == socket.AF_UNIX else '%s:%s' % address, file=sys.stderr, flush=True)
    names.append(name)
    sockets.append(fcntl.fcntl(made, fcntl.F_DUPFD, 100))
for number, made in enumerate(sockets, 3):
    os.dup2(made, number)
    os.close(made)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(names)), LISTEN_FDNAMES=':'.join(names))
os.execv(sys.argv[at + 1], sys.argv[at + 1:])
";

fn passing(serve: Serve, sockets: &[&str]) -> Running {
    serve.through(&["python3", "-c", LAUNCHER], &[sockets, &["--"]].concat()).launch()
}

/// Returns the rest of the output line that begins so.
fn said(process: &Running, beginning: &str) -> String {
    let found = process.log().find(LIMIT, |line| Some(line.strip_prefix(beginning)?.to_owned()));
    found.unwrap_or_else(|| panic!("no {beginning:?} in:\n{}", process.log().text()))
}

/// Returns the sockets that a process has open.
fn sockets_of(pid: u32) -> BTreeSet<PathBuf> {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let names = descriptors.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    names.filter(|name| name.to_string_lossy().starts_with("socket:")).collect()
}

/// The whole answer to a request through a Unix socket.
pub(crate) fn get_through(path: &Path, target: &str) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    write!(stream, "GET {target} HTTP/1.0\r\nHost: a\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn sockets_passed_by_a_service_manager_are_served_and_not_inherited() {
    let site = Site::of_scripts()
        .with_file("public/environment.php", "<?php echo implode(' ', array_keys(getenv()));");
    let path = site.path().join("passed.sock");
    let unix = format!("web={}", path.display());
    let serve = Serve::new(site.path()).model("request").workers(1);
    let mut process = passing(serve, &["web=tcp", &unix, "admin=tcp"]);
    let web = said(&process, "passed web ");
    let admin = said(&process, "passed admin ");
    assert_eq!(said(&process, "hearth: admin on http://"), admin);
    assert_eq!(said(&process, "hearth: ready on http://"), web);
    said(&process, &format!("hearth: ready on http+unix:{}", path.display()));
    let get = |target: &str| Client::connect(web.parse().unwrap()).unwrap().get(target).unwrap();
    assert_eq!(get("/hello.php").status, 200);
    assert!(
        get_through(&path, "/hello.php").starts_with("HTTP/1.0 200"),
        "over the unix socket, too"
    );
    let status = admin_of(admin.parse().unwrap(), "/status").json();
    // Only the passed sockets are used; `http.listen` is ignored.
    let listeners = [format!("http://{web}"), format!("http+unix:{}", path.display())];
    assert_eq!(status["listeners"], serde_json::json!(listeners));
    let names = get("/environment.php").text();
    assert!(names.contains("PATH") && !names.contains("LISTEN_"), "{names}");
    // Descriptors 3 to 5 of the server are the passed sockets.
    let passed: BTreeSet<PathBuf> = (3..6)
        .map(|number| std::fs::read_link(format!("/proc/{}/fd/{number}", process.pid())).unwrap())
        .filter(|name| name.to_string_lossy().starts_with("socket:"))
        .collect();
    let zygote = ProcessFacts::children(process.pid())[0];
    for child in ProcessFacts::children(zygote).into_iter().chain([zygote]) {
        assert!(sockets_of(child).is_disjoint(&passed), "{passed:?}");
    }
    process.signal(Signal::TERM);
    assert_eq!(process.wait(LIMIT).code(), Some(0));
    assert!(path.exists(), "the file belongs to the user that created it");
}

#[test]
fn passed_descriptors_that_are_no_listeners_are_rejected_at_start() {
    let site = Site::of_scripts();
    for (sockets, why) in [
        (
            &["web=udp"][..],
            "error: descriptor 3 (`web`), which LISTEN_FDS passes, is no stream socket",
        ),
        (&["web=tcp", "admin=tcp", "admin=tcp"], "error: descriptor 5 (`admin`), which LISTEN_FDS"),
    ] {
        let mut process = passing(Serve::new(site.path()), sockets);
        let (status, said) = process.finish(LIMIT);
        assert_eq!(status.code(), Some(2), "{said}");
        assert!(said.contains(why), "{said}");
    }
    // Sockets that were passed to another process are ignored.
    let serve = Serve::new(site.path()).set("LISTEN_PID", "1").set("LISTEN_FDS", "1");
    assert_eq!(serve.model("request").workers(1).start().get("/hello.php").status, 200);
}

#[test]
fn systemds_socket_launcher_starts_it_with_the_first_client() {
    const ACTIVATE: &str = "/usr/bin/systemd-socket-activate";
    if !Path::new(ACTIVATE).exists() {
        return;
    }
    let site = Site::of_scripts();
    // `http.listen` accepts no port 0, and another program may take a free one.
    let path = site.path().join("activated.sock");
    let mut hearth = command();
    hearth.arg("serve").arg(site.path()).args(["--model", "request", "--workers", "1"]);
    let mut launcher = Command::new(ACTIVATE);
    launcher.arg(format!("--listen={}", path.display())).arg("--fdname=web");
    for (name, value) in hearth.get_envs() {
        if let (Some(name), Some(value)) = (name.to_str(), value.and_then(|value| value.to_str())) {
            launcher.arg("-E").arg(format!("{name}={value}"));
        }
    }
    launcher.arg(hearth.get_program()).args(hearth.get_args());
    let mut process = Running::start(&mut launcher);
    let listens = process.log().find(LIMIT, |line| line.contains("Listening on").then_some(()));
    assert!(listens.is_some(), "{}", process.log().text());
    let answer = get_through(&path, "/hello.php");
    assert!(answer.starts_with("HTTP/1.0 200"), "{answer}: {}", process.log().text());
    assert_eq!(said(&process, "hearth: ready on http+unix:"), path.display().to_string());
    process.signal(Signal::TERM);
    assert_eq!(process.wait(LIMIT).code(), Some(0));
}
