//! Rules for requests that `hearth serve` applies and `hearth lambda` does not.

use serde_json::json;

use crate::hearth::{LIMIT, Site, command};
use crate::lambda::{Lambda, body, get};

const ANSWERS: &str = "<?php echo 'answered ', $_SERVER['REQUEST_URI'];";
const PASSWORDS: &str = "[http.basic_auth]\n\"/admin\" = \"users\"\n";
const ORIGINS: &str =
    "[websockets]\nroutes = [\"/ws.php\"]\norigins = [\"same\", \"https://app.example.com\"]\n";
const CERTIFICATES: &str = "[http]\nlisten = \":8443\"\ntls_cert = \"cert.pem\"\n\
                            tls_key = \"key.pem\"\nclient_ca = \"ca.pem\"\n";

fn site(settings: &str) -> Site {
    Site::empty()
        .with_file("public/index.php", ANSWERS)
        .with_file("public/ws.php", ANSWERS)
        .with_file("functions/one.php", "<?php return fn (array $event) => 'called';")
        .with_file("users", "")
        .with_file("hearth.toml", settings)
}

#[test]
fn a_rule_that_protects_keeps_a_function_from_starting() {
    let lists = format!("{CERTIFICATES}client_crl = \"crl.pem\"\n");
    for (settings, setting, variables) in [
        (PASSWORDS, "`http.basic_auth`", &[("HEARTH_HTTP_BASIC_AUTH", "")][..]),
        (ORIGINS, "`websockets.origins`", &[("HEARTH_WEBSOCKETS_ORIGINS", "*")]),
        (CERTIFICATES, "`http.client_ca`", &[("HEARTH_HTTP_CLIENT_CA", "off")]),
        (
            &lists,
            "`http.client_ca`",
            &[("HEARTH_HTTP_CLIENT_CA", "off"), ("HEARTH_HTTP_CLIENT_CRL", "off")],
        ),
    ] {
        let site = site(settings);
        let arguments = ["--model", "request"];
        let lambda = Lambda::start(site.path(), &arguments, &[]);
        let posted = lambda.api.answer("", LIMIT);
        assert_eq!(posted.call, "init/error");
        let message = posted.json()["errorMessage"].as_str().unwrap().to_owned();
        assert!(message.contains(setting), "{message}");
        let mut process = lambda.process;
        let (status, log) = process.finish(LIMIT);
        assert_eq!(status.code(), Some(2));
        assert!(variables.iter().all(|(variable, _)| log.contains(variable)), "{log}");

        let check =
            command().arg("check").arg(site.path()).args(["--lambda", "--no-boot"]).output();
        let check = check.unwrap();
        assert!(!check.status.success());
        let said = String::from_utf8_lossy(&check.stdout).into_owned();
        assert!(said.contains(&format!("{setting} is not applied on Lambda")), "{said}");

        let lambda = Lambda::start(site.path(), &arguments, variables);
        assert_eq!(body(&lambda.invoke(&get("/admin"))), "answered /admin");
        assert!(lambda.stop().success());
        // Functions get events, and no requests.
        let handler = [("_HANDLER", "functions/one.php")];
        let mut check = command();
        check.arg("check").arg(site.path()).args(["--lambda", "--no-boot"]).envs(handler);
        let check = check.env("LAMBDA_TASK_ROOT", site.path()).output().unwrap();
        let said = String::from_utf8_lossy(&check.stdout).into_owned();
        assert!(!said.contains("is not applied on Lambda"), "{said}");
        let lambda = Lambda::start(site.path(), &arguments, &handler);
        let posted = lambda.invoke(&json!({}));
        assert_eq!((&*posted.call, posted.json()), ("response", json!("called")));
        assert!(lambda.stop().success());
    }
}

#[test]
fn a_rule_that_does_not_protect_is_warned_of() {
    let site = site(
        "[http]\nrate_limits = [\"/ 1/m\"]\nredirects = [\"/old = /new\"]\nhsts = \"max-age=60\"\n\
         headers = [\"X-A = 1\"]\nbasic_auth = [\"/ = off\"]\n\
         [websockets]\nroutes = [\"/ws.php\"]\norigins = [\"*\"]\n",
    );
    let lambda = Lambda::start(site.path(), &["--model", "request"], &[]);
    assert_eq!(body(&lambda.invoke(&get("/old"))), "answered /old");
    let log = lambda.process.log().text();
    let check = command().arg("check").arg(site.path()).args(["--lambda", "--no-boot"]).output();
    let check = check.unwrap();
    let said = String::from_utf8_lossy(&check.stdout).into_owned();
    assert!(check.status.success(), "{said}");
    for setting in ["http.rate_limits", "http.redirects", "http.headers", "http.hsts"] {
        assert_eq!(log.matches(setting).count(), 1, "{setting}: {log}");
        assert!(said.contains(&format!("`{setting}` is not applied on Lambda")), "{said}");
    }
    assert!(lambda.stop().success());
}
