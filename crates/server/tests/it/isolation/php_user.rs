//! PHP as another user than the server (`php.user`), in all models, and what that user cannot reach.
//!
//! Only root can run these tests; for other users they print that and do nothing.

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

/// A script that tries to reach the other application's files and sockets, and makes an outgoing call.
const SPY: &str = r"<?php
$asked = json_decode(base64_decode($_GET['asked'] ?? ''), true) ?: [];
$speak = static function (string $path): bool {
    $socket = @stream_socket_client('unix://' . $path);
    return $socket && @fwrite($socket, 'GET / HTTP/1.0' . str_repeat(chr(13) . chr(10), 2)) && @fread($socket, 1) !== '';
};
$curl = curl_init($_GET['call'] ?? 'http://127.0.0.1:1/');
curl_setopt($curl, CURLOPT_RETURNTRANSFER, true);
$called = isset($_GET['call']) ? curl_exec($curl) : null;
echo json_encode([
    'uid' => posix_getuid(), 'groups' => posix_getgroups(), 'pid' => posix_getpid(), 'broker' => getenv('HEARTH_EGRESS'),
    'connector' => getenv('HEARTH_DATABASE_CACHE'),
    'called' => $called,
    'reads' => array_map(static fn ($path) => @file_get_contents($path) !== false, $asked['files'] ?? []),
    'lists' => array_map(static fn ($path) => @scandir($path) !== false, $asked['folders'] ?? []),
    'speaks' => array_map($speak, $asked['sockets'] ?? []),
    'signals' => array_map(static fn ($pid) => @posix_kill($pid, 0), $asked['pids'] ?? []),
]);
";

/// Two applications: the one at PATH, whose PHP is [`PHP`], and `shop`, whose PHP is [`SERVER`].
struct TwoUsers {
    site: Site,
    programs: TempDir,
    run_dir: TempDir,
}

impl TwoUsers {
    fn new(model: &str) -> Self {
        let site = Site::empty();
        open(site.path());
        for (name, user) in [("main", PHP), ("shop", SERVER)] {
            site.write(&format!("{name}/public/spy.php"), SPY);
            site.write(&format!("{name}/public/index.php"), "<?php echo 'here';");
            let public = site.path().join(name).join("public");
            let user = Some(user.parse().unwrap());
            std::os::unix::fs::chown(public, user, user).unwrap();
        }
        let two = Self { site, programs: programs(), run_dir: tempfile::tempdir().unwrap() };
        two.give_secret("main", PHP);
        two.give_secret("shop", SERVER);
        two.configure(&Self::settings(model, SERVER));
        two
    }

    /// Creates a file that an application's user may read through its group.
    fn give_secret(&self, name: &str, user: &str) {
        self.site.write(&format!("{name}/secret"), name);
        std::os::unix::fs::chown(self.secret(name), Some(0), Some(user.parse().unwrap())).unwrap();
        fs::set_permissions(self.secret(name), Permissions::from_mode(0o640)).unwrap();
    }

    fn settings(model: &str, shop: &str) -> String {
        format!(
            "[php]\nmodel = \"{model}\"\nworkers = 1\nuser = {PHP}\ngroup = {PHP}\n\
             [applications.shop]\npath = \"../shop\"\nhosts = [\"shop.test\"]\n\
             [applications.shop.php]\nuser = {shop}\ngroup = {shop}\n{CONNECTOR}"
        )
    }

    fn configure(&self, toml: &str) {
        self.site.write("main/hearth.toml", toml);
    }

    fn path(&self) -> PathBuf {
        self.site.path().join("main")
    }

    fn serve(&self) -> Serve {
        Serve::new(self.path())
            .args(&["--run-dir", self.run_dir.path().to_str().unwrap()])
            .set("HEARTH_LIB_DIR", self.programs.path().to_str().unwrap())
    }

    /// The folders that Hearth writes for an application. Only some models have any.
    fn generation_folders(&self, of_main: bool) -> Vec<PathBuf> {
        let all = fs::read_dir(self.run_dir.path()).unwrap();
        let paths = all.map(|entry| entry.unwrap().path());
        let named = |path: &PathBuf| path.to_str().unwrap().contains("-generation-");
        let is_its = |path: &PathBuf| path.to_str().unwrap().ends_with("-shop") != of_main;
        paths.filter(named).filter(is_its).collect()
    }

    fn secret(&self, name: &str) -> PathBuf {
        self.site.path().join(name).join("secret")
    }
}

fn spy(hearth: &Hearth, host: &str, query: &str) -> Value {
    let target = format!("/spy.php?{query}");
    let answer = hearth.connect().request("GET", &target, &[("Host", host)], b"").unwrap();
    assert_eq!(answer.status, 200, "{host}{target}: {}", answer.text());
    answer.json()
}

/// Encodes a query parameter for the script above.
fn asked(what: &Value) -> String {
    use base64::Engine as _;
    let encoded = base64::engine::general_purpose::URL_SAFE.encode(what.to_string());
    format!("asked={encoded}")
}

/// Checks that each application reaches its own files and sockets, and none of the other's.
fn are_apart(two: &TwoUsers, hearth: &Hearth, shop_user: &str, origin: &Origin) {
    let call = format!("call={}", origin.url("/bytes/3"));
    let [main, shop] = ["localhost", "shop.test"].map(|host| spy(hearth, host, &call));
    for (own, user) in [(&main, PHP), (&shop, shop_user)] {
        let user: u32 = user.parse().unwrap();
        assert_eq!(own["uid"], user, "{own}");
        assert_eq!(own["groups"], serde_json::json!([user]), "{own}");
        assert_eq!(own["called"].as_str().map(str::len), Some(3), "{own}");
    }
    let broker = |side: &Value| PathBuf::from(side["broker"].as_str().unwrap());
    assert_ne!(broker(&main), broker(&shop));
    // Connectors belong to the application in `[php]`.
    let connector = main["connector"].as_str().unwrap();
    assert_eq!(shop["connector"], false, "{shop}");
    for (host, is_main) in [("localhost", true), ("shop.test", false)] {
        let (own, other, others_name) =
            if is_main { (&main, &shop, "shop") } else { (&shop, &main, "main") };
        let own_name = if is_main { "main" } else { "shop" };
        let ask = |what: Value| spy(hearth, host, &asked(&what));
        let mut sockets = vec![broker(own)];
        sockets.extend(is_main.then(|| connector.into()));
        let found = ask(serde_json::json!({
            "files": [two.secret(own_name), broker(own).with_file_name("egress.token")],
            "sockets": sockets,
        }));
        assert_eq!(found["reads"], serde_json::json!([true, true]), "{own_name}: {found}");
        let spoke: Vec<bool> = sockets.iter().map(|_| true).collect();
        assert_eq!(found["speaks"], serde_json::json!(spoke), "{own_name}: {found}");

        let (pid, of_main) = (other["pid"].as_u64().unwrap(), others_name == "main");
        let folders = two.generation_folders(of_main);
        let in_them = || folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
        let mut files: Vec<PathBuf> = in_them().map(|entry| entry.unwrap().path()).collect();
        let mut sockets = files.clone();
        files.push(two.secret(others_name));
        files.push(broker(other).with_file_name("egress.token"));
        files.extend(["mem", "environ", "maps"].map(|name| format!("/proc/{pid}/{name}").into()));
        sockets.push(broker(other));
        sockets.extend(of_main.then(|| connector.into()));
        let asked = serde_json::json!({"files": files, "folders": folders, "sockets": sockets, "pids": [pid]});
        let found = ask(asked.clone());
        for (key, asked) in [
            ("reads", &asked["files"]),
            ("lists", &asked["folders"]),
            ("speaks", &asked["sockets"]),
            ("signals", &asked["pids"]),
        ] {
            let all = found[key].as_array().unwrap();
            assert_eq!(all.len(), asked.as_array().unwrap().len(), "{key}: {found}");
            assert!(
                all.iter().all(|had| *had == false),
                "{others_name} to {own_name}: {key}: {found} of {asked}"
            );
        }
    }
}

/// A connector whose database is down: a client that is admitted gets an error.
const CONNECTOR: &str =
    "[databases.connectors.cache]\nurl = \"redis://127.0.0.1:1?sslmode=disable\"\n";

#[test]
fn applications_with_own_users_cannot_reach_each_other() {
    if !is_root() {
        return;
    }
    let origin = Origin::plain(routes);
    for model in of_tier(["request", "fpm", "cgi"]) {
        println!("model {model}");
        let two = TwoUsers::new(model);
        let hearth = two.serve().start();
        are_apart(&two, &hearth, SERVER, &origin);
        // Each application has its own connections to the same origin. Stock PHP has no extension that passes its calls
        // to the broker.
        if !FOREIGN.contains(&model) {
            let status = hearth.status();
            let reached = &status["egress"]["origins"][0];
            let both = Value::from(2);
            assert_eq!((&reached["calls"], &reached["connects"]), (&both, &both), "{status}");
        }
        // A link publishes only files that the application's own user may read.
        for (link, target, status) in [("own", "shop", 200), ("stolen", "main", 403)] {
            let link_path = two.site.path().join("shop/public").join(link);
            std::os::unix::fs::symlink(two.secret(target), link_path).unwrap();
            let answer =
                hearth.connect().request("GET", &format!("/{link}"), &[("Host", "shop.test")], b"");
            assert_eq!(answer.unwrap().status, status, "{link}");
        }
        assert_eq!(hearth.stop().code(), Some(0), "{model}");
        assert!(
            fs::read_dir(two.run_dir.path())
                .unwrap()
                .all(|left| { !left.unwrap().file_name().to_str().unwrap().starts_with("user-") })
        );
    }
}

#[test]
fn application_users_survive_reloads_and_new_ones_need_an_upgrade() {
    const NEW: &str = "54324";
    if !is_root() {
        return;
    }
    let origin = Origin::plain(routes);
    let two = TwoUsers::new("fpm");
    // The build folder may be closed to the test's own user.
    let program = two.programs.path().join("hearth");
    copy_program(Path::new(command().get_program()), &program);
    let server = Some(SERVER_USER.parse().unwrap());
    std::os::unix::fs::chown(two.run_dir.path(), server, server).unwrap();
    let mut hearth =
        two.serve().args(&["--user", SERVER_USER]).set("HEARTH_SERVER_GROUP", SERVER_USER).start();
    are_apart(&two, &hearth, SERVER, &origin);
    hearth.process.signal(Signal::HUP);
    eventually("the next generation answers", LIMIT, || hearth.status()["generation"] == 2);
    eventually("the first one has ended", LIMIT, || {
        [true, false].iter().all(|of_main| two.generation_folders(*of_main).len() == 1)
    });
    are_apart(&two, &hearth, SERVER, &origin);
    // A reload cannot add a user that was not configured at the start.
    two.configure(&TwoUsers::settings("fpm", NEW));
    two.give_secret("shop", NEW);
    hearth.process.signal(Signal::HUP);
    let why = hearth.log_line("reload failed");
    let expected =
        format!("PHP cannot run as user {NEW}: no setting named it when the server started");
    assert!(why["reason"].as_str().unwrap().contains(&expected), "{why}");
    assert_eq!(spy(&hearth, "shop.test", "")["uid"], SERVER.parse::<u32>().unwrap());
    let run_dir = two.run_dir.path().to_str().unwrap();
    let successor = upgraded(upgrade(&two.path(), &["--run-dir", run_dir]));
    hearth.process.wait(LIMIT);
    are_apart(&two, &hearth, NEW, &origin);
    assert_eq!(fact(successor.pid(), "CapPrm"), ["00000000000000e0"]);
    successor.stop();
}

#[test]
fn application_users_in_one_group_are_rejected() {
    if !is_root() {
        return;
    }
    let two = TwoUsers::new("request");
    two.configure(
        &TwoUsers::settings("request", SERVER)
            .replace(&format!("group = {SERVER}"), &format!("group = {PHP}")),
    );
    let started =
        command().args(["serve", "--listen", "127.0.0.1:0"]).arg(two.path()).output().unwrap();
    let told = String::from_utf8(started.stderr).unwrap();
    assert_eq!(started.status.code(), Some(2), "{told}");
    let expected = format!(
        "PHP's user {SERVER} is in group {PHP}, which files and sockets for another user belong to"
    );
    assert!(told.contains("shop") && told.contains(&expected), "{told}");
}
