//! Rules for requests, as operators set them in `hearth.toml`.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Output;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use testkit::{Client, Running};

use crate::hearth::{Hearth, LIMIT, Serve, Site, command};

/// `ann` with the password `secret`, as `htpasswd -B` writes it.
const USERS: &str = "ann:$2y$04$Cunbpthv3MQoS.v99DdMhOp8yUcVn41mI8u8U5AH.mvhI5YXV6kxe\n";

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
    for path in ["/login", "/%6Cogin", "/index.phplogin"] {
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

/// Returns the fields of a user, whose password is `secret` in [`USERS`].
fn login(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

fn get_as(hearth: &Hearth, target: &str, user: &str, password: &str) -> testkit::Answer {
    let fields = [("Authorization", &*login(user, password))];
    hearth.connect().request("GET", target, &fields, b"").unwrap()
}

#[test]
fn paths_with_passwords_are_closed_in_every_spelling_and_php_gets_the_user() {
    let http = "[http.basic_auth]\n\"/admin\" = \"users\"\n\"/admin/health\" = \"off\"";
    let site = site(http)
        .with_file("users", USERS)
        .with_file("public/admin/report.txt", "report")
        .with_file(
            "public/index.php",
            "<?php echo $_SERVER['REMOTE_USER'] ?? '', '|', $_SERVER['PHP_AUTH_USER'] ?? '', '|', $_SERVER['PHP_AUTH_PW'] ?? '';",
        );
    let hearth = serve(&site);
    for path in [
        "/admin",
        "/admin/report.txt",
        "/ADMIN/x",
        "/%61dmin/report.txt",
        "//admin//report.txt",
        "/x/..%2fadmin/report.txt",
        "/index.php/admin",
        "/index.phpadmin",
        "/%69ndex.php%61dmin",
    ] {
        let closed = hearth.get(path);
        assert_eq!(closed.status, 401, "{path}");
        let asks = closed.field("www-authenticate").unwrap();
        assert_eq!(asks, "Basic realm=\"Restricted\", charset=\"UTF-8\"");
    }
    assert_eq!(hearth.get("/admin/health").text(), "||");
    assert_eq!(hearth.get("/").text(), "||");
    assert_eq!(get_as(&hearth, "/admin/report.txt", "ann", "secret").text(), "report");
    assert_eq!(get_as(&hearth, "/admin/x", "ann", "secret").text(), "ann|ann|secret");
    // Where no password is needed, the field is PHP's own affair.
    assert_eq!(get_as(&hearth, "/", "eve", "x").text(), "|eve|x");
    assert_eq!(get_as(&hearth, "/admin/x", "ann", "wrong").status, 401);
    assert_eq!(hearth.admin("/up").status, 200);

    // Wrong passwords are few per client; one that was right is still known.
    let mut refused = (0..20).map(|number| get_as(&hearth, "/admin", "ann", &number.to_string()));
    let refused = refused.find(|answer| answer.status != 401).expect("a 429");
    assert_eq!(refused.status, 429);
    assert!(refused.field("retry-after").is_some());
    assert_eq!(get_as(&hearth, "/admin/x", "ann", "secret").status, 200);
    let metrics = hearth.admin("/metrics").text();
    assert!(metrics.contains("hearth_client_limits_total{limit=\"passwords\"} 1"), "{metrics}");

    site.write("users", "ann:secret\n");
    let failed = reload(&site, http);
    let told = String::from_utf8(failed.stderr).unwrap();
    assert!(told.contains("line 1 of") && told.contains("write it by `htpasswd -B`"), "{told}");
    assert_eq!(get_as(&hearth, "/admin/x", "ann", "secret").status, 200, "nothing has changed");
    assert!(reload(&site, "").status.success());
    assert_eq!(hearth.get("/admin/x").text(), "||");
}

#[test]
fn each_path_that_symfony_sees_below_a_closed_one_needs_its_password() {
    let site =
        site("[http.basic_auth]\n\"/admin\" = \"users\"").with_file("users", USERS).with_file(
            "public/index.php",
            "<?php require '/usr/share/php/Symfony/Component/HttpFoundation/autoload.php';
         echo Symfony\\Component\\HttpFoundation\\Request::createFromGlobals()->getPathInfo();",
        );
    let hearth = serve(&site);
    for target in [
        "/admin",
        "/index.php/admin",
        "/index.phpadmin",
        "/index.phpadmin/x?a=/b",
        "/%69ndex.phpadmin",
        "/index.php%61dmin",
        "/index%2ephpadmin",
    ] {
        let seen = get_as(&hearth, target, "ann", "secret").text();
        // A Symfony without the repair of CVE-2025-64500 leaves the slash out.
        let is_closed =
            seen.trim_start_matches('/').starts_with("admin") || seen.contains("%61dmin");
        assert!(is_closed, "{target}: {seen}");
        assert_eq!(hearth.get(target).status, 401, "{target}: {seen}");
    }
}

#[test]
fn each_host_that_symfony_sees_as_a_closed_one_needs_its_password_or_is_refused() {
    let http = "[http.basic_auth]\n\"admin.example.com\" = \"users\"";
    let site = site(http).with_file("users", USERS).with_file(
        "public/index.php",
        "<?php require '/usr/share/php/Symfony/Component/HttpFoundation/autoload.php';
         echo Symfony\\Component\\HttpFoundation\\Request::createFromGlobals()->getHost();",
    );
    let hearth = serve(&site);
    let ask = |host: &str| hearth.connect().request("GET", "/", &[("Host", host)], b"").unwrap();
    for port in ["", ":", ":80", ":0000000443", ":65535"] {
        assert_eq!(ask(&format!("ADMIN.example.com{port}")).status, 401, "{port}");
    }
    for port in [":65536", ":99999", ":80:80"] {
        assert_eq!(ask(&format!("admin.example.com{port}")).status, 400, "{port}");
    }
    assert_eq!(ask("example.com:65535").text(), "example.com");
}

#[test]
fn a_path_behind_a_script_has_the_password_of_its_own_rule() {
    let http =
        "[http.basic_auth]\n\"/\" = \"staff\"\n\"/admin\" = \"admins\"\n\"/shop\" = \"shop\"";
    let site = site(http)
        .with_file("staff", &USERS.replace("ann", "bob"))
        .with_file("admins", &format!("{USERS}{}", USERS.replace("ann", "eve")))
        .with_file("shop", &USERS.replace("ann", "eve"));
    let hearth = serve(&site);
    let status = |path: &str, user: &str| get_as(&hearth, path, user, "secret").status;
    for path in ["/admin", "/index.php/admin"] {
        assert_eq!([status(path, "ann"), status(path, "bob")], [200, 401], "{path}");
    }
    // Another script may run or the application may see the whole path: it needs a user of both.
    assert_eq!(["/account.php/admin", "/index.phpadmin"].map(|path| status(path, "ann")), [401; 2]);
    for path in ["/", "/index.php/", "/index.php/other"] {
        assert_eq!([status(path, "ann"), status(path, "bob")], [401, 200], "{path}");
    }
    // Which of two areas an application sees in such a path is its own affair: it needs a user of both.
    let path = "/admin/index.php/shop";
    let answers = ["ann", "bob", "eve"].map(|user| status(path, user));
    assert_eq!(answers, [401, 401, 200]);
}

#[test]
fn files_of_users_that_cannot_be_used_are_refused_at_the_start() {
    let told = refused("[http.basic_auth]\n\"/admin\" = \"missing\"");
    assert!(told.contains("cannot read the users in") && told.contains("missing"), "{told}");
    let told = refused("[http.basic_auth]\n\"/admin/*\" = \"users\"");
    assert!(told.contains("`/admin/*`") && told.contains("a path such as `/admin`"), "{told}");
}

#[test]
fn redirects_keep_rest_and_query_and_never_lead_to_another_site() {
    let http = "[http.redirects]\n\"/old\" = \"/new\"\n\"/docs/*\" = \"/guide/* 301\"\n\"/go/*\" = \"/* 308\"\n\
                \"/shop/*\" = \"http://a.example:8081/shop/*\"\n\"www.example.com\" = \"https://example.com 301\"";
    let site = site(http);
    let hearth = serve(&site);
    let location = |host: &str, target: &str| {
        let answer = hearth.connect().request("GET", target, &[("Host", host)], b"").unwrap();
        format!("{} {}", answer.status, answer.field("location").unwrap_or("none"))
    };
    for (host, target, expected) in [
        ("a.example", "/old?a=1", "302 /new?a=1"),
        ("a.example", "/old/x", "200 none"),
        ("a.example", "/docs/a%2Fb?c", "301 /guide/a%2Fb?c"),
        ("a.example", "/go//evil.example", "308 /evil.example"),
        ("a.example", "/go/\\\\evil.example", "308 /evil.example"),
        ("www.example.com:8080", "/x?y", "301 https://example.com/x?y"),
        ("www.example.com", "//evil.example", "301 https://example.com/evil.example"),
        ("example.com", "/x", "200 none"),
    ] {
        assert_eq!(location(host, target), expected, "{host}{target}");
    }
    let moved = "302 http://a.example:8081/shop/x";
    assert_eq!(location("a.example:8081", "/shop/x"), "200 none");
    assert_eq!([location("a.example", "/shop/x"), location("b.example", "/shop/x")], [moved; 2]);
    let posted = hearth.post("/go/form", &[], b"a=1");
    assert_eq!((posted.status, posted.field("location")), (308, Some("/form")));
    assert!(reload(&site, "[http.redirects]\n\"/old\" = \"/newer 307\"").status.success());
    assert_eq!(location("a.example", "/old"), "307 /newer");
    assert_eq!(location("www.example.com", "/x"), "200 none");
}

#[test]
fn redirects_that_lead_nowhere_are_refused_at_the_start() {
    let told = refused("[http.redirects]\n\"/a\" = \"/b\"\n\"/b\" = \"/a\"");
    assert!(told.contains("comes back to itself"), "{told}");
    let told = refused("[http.redirects]\n\"/a\" = \"//evil.example\"");
    assert!(told.contains("`/a` = `//evil.example`"), "{told}");
}

#[test]
fn header_rules_change_answers_of_files_php_and_the_server() {
    let http = "[http.headers]\nX-Frame-Options = \"DENY\"\n\"-X-Powered-By\" = \"\"\n\"+Vary\" = \"Cookie\"\n\
                \"/assets ?Cache-Control\" = \"public, max-age=60\"\n\"text/html X-Page\" = \"a; b\"\n\
                Strict-Transport-Security = \"max-age=60\"";
    let site = site(http).with_file("public/assets/a.css", "a{}").with_file(
        "public/assets/own.php",
        "<?php header('Cache-Control: no-store'); header('X-Powered-By: PHP'); header('Vary: Accept'); echo 'own';",
    );
    let hearth = serve(&site);
    let fields = |target: &str| {
        let answer = hearth.get(target);
        let names = [
            "x-frame-options",
            "x-powered-by",
            "cache-control",
            "x-page",
            "strict-transport-security",
        ];
        names.map(|name| answer.field(name).unwrap_or("-").to_owned()).join("|")
    };
    assert_eq!(fields("/assets/a.css"), "DENY|-|public, max-age=60|-|-");
    assert_eq!(fields("/assets/own.php"), "DENY|-|no-store|a; b|-");
    assert_eq!(fields("/file.txt"), "DENY|-|-|-|-");
    assert!(fields("/%zz").starts_with("DENY|-|no-store|"), "a page of the server");
    let length = hearth.get("/assets/a.css").field("content-length").map(str::to_owned);
    assert_eq!(length.as_deref(), Some("3"));
    assert!(reload(&site, "[http.headers]\nX-Frame-Options = \"SAMEORIGIN\"").status.success());
    assert_eq!(fields("/file.txt"), "SAMEORIGIN|-|-|-|-");
}

#[test]
fn header_rules_about_the_connection_are_refused_at_the_start() {
    let told = refused("[http.headers]\nContent-Length = \"5\"");
    assert!(told.contains("`Content-Length`, which the server sets itself"), "{told}");
    let told = refused("[http.headers]\n\"X(A)\" = \"5\"");
    assert!(told.contains("`X(A)` = `5`"), "{told}");
}

const UPGRADE: [(&str, &str); 4] = [
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="),
];

#[test]
fn passwords_guard_websockets_and_http_2() {
    let http = "[http.basic_auth]\n\"/admin\" = \"users\"\n[websockets.routes]\n\"/admin/chat\" = \"/index.php\"";
    let site = site(http).with_file("users", USERS);
    let hearth = serve(&site);
    let closed = hearth.connect().request("GET", "/admin/chat", &UPGRADE, b"").unwrap();
    assert_eq!(closed.status, 401);
    let curl = |more: &[&str]| {
        let mut curl = std::process::Command::new("curl");
        curl.args(["--silent", "--max-time", "30", "--http2-prior-knowledge", "--output"]);
        curl.args(["/dev/null", "--write-out", "%{http_version} %{http_code}"]).args(more);
        let output = curl.arg(format!("http://{}/admin", hearth.address)).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(curl(&[]), "2 401");
    assert_eq!(curl(&["--user", "ann:secret"]), "2 200");
}

/// Starts `hearth channels` with these settings in the section `http`. Returns it with its address.
fn channels(folder: &Path, http: &str) -> (Running, SocketAddr) {
    std::fs::write(folder.join("hearth.toml"), format!("[http]\n{http}\n")).unwrap();
    std::fs::write(folder.join("users"), USERS).unwrap();
    let mut channels = command();
    let arguments = ["channels", "--listen", "127.0.0.1:0", "--app", "shop:key:secret"];
    let process = Running::start(channels.current_dir(folder).args(arguments));
    let ready = |line: &str| line.strip_prefix("hearth: ready on http://")?.trim().parse().ok();
    let address = process.log().find(LIMIT, ready).expect("it is ready");
    (process, address)
}

#[test]
fn rules_apply_to_every_connection_of_the_channels_command() {
    let folder = tempfile::tempdir().unwrap();
    let head = |address: SocketAddr, path: &str, fields: &[(&str, &str)]| {
        let mut client = Client::connect(address).unwrap();
        client.set_timeout(LIMIT);
        client.send(testkit::head("GET", path, fields, 0)).unwrap();
        client.head().unwrap()
    };
    let stream = "/app/key/sse?channels=news";
    let login = login("ann", "secret");
    let known = [("Authorization", &*login)];
    {
        let (_process, address) =
            channels(folder.path(), "[http.basic_auth]\n\"/app\" = \"users\"");
        assert_eq!(head(address, "/app/key?protocol=7", &UPGRADE).status, 401);
        assert_eq!(head(address, stream, &[]).status, 401);
        let fields = [&UPGRADE[..], &known].concat();
        assert_eq!(head(address, "/app/key?protocol=7", &fields).status, 101);
        assert_eq!(head(address, stream, &known).status, 200);
    }
    let redirect = "[http.redirects]\n\"/app/*\" = \"https://b.example/app/* 308\"";
    let (process, address) = channels(folder.path(), redirect);
    assert_eq!(head(address, "/app/key?protocol=7", &UPGRADE).status, 308);
    drop(process);
    let (_process, address) = channels(folder.path(), "[http.headers]\n\"X-Test\" = \"yes\"");
    assert_eq!(head(address, stream, &[]).field("x-test"), Some("yes"));
}
