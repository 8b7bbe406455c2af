//! The answer cache with real PHP: stored answers are sent without a worker, and PHP and operators purge them.

use pool::Model;
use rustix::process::Signal;
use testkit::{Answer, Client};

use crate::hearth::{Hearth, Serve, Site, command, isolating, of_tier, signal};

/// A page that counts its runs in a file.
const PAGE: &str = r#"<?php
$file = __DIR__ . '/../runs';
$run = (int) @file_get_contents($file) + 1;
file_put_contents($file, (string) $run);
header('Cache-Control: s-maxage=60');
header('Surrogate-Key: news front');
if (isset($_GET['dies'])) { echo str_repeat('x', 5000); flush(); posix_kill(getmypid(), 9); }
echo "run $run";
"#;

fn site() -> Site {
    let purge = "<?php var_dump(hearth_purge('sport', 'news')); try { hearth_purge('a b'); } catch (ValueError $e) { echo $e->getMessage(); }";
    let session = "<?php session_start(); header('X-Runs: 1'); echo session_id();";
    let folder =
        Site::empty().with_file("public/index.php", "<?php").with_file("public/page.php", PAGE);
    folder.with_file("public/purge.php", purge).with_file("public/session.php", session)
}

fn serve(site: &Site, model: &str) -> Hearth {
    site.write(
        "hearth.toml",
        "[http]\ncache = true\n[admin]\ntoken = \"secret-of-admin-0123456789\"\n",
    );
    Serve::new(site.path()).model(model).workers(2).start()
}

/// Runs `hearth purge`; returns its exit status and output.
fn command_purge(site: &Site, arguments: &[&str]) -> (Option<i32>, String) {
    let run = command().arg("purge").arg(site.path()).args(arguments).output().unwrap();
    (run.status.code(), String::from_utf8_lossy(&run.stdout).into_owned())
}

fn text(hearth: &Hearth, target: &str) -> String {
    hearth.get(target).text()
}

fn ask_admin(hearth: &Hearth, method: &str, target: &str, token: bool) -> Answer {
    let host = hearth.admin.to_string();
    let mut fields = vec![("Host", host.as_str())];
    if token {
        fields.push(("Authorization", "Bearer secret-of-admin-0123456789"));
    }
    Client::connect(hearth.admin).unwrap().request(method, target, &fields, b"").unwrap()
}

#[test]
fn a_stored_answer_needs_no_php_and_is_purged_from_php() {
    let own = [Model::Request, Model::Spawn];
    let models = isolating().into_iter().filter(|model| own.contains(model)).map(Model::name);
    for model in of_tier(models) {
        let site = site();
        let hearth = serve(&site, model);
        let first = hearth.get("/page.php");
        assert_eq!(first.text(), "run 1");
        let second = hearth.get("/page.php");
        assert_eq!((second.text().as_str(), second.field("age")), ("run 1", Some("0")));
        assert!(second.field("cache-status").unwrap().starts_with("Hearth; hit"));
        let purged = text(&hearth, "/purge.php");
        assert!(
            purged.starts_with("bool(true)\n") && purged.contains("must be one tag"),
            "{purged}"
        );
        assert_eq!(text(&hearth, "/page.php"), "run 2");
    }
}

#[test]
fn php_purges_any_number_of_tags_at_once() {
    let script = "<?php $many = fn ($count, $tag) => array_map(fn ($n) => $tag . $n, range(1, $count));\n\
        $tags = match ($_GET['of']) {\n\
            'many' => [...$many(5000, 'product-'), 'news'],\n\
            'long' => [...$many(700, str_repeat('a', 2000)), 'news'],\n\
            'longest' => [str_repeat('a', 2000000), 'news', str_repeat('b', 1048569), str_repeat('c', 1048568)],\n\
        };\n\
        var_dump(hearth_purge(...$tags));";
    let site = site().with_file("public/many.php", script);
    let hearth = serve(&site, "request");
    for (run, of) in ["many", "long", "longest"].iter().enumerate() {
        for _ in 0..2 {
            assert_eq!(text(&hearth, "/page.php"), format!("run {}", run + 1));
        }
        assert_eq!(text(&hearth, &format!("/many.php?of={of}")), "bool(true)\n", "{of}");
    }
    assert_eq!(text(&hearth, "/page.php"), "run 4");
}

#[test]
fn operators_purge_with_the_token_and_see_the_figures() {
    let site = site();
    let hearth = serve(&site, "request");
    for target in ["/page.php", "/page.php?a", "/page.php"] {
        hearth.get(target);
    }
    let purge = |query: &str| ask_admin(&hearth, "POST", &format!("/cache/purge{query}"), true);
    assert_eq!(ask_admin(&hearth, "POST", "/cache/purge?all", false).status, 401);
    assert_eq!(purge("").status, 400);
    assert_eq!(purge("?tag=sport").json()["removed"], 0);
    assert_eq!(purge("?url=http://example.org/page.php%3Fa").json()["removed"], 1);
    assert_eq!(purge("?tag=front").json()["removed"], 1);
    assert_eq!(text(&hearth, "/page.php"), "run 3");
    assert_eq!(purge("?all").json()["removed"], 1);
    hearth.get("/page.php");
    assert_eq!(
        command_purge(&site, &["--tag", "front"]),
        (Some(0), "1 stored answers removed\n".to_owned())
    );
    assert_eq!(command_purge(&site, &[]).0, Some(2));
    let status = ask_admin(&hearth, "GET", "/status", true).json();
    assert_eq!((&status["cache"]["hits"], &status["cache"]["stored"]), (&1.into(), &4.into()));
    let metrics = ask_admin(&hearth, "GET", "/metrics", true).text();
    assert!(metrics.contains("hearth_cache_hits_total 1\n"), "{metrics}");
    assert!(ask_admin(&hearth, "GET", "/", true).text().contains("Answer cache"));
}

#[test]
fn php_purges_answers_of_its_own_application_only() {
    let (site, shop) = (site(), site());
    let settings = format!(
        "[http]\ncache = true\n[applications.shop]\npath = {:?}\nhosts = [\"shop.test\"]\n",
        shop.path()
    );
    site.write("hearth.toml", &settings);
    let hearth = Serve::new(site.path()).model("request").workers(2).start();
    let ask = |host: &str, target: &str| {
        let fields = [("Host", host)];
        Client::connect(hearth.address).unwrap().request("GET", target, &fields, b"").unwrap()
    };
    for host in ["example.org", "shop.test"] {
        assert_eq!(ask(host, "/page.php").text(), "run 1");
    }
    assert!(ask("shop.test", "/purge.php").text().starts_with("bool(true)"));
    assert_eq!(ask("example.org", "/page.php").text(), "run 1");
    assert_eq!(ask("shop.test", "/page.php").text(), "run 2");
}

#[test]
fn a_folder_for_the_cache_that_cannot_be_written_is_named() {
    let site = site();
    site.write("hearth.toml", "[http]\ncache = true\ncache_disk = \"/nonexistent\"\n");
    let run = command().arg("serve").arg(site.path()).output().unwrap();
    let error = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(!run.status.success());
    assert!(error.contains("/nonexistent") && error.contains("http.cache_disk"), "{error}");
}

#[test]
fn sessions_and_answers_of_dead_workers_are_not_stored() {
    let site = site();
    let hearth = serve(&site, "request");
    let one = hearth.get("/session.php");
    assert!(one.field("set-cookie").is_some());
    assert_ne!(one.text(), text(&hearth, "/session.php"));
    // The worker dies within its answer: the client sees that it is cut, and nothing is stored.
    let cut = hearth.connect().get("/page.php?dies");
    assert!(cut.is_err() || cut.unwrap().text().len() <= 5000);
    let status = ask_admin(&hearth, "GET", "/status", true).json();
    assert_eq!(status["cache"]["stored"], 0);
}

#[test]
fn a_reload_empties_the_cache() {
    let site = site();
    let hearth = serve(&site, "request");
    assert_eq!(text(&hearth, "/page.php"), "run 1");
    assert_eq!(text(&hearth, "/page.php"), "run 1");
    signal(hearth.process.pid(), Signal::HUP);
    hearth.log_line("generation took over");
    assert_eq!(text(&hearth, "/page.php"), "run 2");
}

/// The client gets what PHP has sent. Models that run php-fpm or PHP's own server learn no exit status.
#[test]
fn an_answer_that_a_fatal_error_has_cut_is_no_stored_answer() {
    const CUT: &str = "<?php header('Cache-Control: s-maxage=60'); echo str_repeat('x', 5000); \
        match ($_GET['by'] ?? '') { 'exception' => throw new Exception('cut'), \
        'memory' => str_repeat('x', 1 << 30), 'exit' => exit(255), default => print('whole') };";
    const WORKER: &str = "<?php while (hearth_handle_request(function () { \
        require __DIR__ . '/public/index.php'; })) { }";
    let learns = |model: &&Model| !matches!(model, Model::Fpm | Model::Builtin);
    for model in of_tier(Model::ALL.iter().filter(learns).map(|model| model.name())) {
        let site = Site::empty().with_file("public/index.php", CUT).with_file("worker.php", WORKER);
        let serve = Serve::new(site.served_in(model, "worker.php")).model(model).workers(1);
        let serve = serve.ini("output_buffering", "4096").ini("display_errors", "0");
        let hearth = serve.set("HEARTH_HTTP_CACHE", "true").start();
        for by in ["exception", "memory", "exit"] {
            for _ in 0..2 {
                let cut = hearth.get(&format!("/index.php?by={by}"));
                assert_eq!((cut.status, cut.text().len()), (200, 5000), "{model}: {by}");
                let told = cut.field("cache-status").unwrap();
                assert!(told.starts_with("Hearth; fwd=uri-miss"), "{model}, {by}: {told}");
            }
        }
        assert!(hearth.get("/index.php").text().ends_with("whole"), "{model}");
        let told = hearth.get("/index.php");
        let told = told.field("cache-status").unwrap();
        assert!(told.starts_with("Hearth; hit"), "{model}: {told}");
    }
}
