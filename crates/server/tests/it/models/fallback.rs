//! The model that runs if `snapshot` cannot: the cheaper of `fork` and `request`, measured at the start.

use rustix::process::Signal;
use serde_json::Value;
use testkit::eventually;

use crate::hearth::{Hearth, LIMIT, Serve, Site};

/// Writes a front controller and a worker script that answer with their names and record their requests.
fn site(boot: &str, each: &str) -> Site {
    const KEEP: &str = "file_put_contents(__DIR__ . '/ASKED', $_SERVER['REQUEST_METHOD'] . ' ' . \
                        $_SERVER['REQUEST_URI'] . ' ' . ($_SERVER['HEARTH_WARM_UP'] ?? '0') . \"\\n\", FILE_APPEND);";
    let front = KEEP.replace("/ASKED", "/../asked-request");
    let worker = KEEP.replace("/ASKED", "/asked-fork");
    Site::empty()
        .with_file("public/index.php", &format!("<?php {each} {front} echo 'request';"))
        .with_file(
            "worker.php",
            &format!(
                "<?php {boot} while (hearth_handle_request(function () {{ {worker} echo 'fork'; }})) {{ }}"
            ),
        )
}

fn serve(site: &Site) -> Serve {
    Serve::new(site.path()).workers(1).set("HEARTH_SNAPSHOT_TRACKER", "none")
}

/// Returns the warnings about models logged until now.
fn warnings(hearth: &Hearth) -> Vec<Value> {
    let lines = hearth.log().lines();
    let lines = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let wanted = "model cannot run here, another takes its place";
    lines.filter(|line| line["message"] == wanted).collect()
}

/// Returns the model that is cheaper by the figures of a warning.
fn cheaper(warning: &Value) -> &'static str {
    let number = |name: &str| warning[name].as_f64().unwrap_or_else(|| panic!("{name}: {warning}"));
    let both = |what: &str| (number(&format!("fork.{what}")), number(&format!("request.{what}")));
    let ((fork, request), (fork_wall, request_wall)) = (both("processor_ms"), both("wall_ms"));
    assert!(fork > 0.0 && request > 0.0 && fork_wall > 0.0 && request_wall > 0.0, "{warning}");
    let order = fork.total_cmp(&request).then(fork_wall.total_cmp(&request_wall));
    if order.is_le() { "fork" } else { "request" }
}

#[test]
fn the_cheaper_of_fork_and_request_replaces_snapshot() {
    const WORK: &str = "for ($i = 0, $sum = 0; $i < 1000000; $i++) { $sum += $i; }";
    // A fork copies the page tables of the memory that the boot holds.
    const MEMORY: &str =
        "$kept = []; for ($i = 0; $i < 40; $i++) { $kept[] = str_repeat('x', 2 << 20); }";
    for site in [site(WORK, WORK), site(MEMORY, "")] {
        let hearth = serve(&site).start();
        let [warning] = &warnings(&hearth)[..] else { panic!("{:?}", warnings(&hearth)) };
        assert_eq!(warning["model"], "snapshot");
        assert!(warning["why"].as_str().unwrap().contains("HEARTH_SNAPSHOT_TRACKER=none"));
        let chosen = cheaper(warning);
        assert_eq!(warning["instead"], chosen, "{warning}");
        let hint = warning["hint"].as_str().unwrap();
        assert!(hint.contains(&format!("`--model {chosen}`")), "{warning}");

        let status = hearth.status();
        assert_eq!(status["model"], chosen);
        let fallback = &status["applications"][0]["fallback"];
        for model in ["fork", "request"] {
            for what in ["processor_ms", "wall_ms"] {
                let told = &warning[format!("{model}.{what}")];
                assert_eq!(&fallback["costs"][model][what], told, "{status}");
            }
            let requests = fallback["costs"][model]["requests"].as_u64().unwrap();
            assert!((1..=20).contains(&requests), "{status}");
        }
        let problem = status["problems"][0]["text"].as_str().unwrap();
        assert!(problem.contains("Measured at the start: `fork`: "), "{problem}");
        assert_eq!(hearth.get("/").text(), chosen);
        for model in ["fork", "request"] {
            let asked =
                std::fs::read_to_string(site.path().join(format!("asked-{model}"))).unwrap();
            let mut lines: Vec<&str> = asked.lines().collect();
            if model == chosen {
                assert_eq!(lines.pop(), Some("GET / 0"), "the client's own");
            }
            // Besides the measured requests, each zygote has its warm-up request.
            assert!((3..=26).contains(&lines.len()), "{model}: {asked}");
            assert!(lines.iter().all(|line| *line == "GET / 1"), "{model}: {asked}");
        }
    }
}

#[test]
fn a_named_model_that_can_run_is_not_measured() {
    let site = site("", "");
    // A named `snapshot` that cannot run gets the cheaper one as well, with both figures.
    let hearth = serve(&site).model("snapshot").start();
    let [warning] = &warnings(&hearth)[..] else { panic!("{:?}", warnings(&hearth)) };
    assert_eq!(hearth.status()["model"], cheaper(warning), "{warning}");
    assert_eq!(hearth.stop().code(), Some(0));
    for model in ["fork", "request"] {
        std::fs::remove_file(site.path().join(format!("asked-{model}"))).unwrap();
    }
    for model in ["fork", "request"] {
        let hearth = serve(&site).model(model).start();
        assert_eq!(hearth.status()["model"], model);
        assert!(warnings(&hearth).is_empty(), "{:?}", warnings(&hearth));
    }
}

#[test]
fn every_reload_measures_the_fallbacks_again() {
    let site = site("", "");
    let hearth = serve(&site).start();
    for generation in 2..=3 {
        hearth.process.signal(Signal::HUP);
        eventually("it takes over", LIMIT, || hearth.status()["generation"] == generation);
        let warnings = warnings(&hearth);
        assert_eq!(warnings.len(), generation, "{warnings:?}");
        let warning = warnings.last().unwrap();
        assert_eq!(warning["instead"], cheaper(warning), "{warning}");
        assert_eq!(hearth.status()["model"], warning["instead"]);
    }
}

#[test]
fn an_application_that_runs_in_one_fallback_only_gets_that_one() {
    let told = |site: &Site, configure: &dyn Fn(Serve) -> Serve| {
        let hearth = configure(serve(site)).start();
        let [warning] = &warnings(&hearth)[..] else { panic!("{:?}", warnings(&hearth)) };
        (warning.clone(), hearth.get("/").text())
    };
    let as_it_is = |serve: Serve| serve;
    let only = |warning: &Value, model: &str, why: &str| {
        let other = if model == "fork" { "request" } else { "fork" };
        assert_eq!(warning["instead"], model, "{warning}");
        let told = warning[format!("{other}.not_measured")].as_str().unwrap();
        assert!(told.contains(why), "{warning}");
    };
    let (warning, answer) = told(&site("", "http_response_code(500); exit;"), &as_it_is);
    only(&warning, "fork", "status 500");
    assert_eq!(answer, "fork");
    let (warning, answer) = told(&site("throw new Exception('no boot');", ""), &as_it_is);
    only(&warning, "request", "no boot");
    assert_eq!(answer, "request");

    let script = site("", "");
    std::fs::remove_file(script.public().join("index.php")).unwrap();
    let (warning, _) = told(&script, &as_it_is);
    only(&warning, "fork", "worker script only");

    let off = site("", "");
    let (warning, _) = told(&off, &|serve| serve.set("HEARTH_PHP_WARM_UP", "off"));
    only(&warning, "fork", "`php.warm_up` is off");
    assert!(!off.path().join("asked-request").exists(), "no request arrived");
}
