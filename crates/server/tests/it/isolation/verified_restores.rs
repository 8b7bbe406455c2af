//! `php.verify_restores`: the comparison of all memory finds a difference that the tracking of written pages cannot see
//! (tests/php/saboteur).

use pool::Model;
use testkit::eventually;

use crate::hearth::{Hearth, LIMIT, Serve, Site, isolating, root};

/// Starts the application that hides a page from the engine; `None` if this machine cannot run the model.
fn start(share: &str) -> Option<(Site, Hearth)> {
    if !isolating().contains(&Model::Snapshot) {
        return None;
    }
    let site = Site::empty().with_folder("saboteur");
    let native = root().join("native").display().to_string();
    super::build_library(&site, "saboteur", &["-D_GNU_SOURCE", "-I", &native]);
    let hearth = Serve::new(site.path().join("worker.php"))
        .model("snapshot")
        .workers(1)
        .ini("ffi.enable", "1")
        .set("HEARTH_PHP_VERIFY_RESTORES", share)
        .set("HEARTH_SNAPSHOT_ORACLE", "0")
        .start();
    // The first request makes the page known.
    for _ in 0..3 {
        assert_eq!(hearth.get("/").text(), "1");
    }
    Some((site, hearth))
}

#[test]
fn a_difference_that_a_verified_restore_finds_retires_the_worker() {
    let Some((_site, hearth)) = start("1") else { return };
    let pid = hearth.worker_pid();
    let answer = hearth.get("/some/page?hide=secret");
    assert_eq!((answer.status, answer.text()), (200, "1".to_owned()));
    assert_eq!(hearth.get("/").text(), "1", "another worker, in which memory is right");
    eventually("it is counted", LIMIT, || hearth.status()["pool"]["retired"] == 1);
    assert_ne!(hearth.worker_pid(), pid);

    let line = hearth.log_line("restored memory differs from the snapshot");
    let message = line["message"].as_str().unwrap();
    assert_eq!((&line["level"], &line["worker.pid"]), (&"ERROR".into(), &pid.into()), "{line}");
    assert!(message.contains(" after GET /some/page (id "), "{message}");
    let id = message.split_once("(id ").unwrap().1.split_once("): page 0x").unwrap().0;
    assert!(!id.is_empty() && id != "?", "{message}");
    assert!(!message.contains("secret"), "{message}");
    let mapping = message.split_once("; mapping ").unwrap().1;
    assert!(mapping.contains("/saboteur.so + 0x"), "{message}");
    let all = hearth.log().text();
    assert_eq!(all.lines().filter(|line| line.contains("ERROR")).count(), 1, "{all}");

    let status = hearth.status();
    let restores = &status["pool"]["restores"];
    assert_eq!((&status["pool"]["crashes"], &restores["differing"]), (&0.into(), &1.into()));
    assert!(restores["verified"].as_u64().unwrap() >= 4, "{restores}");
    assert!(restores["seconds"].as_f64().unwrap() > 0.0, "{restores}");
    let problems = status["problems"].to_string();
    assert!(problems.contains("verified restores left memory that differs"), "{problems}");
    let metrics = hearth.admin("/metrics").text();
    let counted = "hearth_restores_differing_total{application=\"main\"} 1\n";
    assert!(metrics.contains(counted), "{metrics}");
    let page = hearth.admin("/").text();
    assert!(page.contains("Restores verified") && page.contains("1 differed"), "{page}");
}

#[test]
fn restores_that_are_not_verified_cost_no_comparison() {
    let Some((_site, hearth)) = start("0") else { return };
    // The damage is real: without the comparison the next request sees it.
    assert_eq!(hearth.get("/?hide").text(), "1");
    assert_eq!(hearth.get("/").text(), "2");
    assert_eq!(hearth.status()["pool"]["restores"]["verified"], 0);
}

#[test]
fn a_share_of_the_restores_is_verified() {
    let Some((_site, hearth)) = start("0.25") else { return };
    let mut client = hearth.connect();
    for _ in 0..400 {
        assert_eq!(client.get("/").unwrap().text(), "1");
    }
    let status = hearth.status();
    let restores = &status["pool"]["restores"];
    // 403 restores: 100 are expected, with a deviation of 9.
    let verified = restores["verified"].as_u64().unwrap();
    assert!((40..170).contains(&verified), "{restores}");
    assert_eq!((&restores["differing"], &status["pool"]["retired"]), (&0.into(), &0.into()));
}
