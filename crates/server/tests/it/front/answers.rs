//! PHP's response reaches the client unchanged: status, fields, flushed pieces, and a complete response however the
//! script ends.

use testkit::{Answer, Client, eventually};

use crate::hearth::{Hearth, LIMIT, Serve, Site, in_each_model, is_resident, php_fpm};

fn request_model() -> (Site, Hearth) {
    let site = Site::of_scripts();
    let hearth = Hearth::request(&site);
    (site, hearth)
}

fn worker_model() -> (Site, Hearth) {
    let site = Site::empty().with_script("worker.php", "worker.php");
    let hearth = Hearth::worker(&site, "worker.php");
    (site, hearth)
}

/// The fields that PHP set, in order, without those that the front adds.
fn fields(answer: &Answer) -> Vec<(String, String)> {
    let of_front =
        ["server", "x-request-id", "date", "content-length", "transfer-encoding", "vary"];
    answer
        .fields
        .iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), value.clone()))
        .filter(|(name, _)| !of_front.contains(&name.as_str()))
        .collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn a_plain_answer_has_a_length_and_phps_default_type() {
    for (_model, _site, hearth) in in_each_model() {
        let answer = hearth.get("/hello.php?name=Ada");
        assert_eq!(answer.status_line, "HTTP/1.1 200 OK");
        assert_eq!(answer.text(), "hello Ada\n");
        assert_eq!(answer.field("content-length"), Some("10"));
        assert_eq!(fields(&answer), pairs(&[("content-type", "text/html; charset=UTF-8")]));
    }
}

#[test]
fn the_script_sets_the_status_line() {
    for (_model, _site, hearth) in in_each_model() {
        let line = |case: &str| hearth.get(&format!("/headers.php?case={case}")).status_line;
        assert_eq!(line("reason"), "HTTP/1.1 418 I'm a teapot");
        assert_eq!(line("status"), "HTTP/1.1 404 Not Here");
        assert_eq!(line("redirect"), "HTTP/1.1 302 Found");
        assert_eq!(line("none"), "HTTP/1.1 204 No Content");
        assert_eq!(line("not-modified"), "HTTP/1.1 304 Not Modified");
    }
}

#[test]
fn fields_keep_their_order_and_their_duplicates() {
    for (_model, _site, hearth) in in_each_model() {
        let answer = hearth.get("/headers.php?case=replace");
        assert_eq!(
            fields(&answer),
            pairs(&[
                ("x-one", "2"),
                ("x-many", "1"),
                ("x-many", "2"),
                ("set-cookie", "a=1"),
                ("set-cookie", "b=2; HttpOnly; SameSite=Lax"),
                ("content-type", "text/html; charset=UTF-8"),
            ])
        );
        assert_eq!(
            hearth.get("/headers.php?case=type").field("content-type"),
            Some("text/plain;charset=UTF-8")
        );
        assert_eq!(hearth.get("/headers.php?case=no-type").field("content-type"), None);
        assert_eq!(hearth.get("/headers.php?case=callback").field("x-callback"), Some("1"));
    }
}

#[test]
fn a_response_head_above_the_frame_limit_becomes_500() {
    for (model, _site, hearth) in in_each_model() {
        let pid = hearth.worker_pid();
        assert_eq!(hearth.get("/headers.php?case=many").status, 500, "{model}");
        hearth.log_line("header");
        let next = hearth.get("/pid.php").text();
        assert_eq!(next == pid.to_string(), is_resident(model), "{model}");
    }
}

#[test]
fn answers_without_a_body_have_none_and_leave_the_connection_usable() {
    for (_model, _site, hearth) in in_each_model() {
        let mut client = hearth.connect();
        let head = client.request("HEAD", "/hello.php", &[], b"").unwrap();
        assert_eq!((head.status, head.body.len()), (200, 0));
        for (case, status) in [("none", 204), ("not-modified", 304)] {
            let answer = client.get(&format!("/headers.php?case={case}")).unwrap();
            assert_eq!((answer.status, answer.body.len()), (status, 0));
            assert_eq!(answer.field("transfer-encoding"), None);
        }
        assert_eq!(client.get("/hello.php").unwrap().text(), "hello world\n");
    }
}

#[test]
fn flushed_output_reaches_the_client_immediately() {
    for (_model, site, hearth) in in_each_model() {
        let gate = site.path().join("gate");
        site.write(
            "public/gate.php",
            "<?php while (ob_get_level()) { ob_end_flush(); }\n\
             echo 'first'; flush();\n\
             while (!file_exists($_GET['gate'])) { usleep(1000); clearstatcache(); }\n\
             echo 'second';",
        );
        let mut client = hearth.connect();
        client
            .send(testkit::head("GET", &format!("/gate.php?gate={}", gate.display()), &[], 0))
            .unwrap();
        let head = client.head().unwrap();
        assert_eq!(head.status, 200);
        assert_eq!(head.field("transfer-encoding"), Some("chunked"));
        assert_eq!(client.chunk().unwrap().unwrap(), b"first", "while the script still runs");
        std::fs::write(&gate, "").unwrap();
        assert_eq!(client.chunk().unwrap().unwrap(), b"second");
        assert_eq!(client.chunk().unwrap(), None);
    }
}

#[test]
fn a_large_answer_arrives_whole() {
    for (model, _site, hearth) in in_each_model() {
        let largest = if model == "request" { 40_000_000 } else { 4_000_000 };
        for size in [8191, 65_536, 1_000_000, largest] {
            let answer = hearth.get(&format!("/large.php?size={size}"));
            assert_eq!(answer.body.len(), size / 32 * 32);
            let piece = answer.body[..32].to_vec();
            assert!(answer.body.chunks(32).all(|chunk| chunk == piece));
        }
    }
}

#[test]
fn output_buffers_left_open_are_sent() {
    for (model, site, hearth) in in_each_model() {
        site.write(
            "public/buffers.php",
            "<?php ob_start(); ob_start(fn (string $text) => strtoupper($text)); echo 'buffered'; ob_start(); echo ' twice';",
        );
        for _ in 0..2 {
            assert_eq!(hearth.get("/buffers.php").text(), "BUFFERED TWICE", "{model}");
        }
    }
    let (_site, hearth) = worker_model();
    assert_eq!(hearth.get("/output").text(), "BUFFERED");
}

#[test]
fn early_hints_come_before_the_answer() {
    let links = ["</style.css>; rel=preload; as=style", "</app.js>; rel=preload; as=script"];
    for (model, _site, hearth) in in_each_model() {
        let mut client = hearth.connect();
        client.send(testkit::head("GET", "/early_hints.php", &[], 0)).unwrap();
        let hint = client.head().unwrap();
        assert_eq!(hint.status_line, "HTTP/1.1 103 Early Hints", "{model}");
        assert_eq!(hint.all("link"), links);
        let answer = client.answer_to("GET").unwrap();
        assert_eq!((answer.status, answer.text().as_str()), (200, "final"));
        assert_eq!(answer.field("link"), None);

        // HTTP/1.0 has no 1xx responses (RFC 9110 section 15.2).
        let mut old = hearth.connect();
        old.send("GET /early_hints.php HTTP/1.0\r\n\r\n").unwrap();
        assert_eq!(old.head().unwrap().status, 200);
    }

    let (_site, hearth) = worker_model();
    let mut client = hearth.connect();
    client.send(testkit::head("GET", "/hints", &[], 0)).unwrap();
    assert_eq!(client.head().unwrap().status, 103);
    assert_eq!(client.answer_to("GET").unwrap().text(), "final");
}

#[test]
fn a_finished_answer_is_sent_before_the_script_ends() {
    for (model, site, hearth) in in_each_model() {
        let file = site.path().join("after");
        let pid = hearth.worker_pid();
        let answer = hearth.get(&format!("/finish.php?echo&file={}", file.display()));
        assert_eq!(answer.text(), "answered", "{model}");
        assert_eq!(answer.field("content-length"), Some("8"), "{model}");
        eventually("the script continues", LIMIT, || file.exists());
        hearth.wait_idle(1);
        assert_eq!(hearth.worker_pid() == pid, is_resident(model), "{model}");
    }
    // The script ends only after the response is complete.
    let (site, hearth) = request_model();
    let [file, gate] = ["after", "gate"].map(|name| site.path().join(name));
    let target = format!("/finish.php?gate={}&file={}", gate.display(), file.display());
    assert_eq!(hearth.get(&target).text(), "answered");
    assert!(!file.exists());
    std::fs::write(&gate, "").unwrap();
    eventually("the script continues", LIMIT, || file.exists());
}

#[test]
fn exit_is_a_normal_end() {
    let (_site, hearth) = request_model();
    let pid = hearth.worker_pid();
    assert_eq!(hearth.get("/exit.php").text(), "before shutdown destructor");
    assert_eq!(hearth.get("/exit.php?code=3").status, 200);
    assert_eq!(hearth.get("/exit.php?text=bye").text(), "beforebye shutdown destructor");
    assert_eq!(hearth.get("/pid.php").text(), pid.to_string());

    let (_site, hearth) = worker_model();
    let before = hearth.get("/count").json();
    assert_eq!(hearth.get("/exit").text(), "before");
    assert_eq!(hearth.get("/exit?text=bye").text(), "beforebye");
    let after = hearth.get("/count").json();
    assert_eq!(after["boot"], before["boot"], "exit() leaves the handler, not the loop");
    assert_eq!(after["requests"], 4);
}

/// Scripts that fail: path, and a part of the log line.
const FAILURES: &[(&str, &str)] = &[
    ("/fatal.php", "undefined function undefined_function()"),
    ("/fatal.php?where=shutdown", "undefined_function_in_shutdown"),
    ("/fatal.php?where=destructor", "undefined_function_in_destructor"),
    ("/fatal.php?where=callback", "undefined_function_in_callback"),
    ("/fatal.php?where=output", "undefined_function_in_output"),
    ("/fatal.php?where=compile", "syntax error"),
    ("/fatal.php?where=redeclare", "strlen_twice() (previously declared"),
    ("/fatal.php?after=flush", "undefined function undefined_function()"),
    ("/exception.php", "not caught"),
    ("/memory.php", "Allowed memory size of 8388608 bytes exhausted"),
    ("/memory.php?shutdown", "Allowed memory size of 8388608 bytes exhausted"),
    ("/timeout.php", "Maximum execution time of 1 second exceeded"),
    ("/timeout.php?where=shutdown", "Maximum execution time of 1 second exceeded"),
    ("/broken.php", "syntax error"),
];

#[test]
fn a_failing_script_is_answered_as_under_php_fpm() {
    let site = Site::of_scripts();
    // On a busy machine a script may run for long before PHP's own limit, which counts processor time, ends it.
    let hearth =
        Serve::new(site.path()).args(&["--model", "request", "--slow", "off"]).workers(1).start();
    let peer = php_fpm(&site.public(), &[]);
    site.write("public/broken.php", "<?php function {");
    let pid = hearth.worker_pid();
    for (path, log) in FAILURES {
        let answer = hearth.get(path);
        let theirs = Client::connect(peer.address()).unwrap().get(path).unwrap();
        assert_eq!((answer.status, answer.text()), (theirs.status, theirs.text()), "{path}");
        let line =
            hearth.log_line(&format!("request.id\":\"{}", answer.field("x-request-id").unwrap()));
        assert!(line["message"].as_str().unwrap().contains(log), "{path}: {line}");
        assert_eq!(line["level"], "ERROR", "{path}: {line}");
        assert_eq!(line["worker.pid"], pid, "{path}: {line}");
        assert_eq!(hearth.get("/pid.php").text(), pid.to_string(), "after {path}");
    }
    assert_eq!(hearth.get("/fatal.php").status, 500);
    let answer = hearth.get("/exception.php?handler");
    assert_eq!((answer.status, answer.text().as_str()), (503, "handled: not caught"));
    assert_eq!(hearth.worker_pid(), pid);
}

#[test]
fn an_uncaught_exception_becomes_500_in_each_model() {
    for (model, _site, hearth) in in_each_model() {
        let answer = hearth.get("/exception.php?handler");
        assert_eq!((answer.status, answer.text().as_str()), (503, "handled: not caught"));
        for (how, log) in [("throws", "Uncaught LogicException: nor this"), ("again", "not caught")]
        {
            let answer = hearth.get(&format!("/exception.php?handler={how}"));
            assert_eq!((answer.status, answer.text().as_str()), (500, ""), "{model} {how}");
            let id = format!("request.id\":\"{}", answer.field("x-request-id").unwrap());
            let line = hearth.log_line(&id);
            assert_eq!(line["level"], "ERROR", "{model} {how}: {line}");
            assert!(line["message"].as_str().unwrap().contains(log), "{model} {how}: {line}");
        }
        assert_eq!(hearth.get("/hello.php").text(), "hello world\n", "{model}");
    }
}

#[test]
fn shutdown_functions_run_after_the_memory_limit_in_each_model() {
    for (model, _site, hearth) in in_each_model() {
        let answer = hearth.get("/memory.php?shutdown");
        assert_eq!(answer.status, 500, "{model}");
        assert_eq!(answer.field("x-shutdown"), Some("ran"), "{model}");
        assert!(answer.text().ends_with("shutdown ran"), "{model}: {}", answer.text());
    }
}

#[test]
fn display_errors_shows_errors() {
    let site = Site::of_scripts();
    let hearth = Serve::new(site.path()).model("request").ini("display_errors", "1").start();
    let answer = hearth.get("/exception.php");
    assert_eq!(answer.status, 200, "as under php-fpm: what is shown is an answer");
    assert!(answer.text().contains("Uncaught RuntimeException: not caught"), "{}", answer.text());
}

#[test]
fn a_failing_handler_becomes_500_and_the_script_boots_again() {
    let (_site, hearth) = worker_model();
    let pid = hearth.worker_pid();
    for (path, log) in [
        ("/fatal", "undefined_function"),
        ("/exception", "not caught"),
        ("/memory", "Allowed memory size"),
        ("/timeout", "Maximum execution time of 1 second exceeded"),
    ] {
        let answer = hearth.get(path);
        assert_eq!(answer.status, 500, "{path}");
        let line = hearth.log_line(log);
        assert_eq!(line["request.id"].as_str(), answer.field("x-request-id"), "{path}: {line}");
        assert_eq!(hearth.get("/count").json()["requests"], 1, "{path}: a new boot");
        assert_eq!(hearth.worker_pid(), pid, "{path}: in the same process");
    }
}

#[test]
fn shutdown_functions_run_at_the_end_of_each_request() {
    let (_site, hearth) = worker_model();
    for _ in 0..3 {
        assert_eq!(hearth.get("/shutdown").text(), "from handler from shutdown");
        assert_eq!(hearth.get("/").text(), "hello world\n");
    }
}

#[test]
fn a_missing_script_is_routed_like_any_path() {
    let (site, hearth) = request_model();
    assert_eq!(hearth.get("/hello.php").text(), "hello world\n");
    std::fs::remove_file(site.public().join("hello.php")).unwrap();
    assert_eq!(hearth.get("/hello.php").text(), "front controller");
    std::fs::remove_file(site.public().join("index.php")).unwrap();
    eventually("404", LIMIT, || hearth.get("/hello.php").status == 404);
    site.write("public/index.php", "<?php echo 'back';");
    eventually("the front controller is back", LIMIT, || hearth.get("/hello.php").text() == "back");
}

#[test]
fn pipelined_requests_are_answered_in_their_order() {
    for (_model, _site, hearth) in in_each_model() {
        let mut client = hearth.connect();
        let requests: String = (0..20)
            .map(|n| testkit::head("GET", &format!("/hello.php?name={n}"), &[], 0))
            .collect();
        client.send(requests).unwrap();
        for n in 0..20 {
            assert_eq!(client.answer_to("GET").unwrap().text(), format!("hello {n}\n"));
        }
    }
}
