//! Several applications, hosts and PHP versions in one server, and a model for each route. Each application has its own
//! workers, files and variables.

use std::path::PathBuf;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{Answer, ProcessFacts, copy_program, eventually};

use crate::hearth::{
    Hearth, LIMIT, Serve, Site, assert_gone, command, php_version, signal, whole_line,
    worker_folder,
};
use crate::operations::upgrade::{upgrade, upgraded};

/// A script that prints its application, its process, and its variables.
const WHO: &str = "<?php header('Content-Type: text/plain');
    echo '@|', getenv('WHOSE'), '|', getmypid(), '|', $_SERVER['REQUEST_URI'], '|', $_SERVER['SCRIPT_NAME'], '|',
        $_SERVER['DOCUMENT_ROOT'], '|', ini_get('memory_limit'), '|', $_SERVER['SERVER_NAME'];";

/// A folder with several applications; the settings are in the one at PATH.
struct Applications(Site);

impl Applications {
    /// Creates `main`, `shop` and `blog`, each with an `index.php` that prints its name, and a file.
    fn new(toml: &str) -> Self {
        let site = Site::empty();
        for name in ["main", "shop", "blog"] {
            site.write(&format!("{name}/public/index.php"), &WHO.replace('@', name));
            site.write(&format!("{name}/public/file.txt"), &format!("file of {name}"));
            site.write(&format!("{name}/public/{name}.txt"), "own file");
            site.write(
                &format!("{name}/public/sleep.php"),
                "<?php usleep(1000 * (int) $_GET['ms']); echo 'slept';",
            );
        }
        let all = Self(site);
        all.configure(toml);
        all
    }

    fn configure(&self, toml: &str) {
        self.0.write("main/hearth.toml", toml);
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("main")
    }

    fn serve(&self) -> Serve {
        Serve::new(self.path()).set("WHOSE", "the server")
    }
}

fn at(hearth: &Hearth, host: &str, target: &str) -> Answer {
    hearth.connect().request("GET", target, &[("Host", host)], b"").unwrap()
}

/// Returns the name of the application that answers.
fn who(hearth: &Hearth, host: &str, target: &str) -> String {
    let answer = at(hearth, host, target);
    assert_eq!(answer.status, 200, "{host}{target}: {}", answer.text());
    answer.text().split('|').next().unwrap().to_owned()
}

/// Returns the figures of an application.
fn figures(hearth: &Hearth, name: &str) -> Value {
    let status = hearth.status();
    let all = status["applications"].as_array().unwrap();
    all.iter().find(|of| of["name"] == name).unwrap_or_else(|| panic!("{name}: {status}")).clone()
}

/// Returns the process ids of an application's workers.
fn workers(hearth: &Hearth, name: &str) -> Vec<u64> {
    let status = hearth.status();
    let all = status["pool"]["workers"].as_array().unwrap();
    let of = all.iter().filter(|worker| worker["application"] == name);
    of.map(|worker| worker["pid"].as_u64().unwrap()).collect()
}

const SHOP: &str = r#"
    [php]
    model = "request"
    workers = 1
    env = { WHOSE = "main" }
    [applications.shop]
    path = "../shop"
    hosts = ["shop.example.com", "*.shop.example.com"]
    [applications.shop.php]
    workers = 2
    [applications.shop.php.ini]
    memory_limit = "99M"
    [applications.blog]
    path = "../blog"
    hosts = ["blog.example.com"]
    paths = ["/blog"]
    [applications.blog.php]
    env = { WHOSE = "blog" }
"#;

#[test]
fn each_application_answers_its_hosts_and_paths() {
    let applications = Applications::new(SHOP);
    let hearth = applications.serve().args(&["--access-log", "json"]).start();
    for (host, target, expected) in [
        ("localhost", "/", "main"),
        ("shop.example.com", "/", "shop"),
        ("SHOP.Example.com.:8080", "/x/y", "shop"),
        ("eu.shop.example.com", "/blog", "shop"),
        ("example.com", "/", "main"),
        ("blog.example.com", "/blog/2026", "blog"),
        ("blog.example.com", "/%62log", "blog"),
        ("blog.example.com", "/x/../blog/", "blog"),
        ("blog.example.com", "/blogs", "main"),
        ("other.example.com", "/blog", "main"),
    ] {
        assert_eq!(who(&hearth, host, target), expected, "{host}{target}");
    }
    // Each host gets its application's own files only.
    assert_eq!(at(&hearth, "localhost", "/file.txt").text(), "file of main");
    assert_eq!(at(&hearth, "shop.example.com", "/file.txt").text(), "file of shop");
    assert_eq!(at(&hearth, "shop.example.com", "/shop.txt").text(), "own file");
    assert_eq!(who(&hearth, "localhost", "/shop.txt"), "main");
    assert_eq!(who(&hearth, "shop.example.com", "/main.txt"), "shop");
    // Requests on one connection may go to several applications.
    let mut client = hearth.connect();
    for (host, expected) in
        [("shop.example.com", "shop"), ("localhost", "main"), ("shop.example.com", "shop")]
    {
        let answer = client.request("GET", "/", &[("Host", host)], b"").unwrap();
        assert!(answer.text().starts_with(expected), "{}", answer.text());
    }

    let answers = ["localhost", "shop.example.com"].map(|host| at(&hearth, host, "/a?b=c").text());
    let [main, shop] = answers.each_ref().map(|text| text.split('|').collect::<Vec<_>>());
    assert_eq!((main[1], shop[1]), ("main", "the server"), "variables are an application's own");
    assert_eq!((shop[3], shop[4], shop[7]), ("/a?b=c", "/index.php", "shop.example.com"));
    assert!(shop[5].ends_with("/shop/public"), "{shop:?}");
    assert_eq!(shop[6], "99M");
    assert!(main[6] != "99M", "{main:?}");
    let blog = at(&hearth, "blog.example.com", "/blog").text();
    assert_eq!(blog.split('|').nth(1), Some("blog"));

    // Each application has its own processes.
    let pid = |answer: &[&str]| answer[2].parse::<u64>().unwrap();
    assert_eq!(workers(&hearth, "main"), [pid(&main)]);
    assert!(workers(&hearth, "shop").contains(&pid(&shop)));
    assert_eq!(workers(&hearth, "shop").len(), 2);

    let shop = figures(&hearth, "shop");
    assert_eq!(shop["claims"], json!(["shop.example.com", "*.shop.example.com"]));
    assert_eq!((&shop["model"], &shop["most"]), (&json!("request"), &json!(2)));
    assert!(shop["requests"].as_u64().unwrap() >= 6, "{shop}");
    let metrics = hearth.admin("/metrics").text();
    for name in ["main", "shop", "blog"] {
        let line = format!("hearth_worker_requests_total{{application=\"{name}\"}} ");
        assert!(metrics.contains(&line), "{line} is not in\n{metrics}");
    }
    let logged = hearth.log_line("\"url.path\":\"/blog/2026\"");
    assert_eq!(logged["hearth.application"], "blog");
    assert!(
        hearth
            .log()
            .text()
            .contains("hearth: shop (shop.example.com, *.shop.example.com): PHP application in ")
    );
    assert!(hearth.admin("/").text().contains("shop.example.com"), "the dashboard shows them");
    assert_eq!(hearth.stop().code(), Some(0));
}

const ROUTES: &str = r#"
    [php]
    model = "worker"
    worker_script = "worker.php"
    workers = 1
    [applications.legacy]
    paths = ["/legacy", "/cron"]
    [applications.legacy.php]
    model = "request"
"#;

#[test]
fn a_route_can_have_its_own_model_and_workers() {
    let applications = Applications::new(ROUTES);
    let count = "static $seen = 0; echo ++$seen, ' ', getmypid();";
    let worker = "while (hearth_handle_request(function () use (&$seen) { echo ++$seen, ' ', getmypid(); })) { }";
    applications.0.write("main/worker.php", &format!("<?php $seen = 0; {worker}"));
    applications.0.write("main/public/index.php", &format!("<?php {count}"));
    let hearth = applications.serve().start();
    let seen = |target: &str| {
        let text = hearth.get(target).text();
        let (seen, pid) = text.split_once(' ').unwrap();
        (seen.parse::<u32>().unwrap(), pid.parse::<u64>().unwrap())
    };
    // The model `worker` shares its state, and `request` does not; each applies to its own paths.
    let first = ["/", "/x"].map(|target| seen(target).0);
    let legacy = ["/legacy", "/legacy/x", "/cron/daily", "/legacy/"].map(|target| seen(target).0);
    let second = ["/legacies", "/"].map(|target| seen(target).0);
    assert_eq!((first, legacy, second), ([1, 2], [1, 1, 1, 1], [3, 4]));
    assert_eq!(workers(&hearth, "main"), [seen("/").1]);
    assert_eq!(workers(&hearth, "legacy"), [seen("/legacy").1]);
    assert_eq!(
        (&figures(&hearth, "main")["model"], &figures(&hearth, "legacy")["model"]),
        (&json!("worker"), &json!("request"))
    );
    assert_eq!(at(&hearth, "localhost", "/file.txt").text(), "file of main");
}

#[test]
fn unclaimed_hosts_get_421_and_settings_files_stay_private() {
    let applications = Applications::new("");
    applications.0.write(
        "hearth.toml",
        "[php]\nmodel = \"request\"\nworkers = 1\n[applications.shop]\npath = \"shop\"\nhosts = [\"shop.example.com\"]\npaths = [\"/a\"]\n",
    );
    applications.0.write("key.pem", "secret");
    let hearth = Serve::new(applications.0.path()).start();
    assert_eq!(who(&hearth, "shop.example.com", "/a/b"), "shop");
    assert_eq!(at(&hearth, "shop.example.com", "/b").status, 404);
    for target in ["/", "/a", "/key.pem", "/hearth.toml"] {
        assert_eq!(at(&hearth, "other.example.com", target).status, 421, "{target}");
        assert_ne!(at(&hearth, "shop.example.com", &format!("/a/..{target}")).text(), "secret");
    }
    assert!(
        hearth.log().text().contains("hearth: no application at PATH"),
        "{}",
        hearth.log().text()
    );
}

#[test]
fn an_overloaded_application_takes_no_worker_of_another() {
    let applications = Applications::new(
        "[php]\nmodel = \"request\"\nworkers = 1\nbacklog = 1\n[applications.shop]\npath = \"../shop\"\nhosts = \"shop\"\n",
    );
    let hearth = applications.serve().start();
    let busy = |host: &'static str| {
        let mut client = hearth.connect();
        std::thread::spawn(move || {
            client.request("GET", "/sleep.php?ms=60000", &[("Host", host)], b"")
        })
    };
    let _sleeps = busy("shop");
    eventually("shop's only worker is busy", LIMIT, || figures(&hearth, "shop")["busy"] == 1);
    let _waits = busy("shop");
    eventually("shop's backlog is full", LIMIT, || figures(&hearth, "shop")["backlog"] == 1);
    assert_eq!(at(&hearth, "shop", "/").status, 503);
    for _ in 0..3 {
        assert_eq!(who(&hearth, "localhost", "/"), "main");
    }
    assert_eq!(
        (&figures(&hearth, "shop")["refused"], &figures(&hearth, "main")["refused"]),
        (&json!(1), &json!(0))
    );
    let pid = workers(&hearth, "shop")[0];
    signal(pid.try_into().unwrap(), Signal::KILL);
    assert_eq!(hearth.log_line("worker died")["span"]["application.name"], "shop");
    eventually("shop has another worker", LIMIT, || figures(&hearth, "shop")["ready"] == 1);
    let metrics = hearth.admin("/metrics").text();
    assert!(
        metrics.contains("\nhearth_backlog_refused_total{application=\"shop\"} 1\n"),
        "{metrics}"
    );
}

#[test]
fn a_reload_switches_all_applications_or_none() {
    let applications = Applications::new(SHOP);
    let hearth = applications.serve().start();
    let reload = || {
        let output = command().arg("reload").arg(applications.path()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    applications.0.write("main/public/index.php", "<?php echo 'new main|';");
    applications.0.write("shop/public/index.php", "<?php this is no PHP");
    eventually("all are ready", LIMIT, || {
        [("main", 1), ("shop", 2)]
            .iter()
            .all(|(name, count)| figures(&hearth, name)["ready"] == *count)
    });
    let before = [workers(&hearth, "main"), workers(&hearth, "shop")];
    let children = || ProcessFacts::children(hearth.process.pid()).len();
    let children_before = children();
    for _ in 0..3 {
        let (code, _, why) = reload();
        assert_eq!(code, Some(1), "{why}");
        assert!(why.contains("application `shop`: the new release answers / with 500"), "{why}");
    }
    eventually("nothing is left of what was ready", LIMIT, || children() == children_before);
    assert_eq!(hearth.status()["generation"], 1);
    assert_eq!(
        [workers(&hearth, "main"), workers(&hearth, "shop")],
        before,
        "the running release continues"
    );

    // One application is removed, another is added, and the others still answer.
    applications.0.write("shop/public/index.php", "<?php echo 'new shop|';");
    applications.configure(
        "[php]\nmodel = \"request\"\nworkers = 1\n[applications.shop]\npath = \"../shop\"\nhosts = [\"shop.example.com\"]\n\
         [applications.news]\npath = \"../blog\"\nhosts = [\"news.example.com\"]\n",
    );
    let (code, said, why) = reload();
    assert_eq!((code, &*why), (Some(0), ""), "{said}");
    assert!(
        said.contains("3 applications: main (request), shop (request), news (request)"),
        "{said}"
    );
    for (host, expected) in [
        ("localhost", "new main"),
        ("shop.example.com", "new shop"),
        ("eu.shop.example.com", "new main"),
        ("news.example.com", "blog"),
        ("blog.example.com", "new main"),
    ] {
        assert_eq!(who(&hearth, host, "/blog"), expected, "{host}");
    }
    eventually("the old generation is gone", LIMIT, || hearth.status()["draining"] == json!([]));
    let metrics = hearth.admin("/metrics").text();
    assert!(
        metrics.contains("\nhearth_workers_wanted{application=\"blog\"} 0\n"),
        "a removed application has no workers: {metrics}"
    );
    assert_eq!(hearth.stop().code(), Some(0));
}

#[test]
fn a_failed_reload_leaves_no_process_of_an_application_that_still_boots() {
    let site = Site::empty();
    let file = |name: &str| site.path().join(name).display().to_string();
    let (boots, gate, fails) = (file("boots"), file("gate"), file("fails"));
    let until = |file: &str| {
        format!("while (!file_exists('{file}')) {{ usleep(1000); clearstatcache(); }}")
    };
    site.write("gate", "");
    site.write("public/index.php", "<?php hearth_await_request(); echo 'front';");
    let slow = format!(
        "<?php file_put_contents('{boots}', getmypid() . \"\\n\", FILE_APPEND); {} hearth_await_request(); echo 'slow';",
        until(&gate)
    );
    site.write("public/slow.php", &slow);
    site.write("other/worker.php", "<?php while (hearth_handle_request(function () { })) { }");
    let toml = format!(
        "[applications.other]\npath = \"{}\"\nhosts = [\"other.example\"]\n\
         [applications.other.php]\nmodel = \"worker\"\nworker_script = \"{}\"\nworkers = 1\n",
        file("other"),
        file("other/worker.php")
    );
    site.write("hearth.toml", &toml);
    let hearth = Serve::new(site.path()).model("fork").workers(1).start();
    assert_eq!(hearth.get("/slow.php").text(), "slow");
    eventually("its boot waits for requests", LIMIT, || {
        let groups = hearth.status()["pool"]["groups"].as_array().cloned().unwrap_or_default();
        let is_it = |group: &Value| {
            group["state"] == "waits" && group["script"].as_str().unwrap().ends_with("/slow.php")
        };
        groups.iter().any(is_it)
    });
    let zygotes = || ProcessFacts::children(hearth.process.pid());
    let before = zygotes();

    std::fs::remove_file(&gate).unwrap();
    std::fs::remove_file(&boots).unwrap();
    let fails_late = format!("<?php {} throw new Exception('broken release');", until(&fails));
    site.write("other/worker.php", &fails_late);
    let mut reload = command();
    let reload = reload.arg("reload").arg(site.path()).stderr(Stdio::piped()).spawn().unwrap();
    // The front controller of the new release waits, and the other script still boots.
    let booting = whole_line(boots.as_ref()).trim().parse().unwrap();
    assert!(zygotes().len() > before.len());
    std::fs::write(&fails, "").unwrap();
    let reload = reload.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&reload.stderr).into_owned();
    assert!(!reload.status.success() && said.contains("broken release"), "{said}");
    assert_gone(&[booting]);
    eventually("only the old release's processes are left", LIMIT, || zygotes() == before);
    assert_eq!(hearth.get("/slow.php").text(), "slow");
}

#[test]
fn each_application_runs_its_configured_php() {
    // Only one version of PHP is installed here. Its worker under the name of another version counts as another
    // program.
    let version = php_version();
    let programs = Site::empty();
    let real = worker_folder().join(format!("hearth-worker-{version}")).canonicalize().unwrap();
    for name in [version.as_str(), "8.99"] {
        copy_program(&real, &programs.path().join(format!("hearth-worker-{name}")));
    }
    let applications = Applications::new(&format!(
        "[php]\nversion = \"{version}\"\nmodel = \"request\"\nworkers = 1\n\
         [applications.shop]\npath = \"../shop\"\nhosts = \"shop\"\n[applications.shop.php]\nversion = \"8.99\"\n"
    ));
    let hearth =
        applications.serve().set("HEARTH_LIB_DIR", programs.path().to_str().unwrap()).start();
    for (host, name) in [("localhost", version.as_str()), ("shop", "8.99")] {
        let pid = at(&hearth, host, "/").text().split('|').nth(2).unwrap().to_owned();
        let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap();
        assert!(
            program.ends_with(format!("hearth-worker-{name}")),
            "{host}: {}",
            program.display()
        );
    }
    applications.configure("[applications.shop]\npath = \"../shop\"\nhosts = \"shop\"\n[applications.shop.php]\nversion = \"8.7\"\n");
    let check = command()
        .arg("check")
        .arg(applications.path())
        .env("HEARTH_LIB_DIR", programs.path())
        .output()
        .unwrap();
    let said = String::from_utf8(check.stdout).unwrap();
    assert_eq!(check.status.code(), Some(1), "{said}");
    assert!(said.contains("application `shop`: no PHP 8.7 found"), "{said}");
}

#[test]
fn an_upgrade_keeps_each_applications_workers() {
    let applications = Applications::new(
        "[php]\nmodel = \"request\"\nworkers = 1\n[applications.shop]\npath = \"../shop\"\nhosts = \"shop\"\n\
         [applications.shop.php]\nworkers_max = 3\nworkers_idle_timeout = \"1h\"\n",
    );
    let mut hearth = applications.serve().start();
    eventually("it has grown", LIMIT, || {
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| at(&hearth, "shop", "/sleep.php?ms=300"));
            }
        });
        figures(&hearth, "shop")["wanted"].as_u64() > Some(1)
    });
    let wanted = figures(&hearth, "shop")["wanted"].clone();
    let successor = upgraded(upgrade(&applications.path(), &[]));
    assert_eq!(hearth.process.wait(LIMIT).code(), Some(0), "{}", hearth.log().text());
    assert_eq!(figures(&hearth, "shop")["wanted"], wanted);
    assert_eq!(figures(&hearth, "main")["wanted"], 1);
    assert_eq!([who(&hearth, "shop", "/"), who(&hearth, "localhost", "/")], ["shop", "main"]);
    successor.stop();
}

#[test]
fn log_lines_name_their_application() {
    let applications = Applications::new(
        "[php]\nmodel = \"request\"\nworkers = 1\n[log]\nlevel = \"error\"\n[applications.shop]\npath = \"../shop\"\nhosts = \"shop\"\n",
    );
    for name in ["main", "shop"] {
        let script = format!("<?php missing_in_{name}();");
        applications.0.write(&format!("{name}/public/fails.php"), &script);
    }
    let hearth = applications.serve().start();
    for (host, name) in [("localhost", "main"), ("shop", "shop")] {
        assert_eq!(at(&hearth, host, "/fails.php").status, 500, "{host}");
        let line = hearth.log_line(&format!("missing_in_{name}"));
        assert_eq!(line["span"]["application.name"], name, "{line}");
    }
}

#[test]
fn hints_about_an_application_use_its_own_keys() {
    for (table, hint) in [
        ("[applications.shop.php]\nversion = \"8.99\"\n", "`applications.shop.php.version = \"8."),
        (
            "[applications.shop.php]\nmodel = \"snapshot\"\n",
            "`applications.shop.php.model = \"request\"`",
        ),
        ("path = \"../nothing\"\n", "`applications.shop.path = \"PATH\"`"),
    ] {
        let path = if table.starts_with("path") { "" } else { "path = \"../shop\"\n" };
        let toml = format!("[applications.shop]\nhosts = [\"shop.test\"]\n{path}{table}");
        let applications = Applications::new(&toml);
        let (serve, mut check) = (applications.serve(), command());
        let (_, said) = serve.launch().finish(LIMIT);
        assert!(said.contains("error: application `shop`: "), "{said}");
        assert!(
            said.lines().any(|line| line.starts_with("hint: ") && line.contains(hint)),
            "{said}"
        );
        check.arg("check").arg(applications.path()).args(["--listen", "127.0.0.1:0"]);
        let checked = String::from_utf8(check.output().unwrap().stdout).unwrap();
        assert!(checked.contains(hint), "{checked}");
    }
}
