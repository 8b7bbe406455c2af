//! Rules for requests, as operators set them in `hearth.toml`.

use std::process::Output;

use crate::hearth::{Hearth, Serve, Site, command};

/// An application with these settings in the section `http`.
fn site(http: &str) -> Site {
    Site::empty()
        .with_file("public/index.php", "<?php echo 'php';")
        .with_file("public/file.txt", "file")
        .with_file("hearth.toml", &format!("[http]\n{http}\n"))
}

fn serve(site: &Site) -> Hearth {
    let run_dir = site.path().join("run");
    Serve::new(site.path())
        .args(&["--model", "request", "--run-dir", run_dir.to_str().unwrap()])
        .workers(1)
        .start()
}

fn reload(site: &Site, http: &str) -> Output {
    site.write("hearth.toml", &format!("[http]\n{http}\n"));
    let run_dir = site.path().join("run");
    command().arg("reload").arg(site.path()).arg("--run-dir").arg(run_dir).output().unwrap()
}

/// Returns what a start with these settings says; it fails.
fn refused(http: &str) -> String {
    let site = site(http);
    let output = command().arg("serve").arg(site.path()).output().unwrap();
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_reload_changes_rate_limits_and_refusals_are_logged_once() {
    let site = site("rate_limits = [\"/login 1/h\", \"/ 100/s\"]");
    let hearth = serve(&site);
    assert_eq!(hearth.get("/login").status, 200);
    for path in ["/login", "/%6Cogin", "/index.php/login"] {
        let refused = hearth.get(path);
        assert_eq!(refused.status, 429, "{path}");
        assert!(refused.field("retry-after").is_some());
    }
    assert_eq!(hearth.get("/other").status, 200);
    let logged = hearth.log_line("rate limit: requests refused");
    assert_eq!((&logged["path"], &logged["requests"]), (&"/login".into(), &1.into()), "{logged}");
    let metrics = hearth.admin("/metrics").text();
    assert!(metrics.contains("hearth_client_limits_total{limit=\"rate\"} 3"), "{metrics}");

    // The rule that stays keeps its count.
    assert!(reload(&site, "rate_limits = [\"/login 1/h\", \"/other 1/h\"]").status.success());
    assert_eq!([hearth.get("/login").status, hearth.get("/other").status], [429, 200]);
    assert_eq!([hearth.get("/other").status, hearth.get("/file.txt").status], [429, 200]);
    assert!(reload(&site, "").status.success());
    assert_eq!([hearth.get("/login").status, hearth.get("/other").status], [200, 200]);
    // The other lines are due a minute later.
    let lines = hearth.log().text().matches("rate limit: requests refused").count();
    assert!((2..=3).contains(&lines), "{lines}");
}

#[test]
fn rate_limits_that_cannot_be_are_refused_with_what_to_write() {
    let told = refused("rate_limits = [\"/login 5/d\"]");
    assert!(told.contains("`/login 5/d`") && told.contains("such as `/login 5/m`"), "{told}");
    let told = refused("rate_limits = [\"/login 5/m\", \"/login/ 9/h\"]");
    assert!(told.contains("`http.rate_limits` has two rules for /login"), "{told}");
}
