//! Applications with users of their own.

use super::*;

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
