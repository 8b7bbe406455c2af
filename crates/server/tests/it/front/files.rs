//! Files beside PHP, through the whole server: which files may be sent, which must not, and which script or file
//! answers a path.

use testkit::eventually;

use crate::hearth::{Hearth, LIMIT, Serve, Site};

const SECRET: &str = "top secret source";

fn site() -> Site {
    let script = format!(
        "<?php /* {SECRET} */ echo 'ran ', $_SERVER['SCRIPT_NAME'], ' for ', $_SERVER['REQUEST_URI'];"
    );
    Site::empty()
        .with_file("public/index.php", &script)
        .with_file("public/other.php", &script)
        .with_file("public/sub/index.php", &script)
        .with_file("public/old.php.bak", &script)
        .with_file("public/copy.php~", &script)
        .with_file("public/page.phtml", &script)
        .with_file("public/stale.phpold", &script)
        .with_file("public/stale.phpbak", &script)
        .with_file("public/suite.phpt", &script)
        .with_file("public/part.inc.bak", &script)
        .with_file("public/upper.PHP", &script)
        .with_file("public/lib.phar", &script)
        .with_file("public/.env", SECRET)
        .with_file("public/.git/config", SECRET)
        .with_file("public/.well-known/security.txt", "Contact: mailto:a@example.org")
        .with_file("public/app.css", "body{}")
        .with_file("public/a b.txt", "blank")
        .with_file("public/app.js", "let a;")
        .with_file("public/docs/index.html", "<h1>docs</h1>")
        .with_file(".env", SECRET)
        .with_file("composer.json", SECRET)
        .with_file("worker.php", &format!("<?php /* {SECRET} */ while (hearth_handle_request(function () {{ echo 'ran'; }})) {{ }}"))
}

/// Paths that must never reveal source code or secrets, whatever their response.
const ATTACKS: &[&str] = &[
    "/index.php",
    "/other.php",
    "/OTHER.PHP",
    "/other.php/",
    "/other.php/app.css",
    "/other.php%00.css",
    "/other.php%20",
    "/other.php.",
    "/other.php::$DATA",
    "/other%2ephp",
    "/other.ph%70",
    "/./other.php",
    "/old.php.bak",
    "/copy.php~",
    "/page.phtml",
    "/stale.phpold",
    "/stale.PHPold",
    "/stale.phpbak",
    "/suite.phpt",
    "/part.inc.bak",
    "/upper.PHP",
    "/lib.phar",
    "/.env",
    "/%2eenv",
    "/.git/config",
    "/.git/",
    "/sub/../.env",
    "/../.env",
    "/..%2f.env",
    "/%2e%2e/.env",
    "/%2e%2e%2f.env",
    "/..%5c.env",
    "/sub/..%2f..%2f.env",
    "/sub/%2e%2e/%2e%2e/composer.json",
    "/....//.env",
    "//.env",
    "/../worker.php",
    "/..;/composer.json",
    "/app.css/../../composer.json",
    "/%c0%ae%c0%ae/.env",
    "/..%255c..%255c.env",
    "/public/../.env",
    "/../public/other.php",
    "/sub/.%2e/.env",
    "/.well-known/../.env",
    "/other.php?/app.css",
    "/app.css%00.php",
    "/%00",
    "/other.php%0a",
    "/sub",
    "/sub/",
    "/docs",
];

fn no_attack_succeeds(hearth: &Hearth) {
    for path in ATTACKS {
        let mut client = hearth.connect();
        client.send(testkit::head("GET", path, &[], 0)).unwrap();
        let answer = client.answer_to("GET").unwrap();
        assert!(!answer.text().contains(SECRET), "{path}: {}", answer.text());
        assert!(
            matches!(answer.status, 200 | 301 | 308 | 400 | 403 | 404),
            "{path}: {}",
            answer.status_line
        );
        for fields in [[("Range", "bytes=0-20")], [("Accept-Encoding", "br")]] {
            let answer = hearth.connect().request("GET", path, &fields, b"").unwrap();
            assert!(!answer.text().contains("<?php"), "{path}: {}", answer.text());
        }
    }
}

#[test]
fn source_and_secrets_are_never_sent() {
    let site = site();
    no_attack_succeeds(&Hearth::request(&site));
    let script = site.path().join("worker.php");
    let args = ["--model", "worker", "--worker-script", script.to_str().unwrap()];
    no_attack_succeeds(&Serve::new(site.path()).args(&args).workers(1).start());
    // a folder that is its own document root
    let root = site.public();
    no_attack_succeeds(&Serve::new(&root).model("request").workers(1).start());
}

#[test]
fn a_path_maps_to_a_file_a_script_an_index_or_the_front_controller() {
    let site = site();
    let hearth = Hearth::request(&site);
    for (path, text) in [
        ("/", "ran /index.php for /"),
        ("/other.php?x", "ran /other.php for /other.php?x"),
        ("/sub/", "ran /sub/index.php for /sub/"),
        ("/users/7", "ran /index.php for /users/7"),
        ("/missing.css", "ran /index.php for /missing.css"),
        ("/app.css", "body{}"),
        ("/a%20b.txt", "blank"),
        ("/.well-known/security.txt", "Contact: mailto:a@example.org"),
        ("/docs/", "<h1>docs</h1>"),
    ] {
        let answer = hearth.get(path);
        assert_eq!((answer.status, answer.text().as_str()), (200, text), "{path}");
    }
    let answer = hearth.get("/sub?a=1");
    assert!(matches!(answer.status, 301 | 308), "{}", answer.status_line);
    assert_eq!(answer.field("location"), Some("/sub/?a=1"));
}

#[test]
fn files_are_answered_without_php() {
    let site = site();
    let hearth = Hearth::request(&site);
    let first = hearth.get("/app.css");
    assert_eq!(first.field("content-type"), Some("text/css; charset=utf-8"));
    let etag = first.field("etag").unwrap();
    let again =
        hearth.connect().request("GET", "/app.css", &[("If-None-Match", etag)], b"").unwrap();
    assert_eq!((again.status, again.body.len()), (304, 0));
    let part = hearth.connect().request("GET", "/app.css", &[("Range", "bytes=1-3")], b"").unwrap();
    assert_eq!((part.status, part.text().as_str()), (206, "ody"));
    assert_eq!(part.field("content-range"), Some("bytes 1-3/6"));
    assert_eq!(hearth.post("/app.css", &[], b"x").status, 405);
    assert_eq!(hearth.status()["pool"]["requests"], 0, "PHP was not asked");
}

#[test]
fn a_file_named_by_php_replaces_the_response_body() {
    let site = site();
    std::fs::create_dir(site.path().join("protected")).unwrap();
    site.write("protected/report.txt", "for members");
    site.write("public/send.php", "<?php header('X-Accel-Redirect: /members/' . $_GET['file']); header('X-Own: 1'); echo 'not this';");
    let hearth = Serve::new(site.path())
        .model("request")
        .workers(1)
        .set(
            "HEARTH_HTTP_SENDFILE",
            &format!("/members/={}", site.path().join("protected").display()),
        )
        .start();
    let answer = hearth.get("/send.php?file=report.txt");
    assert_eq!(
        (answer.status, answer.text().as_str(), answer.field("x-own")),
        (200, "for members", Some("1"))
    );
    assert_eq!(answer.field("x-accel-redirect"), None);
    let outside = hearth.get("/send.php?file=..%2f.env");
    assert!(!outside.text().contains(SECRET), "{}", outside.text());
    assert!(outside.status >= 400, "{}", outside.status_line);
}

#[test]
fn answers_of_php_are_compressed_for_clients_that_ask() {
    let site = Site::empty().with_file(
        "public/index.php",
        "<?php header('Content-Type: text/plain'); echo str_repeat('flame ', 2000);",
    );
    let hearth = Hearth::request(&site);
    let plain = hearth.get("/");
    assert_eq!((plain.field("content-encoding"), plain.body.len()), (None, 12_000));
    for coding in ["gzip", "br", "zstd"] {
        let answer =
            hearth.connect().request("GET", "/", &[("Accept-Encoding", coding)], b"").unwrap();
        assert_eq!(answer.field("content-encoding"), Some(coding));
        assert!(answer.body.len() < 1000, "{coding}: {} bytes", answer.body.len());
        assert!(
            answer.all("vary").iter().any(|value| value.eq_ignore_ascii_case("accept-encoding"))
        );
    }
}

#[test]
fn a_file_that_an_upload_has_written_is_sent_at_once_and_another_one_soon() {
    let upload = "<?php echo 'nothing here'; \
        if ($_SERVER['REQUEST_METHOD'] === 'POST') { file_put_contents(__DIR__ . $_SERVER['PATH_INFO'], 'new'); }";
    let site = Site::empty().with_file("public/index.php", upload);
    let hearth = Hearth::request(&site);
    for n in 0..20 {
        let path = format!("/{n}.txt");
        assert_eq!(hearth.get(&path).text(), "nothing here");
        hearth.post(&format!("/index.php{path}"), &[], b"");
        assert_eq!(hearth.get(&path).text(), "new");
    }
    assert_eq!(hearth.get("/other.txt").text(), "nothing here");
    std::fs::write(site.public().join("other.txt"), "new").unwrap();
    eventually("the file is found", LIMIT, || hearth.get("/other.txt").text() == "new");
}
