//! Request bodies that are cut off: no script acts on half a form, document or file as if it were complete.

use testkit::{Client, eventually};

use crate::hearth::{Hearth, LIMIT, Serve, Site, every_model, is_resident, models};

/// The handler writes to `/ran` that it has run, and again when its read of the body returns. Otherwise it answers how
/// often it was called in this process.
const HANDLER: &str = "<?php function ran(string $line): void { file_put_contents(__DIR__ . '/ran', \"$line\\n\", FILE_APPEND); }\n\
    return function () use (&$behind) {\n\
        $name = $_SERVER['QUERY_STRING'];\n\
        ignore_user_abort(str_contains($name, 'ignoring'));\n\
        if ($name === 'behind') { echo json_encode([$behind, is_file(__DIR__ . '/ran') ? file(__DIR__ . '/ran', FILE_IGNORE_NEW_LINES) : []]); return; }\n\
        if ($name === '') { return; }\n\
        ran($name);\n\
        $body = file_get_contents('php://input');\n\
        ran($name . (connection_aborted() ? ', aborted' : ': ' . strlen($body)));\n\
        echo strlen($body);\n\
    };";

/// Like runners of frameworks, the loop does something after each request that the handler has had.
const WORKER: &str = "<?php $behind = 0; $handler = require __DIR__ . '/handler.php';\n\
    while (frankenphp_handle_request($handler)) { $behind++; }";

const INDEX: &str =
    "<?php $behind = 0; $handler = require dirname(__DIR__) . '/handler.php'; $handler();";

const FORM: &str = "application/x-www-form-urlencoded";
const JSON: &str = "application/json";
const MULTI: &str = "multipart/form-data; boundary=b";
const PARTS: &[u8] = b"--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\nhalf";

fn serve(model: &str) -> (Site, Serve) {
    let site = Site::empty()
        .with_file("handler.php", HANDLER)
        .with_file("worker.php", WORKER)
        .with_file("public/index.php", INDEX);
    let serve = Serve::new(site.served_in(model, "worker.php"))
        .model(model)
        .workers(1)
        .set("HEARTH_HTTP_BODY_LIMIT", "10KiB");
    (site, serve)
}

/// Sends a part of a request once the server asks for its body.
fn begin(
    hearth: &Hearth,
    method: &str,
    name: &str,
    kind: &str,
    length: Option<usize>,
    body: &[u8],
) -> Client {
    let mut client = hearth.connect();
    let target = format!("/?{name}");
    let mut fields = vec![("Content-Type", kind), ("Expect", "100-continue")];
    if length.is_none() {
        fields.push(("Transfer-Encoding", "chunked"));
    }
    client.send(testkit::head(method, &target, &fields, length.unwrap_or(0))).unwrap();
    assert_eq!(client.head().unwrap().status, 100);
    if length.is_none() {
        client.send(format!("{:x}\r\n", body.len())).unwrap();
    }
    client.send(body).unwrap();
    if length.is_none() {
        client.send("\r\n").unwrap();
    }
    client
}

fn is_busy(hearth: &Hearth) -> bool {
    let status = hearth.status();
    let workers = status["pool"]["workers"].as_array().unwrap();
    workers.iter().any(|worker| worker["state"] == "busy")
}

/// Returns how often the script's loop continued in this process, and the handlers that have run in any process.
fn seen(hearth: &Hearth) -> (u64, Vec<String>) {
    let seen = hearth.get("/?behind").json();
    let ran = seen[1].as_array().unwrap().iter().map(|line| line.as_str().unwrap().to_owned());
    (seen[0].as_u64().unwrap(), ran.collect())
}

#[test]
fn an_incomplete_form_never_runs_a_script_in_each_model() {
    for model in &models() {
        let (_site, serve) = serve(model);
        // Bodies other than forms are passed on as they arrive: PHP itself reads a whole POST before it runs the
        // script.
        let hearth = serve.set("HEARTH_HTTP_REQUEST_BUFFERING", "forms").start();
        let pid = is_resident(model).then(|| hearth.worker_pid());
        for (kind, body) in [(FORM, &b"amount=10000"[..]), (JSON, b"[1, 2"), (MULTI, PARTS)] {
            let reaches_php = || {
                if kind == JSON {
                    eventually("a worker has the request", LIMIT, || is_busy(&hearth));
                } else {
                    // No worker waits for the client's body.
                    hearth.wait_idle(1);
                }
            };
            for length in [Some(body.len() + 500), None] {
                let client = begin(&hearth, "POST", "cut", kind, length, body);
                reaches_php();
                drop(client);
                hearth.wait_idle(1);
            }
            // Too large, without a declared length.
            let large = [body, &vec![b'9'; 5000]].concat();
            let mut client = begin(&hearth, "POST", "large", kind, None, &large);
            reaches_php();
            client.send("2000\r\n").unwrap();
            client.send([b'9'; 0x2000]).unwrap();
            client.send("\r\n").unwrap();
            assert_eq!(client.answer_to("POST").unwrap().status, 413, "{model} {kind}");
        }
        assert_eq!(seen(&hearth), (0, vec![]), "{model}");
        assert_eq!(hearth.post("/?whole", &[("Content-Type", FORM)], b"a=1&b=2").text(), "7");
        let resident = u64::from(*model == "worker");
        let ran = vec!["whole".to_owned(), "whole: 7".to_owned()];
        assert_eq!(seen(&hearth), (2 * resident, ran), "{model}");
        assert_eq!(pid.unwrap_or_default(), pid.map_or(0, |_| hearth.worker_pid()), "{model}");
        assert_eq!(hearth.status()["pool"]["crashes"], 0, "{model}");
    }
}

#[test]
fn an_incomplete_body_reaches_no_worker_in_any_model() {
    for model in every_model() {
        let (_site, serve) = serve(model);
        let hearth = serve.start();
        for (method, kind, body) in [
            ("POST", FORM, &b"amount=10000"[..]),
            ("POST", JSON, b"[1, 2"),
            ("PUT", JSON, b"[1, 2"),
            ("POST", MULTI, PARTS),
        ] {
            for length in [Some(body.len() + 500), None] {
                drop(begin(&hearth, method, "cut", kind, length, body));
            }
            let mut client = begin(&hearth, method, "malformed", kind, None, body);
            client.send("no chunk\r\n").unwrap();
            assert_eq!(client.answer_to(method).unwrap().status, 400, "{model} {kind}");
        }
        assert_eq!(seen(&hearth), (0, vec![]), "{model}");
        assert_eq!(hearth.post("/?whole", &[("Content-Type", FORM)], b"a=1&b=2").text(), "7");
        assert_eq!(hearth.status()["pool"]["crashes"], 0, "{model}");
    }
}

#[test]
fn a_stalled_form_becomes_408_without_running_the_script_in_each_model() {
    for model in &models() {
        let (_site, serve) = serve(model);
        let hearth = serve.set("HEARTH_HTTP_BODY_TIMEOUT", "200ms").start();
        let mut client = begin(&hearth, "POST", "stalled", FORM, Some(500), b"b=123");
        assert_eq!(client.answer_to("POST").unwrap().status, 408, "{model}");
        assert_eq!(seen(&hearth), (0, vec![]), "{model}");
    }
}

#[test]
fn a_script_reading_an_incomplete_body_is_ended_in_each_model() {
    for model in &models() {
        let (_site, serve) = serve(model);
        let hearth = serve.set("HEARTH_HTTP_REQUEST_BUFFERING", "forms").start();
        for name in ["put", "ignoring"] {
            let client = begin(&hearth, "PUT", name, JSON, Some(1000), &[b'x'; 400]);
            eventually("the script reads", LIMIT, || is_busy(&hearth));
            drop(client);
            hearth.wait_idle(1);
        }
        let (_, ran) = seen(&hearth);
        // A client that sent `Expect: 100-continue` gets an error.
        assert_eq!(ran, ["put", "ignoring", "ignoring, aborted"], "{model}");
        let answer = hearth.connect().request("PUT", "/?whole", &[], &[b'x'; 1000]).unwrap();
        assert_eq!(answer.text(), "1000", "{model}");
        assert_eq!(hearth.status()["pool"]["crashes"], 0, "{model}");
    }
}
