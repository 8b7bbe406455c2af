//! PHP as another user than the server (`php.user`), in all models, and what that user cannot reach.
//!
//! Only root can run these tests; for other users they print that and do nothing.

mod applications;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::process::{Signal, geteuid};
use serde_json::Value;
use tempfile::TempDir;
use testkit::{Origin, copy_program, eventually, routes};

use crate::hearth::{
    Hearth, LIMIT, Serve, Site, command, every_model, of_tier, php_version, worker_folder,
};
use crate::isolation::user::{fact, open};
use crate::operations::upgrade::{upgrade, upgraded};

/// PHP's user: a number without an account, with its own group.
pub(crate) const PHP: &str = "54321";
/// The server's user, if it is not root.
const SERVER: &str = "54322";
/// The server's user when the applications have two users.
const SERVER_USER: &str = "54323";
const FOREIGN: &[&str] = &["fpm", "builtin", "cgi"];
const TOKEN: &str = "a-token-that-cannot-be-guessed";

/// A script that reports the state and rights of its process and server, as JSON.
const PROBE: &str = r"<?php
$status = file_get_contents('/proc/self/status');
preg_match_all('/^(Uid|Gid|Groups|CapPrm|CapAmb|NoNewPrivs):\s*(.*)$/m', $status, $found);
$broker = getenv('HEARTH_EGRESS');
$folder = dirname($broker);
$server = (int) ($_GET['server'] ?? 0);
exec('(echo said-by-php > /dev/stderr) 2> /dev/null', $nothing, $stderr);
header('Content-Type: application/json');
echo json_encode([
    'status' => array_combine($found[1], array_map(fn ($line) => preg_split('/\s+/', trim($line)), $found[2])),
    'names' => [getenv('HOME'), getenv('USER'), getenv('LOGNAME')],
    'hidden' => getenv('HEARTH_ADMIN_TOKEN'),
    'root' => @posix_setuid(0),
    'token' => is_string(@file_get_contents($folder . '/egress.token')),
    'broker' => @stream_socket_client('unix://' . $broker) !== false,
    'stderr' => $stderr === 0,
    'looks' => @scandir($folder) !== false,
    'commands' => @stream_socket_client('unix://' . $folder . '/control.sock') !== false,
    'successor' => @stream_socket_client('unix://' . $folder . '/successor.sock') !== false,
    'settings' => @file_get_contents($_GET['settings'] ?? '/nowhere'),
    'memory' => @fopen('/proc/' . $server . '/mem', 'r') !== false,
    'environment' => @file_get_contents('/proc/' . $server . '/environ'),
    'signals' => @posix_kill($server, 0),
]);
";

/// A script that writes into the configured folder, that of OPcache's lock, and the one that the server keeps its script in.
const LOCK: &str = r"<?php
$locks = ini_get('opcache.lockfile_path');
echo posix_geteuid(), ': ';
foreach ([$_GET['storage'], $locks, dirname($locks)] as $folder) {
    echo (int) (@file_put_contents($folder . '/note', 'x') === 1);
}";

/// Facts of the probe that must never be true.
const NEVER: &[&str] = &[
    "root",
    "looks",
    "commands",
    "successor",
    "settings",
    "memory",
    "environment",
    "signals",
    "hidden",
];

/// Copies of the programs that every user may run, because the build folder may be private.
pub(crate) fn programs() -> TempDir {
    let programs = tempfile::tempdir().unwrap();
    open(programs.path());
    for name in
        [format!("hearth-worker-{0}", php_version()), format!("hearth-{0}.so", php_version())]
    {
        copy_program(&worker_folder().join(&name), &programs.path().join(&name));
    }
    programs
}

fn site(model: &str) -> (Site, PathBuf) {
    let (site, served) = Site::of_scripts_in(model);
    open(site.path());
    site.write("public/probe.php", PROBE);
    site.write("hearth.toml", &format!("[admin]\ntoken = \"{TOKEN}\"\n"));
    fs::set_permissions(site.path().join("hearth.toml"), Permissions::from_mode(0o600)).unwrap();
    (site, served)
}

fn serve(model: &str, served: &Path, programs: &TempDir) -> Serve {
    serve_as(PHP, model, served, programs)
}

fn serve_as(php: &str, model: &str, served: &Path, programs: &TempDir) -> Serve {
    Serve::new(served)
        .args(&["--model", model, "--php-user", php, "--php-group", php])
        .set("HEARTH_LIB_DIR", programs.path().to_str().unwrap())
        .workers(1)
}

fn probe(hearth: &Hearth, site: &Site, victim: u32) -> Value {
    let settings = site.path().join("hearth.toml");
    hearth.get(&format!("/probe.php?server={victim}&settings={}", settings.display())).json()
}

fn is_php_and_nothing_more(model: &str, told: &Value) {
    let status = &told["status"];
    for identity in ["Uid", "Gid"] {
        let all: Vec<&str> = (0..4).map(|at| status[identity][at].as_str().unwrap()).collect();
        assert_eq!(all, [PHP; 4], "{model}: {told}");
    }
    assert_eq!(status["Groups"], serde_json::json!([PHP]), "{model}: {told}");
    for capabilities in ["CapPrm", "CapAmb"] {
        assert_eq!(status[capabilities][0], "0000000000000000", "{model}: {told}");
    }
    assert_eq!(status["NoNewPrivs"][0], "1", "{model}: {told}");
    assert_eq!(told["names"], serde_json::json!(["/", PHP, PHP]), "{model}: {told}");
    for never in NEVER {
        assert_eq!(told[*never], false, "{model}: {never} of {told}");
    }
    for always in ["token", "broker", "stderr"] {
        assert_eq!(told[always], true, "{model}: {always} of {told}");
    }
}

/// Only root may run programs as another user.
#[expect(clippy::print_stdout, reason = "a skipped test prints that")]
pub(crate) fn is_root() -> bool {
    if !geteuid().is_root() {
        println!("not tried: only root can");
    }
    geteuid().is_root()
}

#[test]
fn php_runs_as_another_user_without_access_to_the_server() {
    if !is_root() {
        return;
    }
    let programs = programs();
    for model in &every_model() {
        println!("model {model}");
        let (site, served) = site(model);
        let hearth = serve(model, &served, &programs).set("HEARTH_ADMIN_TOKEN", TOKEN).start();
        for _ in 0..2 {
            is_php_and_nothing_more(model, &probe(&hearth, &site, hearth.process.pid()));
        }
        assert_eq!(hearth.stop().code(), Some(0), "{model}");
    }
}

#[test]
fn another_php_user_serves_in_a_sandbox_with_writable_paths() {
    if !is_root() {
        return;
    }
    let programs = programs();
    for model in ["request", "snapshot", "fork", "fpm"] {
        let (site, served) = site(model);
        site.write("public/lock.php", LOCK);
        let storage = site.path().join("storage");
        fs::create_dir(&storage).unwrap();
        fs::set_permissions(&storage, Permissions::from_mode(0o777)).unwrap();
        let hearth = serve(model, &served, &programs)
            .set("HEARTH_SANDBOX_WRITABLE", storage.to_str().unwrap())
            .start();
        let wrote = hearth.get(&format!("/lock.php?storage={}", storage.display())).text();
        assert_eq!(wrote, format!("{PHP}: 110"), "{model}");
    }
}

#[test]
fn memory_hidden_by_proc_is_reported_as_null() {
    if !is_root() {
        return;
    }
    let programs = programs();
    let (site, served) = site("snapshot");
    fs::remove_file(site.path().join("hearth.toml")).unwrap();
    let hearth = serve("snapshot", &served, &programs)
        .args(&["--user", SERVER, "--log-level", "debug"])
        .set("HEARTH_SERVER_GROUP", SERVER)
        .start();
    hearth.log_line("memory of a process cannot be read");
    let status = hearth.status();
    let (pool, worker) = (&status["pool"], &status["pool"]["workers"][0]);
    for unknown in [&pool["memory"]["pss_bytes"], &worker["pss_bytes"], &worker["private_bytes"]] {
        assert!(unknown.is_null(), "{status}");
    }
    assert!(status["applications"][0]["footprint"].is_null(), "{status}");
    assert!(worker["resident_bytes"].as_u64().unwrap() > 0, "{worker}");
    let metrics = hearth.admin("/metrics").text();
    let unknown = "hearth_workers_pss_bytes{application=\"main\"} NaN";
    assert!(metrics.contains(unknown), "{metrics}");
}

#[test]
fn a_server_that_was_root_keeps_three_capabilities_and_gives_php_none() {
    if !is_root() {
        return;
    }
    let programs = programs();
    for model in of_tier(["snapshot", "spawn", "fpm", "builtin", "cgi"]) {
        println!("model {model}");
        let (site, served) = site(model);
        fs::remove_file(site.path().join("hearth.toml")).unwrap();
        let hearth = serve(model, &served, &programs)
            .args(&["--user", SERVER])
            .set("HEARTH_SERVER_GROUP", SERVER)
            .start();
        let server = hearth.process.pid();
        is_php_and_nothing_more(model, &probe(&hearth, &site, server));
        assert_eq!(fact(server, "Uid"), [SERVER; 4], "{model}");
        // CAP_KILL, CAP_SETGID, CAP_SETUID (capabilities(7)); and none that a program started by the server would have.
        for (set, capabilities) in
            [("CapEff", 0xe0), ("CapPrm", 0xe0), ("CapInh", 0), ("CapAmb", 0)]
        {
            assert_eq!(fact(server, set), [format!("{capabilities:016x}")], "{model}: {set}");
        }
        // The server can signal and replace processes of another user.
        hearth.process.signal(Signal::HUP);
        eventually("the next generation answers", LIMIT, || hearth.status()["generation"] == 2);
        is_php_and_nothing_more(model, &probe(&hearth, &site, server));
        assert_eq!(hearth.stop().code(), Some(0), "{model}");
    }
}

#[test]
fn time_limits_and_upgrades_work_with_another_php_user() {
    if !is_root() {
        return;
    }
    let programs = programs();
    let (site, served) = site("request");
    site.write("public/slow.php", "<?php sleep(60);");
    fs::remove_file(site.path().join("hearth.toml")).unwrap();
    // The build folder may be closed to the test's own user.
    let program = programs.path().join("hearth");
    copy_program(Path::new(command().get_program()), &program);
    let run_dir = tempfile::tempdir().unwrap();
    fs::set_permissions(run_dir.path(), Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::chown(run_dir.path(), Some(54322), Some(54322)).unwrap();
    let run_dir = run_dir.path().to_str().unwrap();
    let mut hearth = serve("request", &served, &programs)
        .args(&["--user", SERVER, "--run-dir", run_dir, "--request-timeout", "5s"])
        .set("HEARTH_SERVER_GROUP", SERVER)
        .start();
    assert_eq!(hearth.get("/slow.php").status, 504);
    is_php_and_nothing_more("request", &probe(&hearth, &site, hearth.process.pid()));
    let successor = upgraded(upgrade(&served, &["--run-dir", run_dir]));
    hearth.process.wait(LIMIT);
    is_php_and_nothing_more("request", &probe(&hearth, &site, successor.pid()));
    assert_eq!(fact(successor.pid(), "CapPrm"), ["00000000000000e0"]);
    assert_eq!(fact(successor.pid(), "CapAmb"), ["0000000000000000"]);
    successor.stop();
}

#[test]
fn reasons_against_another_php_user_come_with_a_hint() {
    if !is_root() {
        return;
    }
    let said = |mut started: std::process::Command| {
        let output = started.output().unwrap();
        assert_eq!(output.stdout, b"");
        String::from_utf8(output.stderr).unwrap()
    };
    let programs = programs();
    let (site, _) = site("request");
    let start = |site: &Site| {
        let mut start = command();
        start.args(["serve", "--model", "request", "--listen", "127.0.0.1:0", "--php-user", PHP]);
        start.args(["--php-group", PHP]).arg(site.path());
        start.env("HEARTH_LIB_DIR", programs.path());
        start
    };
    // The application belongs to another user.
    let public = site.public();
    fs::set_permissions(&public, Permissions::from_mode(0o700)).unwrap();
    let told = said(start(&site));
    let expected =
        format!("PHP as user {PHP} (`php.user`) cannot enter or run {}", public.display());
    assert!(told.contains(&expected), "{told}");
    assert!(told.contains("\"hint\":\"grant access (`namei -l "), "{told}");
    open(&public);
    // The server has no right to change users.
    fs::remove_file(site.path().join("hearth.toml")).unwrap();
    let program = programs.path().join("hearth");
    copy_program(Path::new(command().get_program()), &program);
    let mut start_as_other = std::process::Command::new("setpriv");
    start_as_other.args(["--reuid", SERVER, "--regid", SERVER, "--clear-groups"]).arg(&program);
    let like = start(&site);
    start_as_other.args(like.get_args()).env_clear();
    start_as_other.envs(like.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let told = said(start_as_other);
    assert!(told.contains("the server lacks CAP_SETUID, CAP_SETGID, CAP_KILL"), "{told}");
    assert!(told.contains("AmbientCapabilities="), "{told}");
}

#[test]
fn php_of_one_user_cannot_inspect_workers_of_another() {
    if !is_root() {
        return;
    }
    let programs = programs();
    let (site, served) = site("request");
    fs::remove_file(site.path().join("hearth.toml")).unwrap();
    let ours = serve("request", &served, &programs).start();
    let others = serve_as(SERVER, "request", &served, &programs).start();
    for victim in [others.worker_pid(), others.zygote_pid()] {
        is_php_and_nothing_more("request", &probe(&ours, &site, victim));
    }
}

#[test]
fn a_connector_serves_only_phps_user() {
    if !is_root() {
        return;
    }
    let programs = programs();
    let (site, served) = site("request");
    site.write(
        "public/ask.php",
        "<?php $socket = $_GET['socket'] ?? getenv('HEARTH_DATABASE_CACHE');\n\
         $connection = stream_socket_client('unix://' . $socket);\n\
         @fwrite($connection, \"PING\\r\\n\");\n\
         echo json_encode([$socket, @fgets($connection)]);",
    );
    // The connector's database is down: a client that is admitted gets an error.
    let settings = "[databases.connectors.cache]\nurl = \"redis://127.0.0.1:1?sslmode=disable\"\n";
    site.write("hearth.toml", settings);
    let ours = serve("request", &served, &programs).start();
    fs::remove_file(site.path().join("hearth.toml")).unwrap();
    let told = ours.get("/ask.php").json();
    assert!(told[1].as_str().is_some_and(|answer| answer.starts_with("-UNAVAILABLE")), "{told}");
    let socket = told[0].as_str().unwrap();
    let other = Serve::new(&served)
        .args(&["--model", "request", "--php-user", SERVER, "--php-group", PHP])
        .set("HEARTH_LIB_DIR", programs.path().to_str().unwrap())
        .workers(1)
        .start();
    let told = other.get(&format!("/ask.php?socket={socket}")).json();
    assert_eq!(told[1], false, "{told}");
    assert_eq!(other.get("/probe.php").json()["status"]["Gid"][0], PHP);
}
