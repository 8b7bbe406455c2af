//! `hearth_await_request()`: a front controller that has done its boot ahead answers as one that has not, and as php-fpm.

use testkit::{Answer, Client};

use crate::hearth::{Hearth, LIMIT, Serve, Site, models, of_tier, php_fpm};

/// The models in which a script of the application waits for its requests.
fn waiting() -> impl Iterator<Item = &'static str> {
    of_tier(["snapshot", "fork", "prespawn"]).into_iter()
}

/// Settings of PHP that show errors in the answer.
const INI: &[(&str, &str)] = &[
    ("display_errors", "1"),
    ("html_errors", "0"),
    ("register_argc_argv", "1"),
    ("zend.exception_ignore_args", "0"),
    ("output_buffering", "4096"),
];

type Request = (&'static str, &'static str, &'static [(&'static str, &'static str)], &'static [u8]);

const MULTIPART: &[(&str, &str)] = &[("Content-Type", "multipart/form-data; boundary=b")];
const UPLOAD: &[u8] = b"--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nfield\r\n\
    --b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\nContent-Type: text/plain\r\n\r\nits text\r\n--b--\r\n";
const FORM: &[(&str, &str)] = &[("Content-Type", "application/x-www-form-urlencoded")];

/// Each ends in another way, or uses another part of a request. None may notice what the ones before it did.
const REQUESTS: &[Request] = &[
    ("GET", "/", &[], b""),
    ("GET", "/?case=superglobals&b[]=1&b[]=2", &[("X-One", "1"), ("Cookie", "c=1; d[x]=2")], b""),
    ("POST", "/?case=superglobals", FORM, b"a=1&b=2"),
    ("POST", "/index.php/path/info?case=superglobals", MULTIPART, UPLOAD),
    (
        "PUT",
        "/index.php?case=superglobals",
        &[("Authorization", "Basic dTpw"), ("Content-Type", "text/plain")],
        b"put",
    ),
    ("GET", "/not/there?case=superglobals", &[], b""),
    ("POST", "/?case=upload", MULTIPART, UPLOAD),
    ("POST", "/?case=input_stream", &[("Content-Type", "application/json")], b"{\"a\":1}"),
    ("POST", "/?case=input_stream", FORM, b"a=1"),
    ("GET", "/?case=settings", &[], b""),
    ("GET", "/?case=settings", &[], b""),
    ("GET", "/?case=session_handler", &[], b""),
    ("GET", "/?case=exit_in_depth", &[], b""),
    ("GET", "/?case=exit_in_shutdown", &[], b""),
    ("GET", "/?case=uncaught", &[], b""),
    ("GET", "/?case=exception_handler", &[], b""),
    ("GET", "/?case=uncaught_in_destructor", &[], b""),
    ("GET", "/?case=fatal", &[], b""),
    ("GET", "/?case=compile_error", &[], b""),
    ("GET", "/?case=memory_limit", &[], b""),
    ("GET", "/?case=time_limit", &[], b""),
    ("GET", "/?case=headers_sent", &[], b""),
    ("GET", "/?case=buffers", &[], b""),
    ("HEAD", "/?case=buffers", &[], b""),
    ("GET", "/?case=status", &[], b""),
    ("GET", "/?case=finish", &[], b""),
    ("GET", "/?case=statics", &[], b""),
    ("GET", "/?case=statics", &[], b""),
    ("GET", "/?case=generator", &[], b""),
    CLOSES,
    ("GET", "/", &[], b""),
];

/// It closes a file that the boot has opened, so its process cannot be put back.
const CLOSES: Request = ("GET", "/?case=closes", &[], b"");

/// What of an answer comes from PHP: status, header fields by name, and the body.
fn of_php(answer: &Answer) -> String {
    const OF_SERVER: &[&str] = &[
        "connection",
        "content-encoding",
        "content-length",
        "date",
        "keep-alive",
        "server",
        "transfer-encoding",
        "vary",
        "x-request-id",
    ];
    let mut fields: Vec<String> = answer
        .fields
        .iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
        .filter(|(name, _)| !OF_SERVER.contains(&name.as_str()))
        .map(|(name, value)| match value.strip_prefix("PHPSESSID=") {
            Some(_) => format!("{name}: a session"),
            None => format!("{name}: {value}"),
        })
        .collect();
    // Fields of one name keep their order.
    fields.sort_by(|one, other| one.split(':').next().cmp(&other.split(':').next()));
    format!("{}\n{}\n\n{}", answer.status, fields.join("\n"), answer.text())
}

/// Sends the same requests to both, and compares what comes from PHP.
fn compare(one: &mut Client, other: &mut Client, requests: &[Request]) {
    let mut different = Vec::new();
    for (method, target, fields, body) in requests {
        let [one, other] = [&mut *one, &mut *other]
            .map(|client| of_php(&client.request(method, target, fields, body).unwrap()));
        if one != other {
            different.push(format!("{method} {target}\n{one}\n-- and --\n{other}"));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n\n"));
}

fn serve(site: &Site, model: &str) -> Hearth {
    let serve = Serve::new(site.path()).args(&["--model", model]).workers(1);
    INI.iter().fold(serve, |serve, (name, value)| serve.ini(name, value)).start()
}

#[test]
fn a_script_that_waits_answers_as_under_php_fpm() {
    let site = Site::empty().with_folder("wait_point");
    let peer = php_fpm(site.path(), INI);
    for model in waiting().chain(models().into_iter().filter(|model| *model == "request")) {
        println!("model {model}");
        let hearth = serve(&site, model);
        let mut fpm = Client::connect(peer.address()).unwrap();
        compare(&mut hearth.connect(), &mut fpm, REQUESTS);
        if model == "snapshot" {
            let pool = &hearth.status()["pool"];
            assert_eq!((&pool["retired"], &pool["crashes"]), (&1.into(), &0.into()), "{pool}");
        }
        assert!(hearth.stop().success(), "within {LIMIT:?}");
    }
}

#[test]
fn output_that_has_left_php_before_the_line_comes_first() {
    const FLUSHED: &str = "<?php header('X-Boot: yes'); http_response_code(201); echo 'sent '; while (ob_get_level()) { ob_end_flush(); } flush();\n\
        hearth_await_request(); header('X-Late: no'); echo 'late ', headers_sent($file, $line) ? $line : 'not sent', ' ', $_GET['q'] ?? '';";
    let site = Site::empty().with_file("public/index.php", FLUSHED);
    let in_request = serve(&site, "request");
    for model in waiting() {
        println!("model {model}");
        let hearth = serve(&site, model);
        let requests = [
            ("GET", "/?q=1", &[][..], &b""[..]),
            ("HEAD", "/?q=2", &[], b""),
            ("GET", "/?q=3", &[], b""),
        ];
        compare(&mut hearth.connect(), &mut in_request.connect(), &requests);
    }
}

#[test]
fn the_boot_sees_a_plain_get_request_and_each_request_its_own() {
    const SEEN: &str = "<?php $boot = [$_SERVER['REQUEST_METHOD'], $_SERVER['REQUEST_URI'], $_SERVER['HTTP_HOST'], $_SERVER['SCRIPT_NAME'], $_GET];\n\
        $waited = hearth_await_request(); echo json_encode([$waited, hearth_await_request(), $boot, $_SERVER['REQUEST_METHOD'], $_SERVER['REQUEST_URI']]);";
    let site = Site::empty().with_file("public/index.php", SEEN);
    for model in waiting() {
        println!("model {model}");
        let answer = serve(&site, model).post("/a?b=1", &[], b"").json();
        let boot = serde_json::json!(["GET", "/", "localhost", "/index.php", []]);
        assert_eq!(answer, serde_json::json!([true, false, boot, "POST", "/a?b=1"]));
    }
}

#[test]
fn a_place_where_no_process_can_wait_is_named() {
    let places = [
        ("in a fiber", "(new Fiber('hearth_await_request'))->start();"),
        (
            "in an output callback",
            "ob_start(fn ($text) => hearth_await_request()); echo 1; ob_end_flush();",
        ),
        ("while a session is open", "session_start(); hearth_await_request();"),
        ("at the end of the script", "register_shutdown_function('hearth_await_request');"),
        ("ended before it called hearth_await_request()", "echo 'never waits'; exit;"),
        ("is for worker scripts", "hearth_handle_request(fn () => hearth_await_request());"),
    ];
    for (why, code) in places {
        let site = Site::empty().with_file("public/index.php", &format!("<?php {code}"));
        // A named model is not replaced silently.
        let mut failed = Serve::new(site.path()).args(&["--model", "snapshot"]).launch();
        assert_eq!(failed.wait(LIMIT).code(), Some(1), "{why}");
        let log = failed.log().text();
        assert!(log.contains(why), "{why}: {log}");
    }
}
