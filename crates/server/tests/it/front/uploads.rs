//! Request bodies: files are stored on disk and deleted afterwards, nothing large stays in memory, and PHP's limits
//! apply.

use std::fs;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use testkit::{Client, ProcessFacts, eventually};

use crate::hearth::{LIMIT, OverOnDrop, Serve, Site, in_each_model, models, php_fpm};

const MULTI: (&str, &str) = ("Content-Type", "multipart/form-data; boundary=b0undary");
const FORM: (&str, &str) = ("Content-Type", "application/x-www-form-urlencoded");

fn file(field: &str, body: &[u8]) -> Vec<u8> {
    let mut part = format!(
        "--b0undary\r\nContent-Disposition: form-data; name=\"{field}\"; filename=\"{field}.bin\"\r\n\r\n"
    )
    .into_bytes();
    part.extend_from_slice(body);
    part.extend_from_slice(b"\r\n");
    part
}

fn form(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut body = parts.concat();
    body.extend_from_slice(b"--b0undary--\r\n");
    body
}

/// Creates an empty folder for PHP's temporary files, and returns the argument that sets it.
fn temporary_folder(site: &Site) -> String {
    let folder = site.path().join("tmp");
    fs::create_dir(&folder).unwrap();
    folder.display().to_string()
}

fn count(folder: &str) -> usize {
    fs::read_dir(folder).unwrap().count()
}

#[test]
fn uploaded_files_exist_during_the_request_only() {
    for model in &models() {
        let (site, path) = Site::of_scripts_in(model);
        let folder = temporary_folder(&site);
        let serve = Serve::new(path).model(model).workers(1);
        let hearth = serve.ini("upload_tmp_dir", &folder).start();
        for _ in 0..3 {
            let body = form(&[file("a", b"first"), file("b", &vec![7; 300_000])]);
            let answer = hearth.post("/upload.php", &[MULTI], &body);
            let seen = answer.text();
            assert_eq!(seen.matches(&folder.replace('/', "\\/")).count(), 2, "{model}: {seen}");
            assert!(seen.contains("\"size\":300000"), "{model}: {seen}");
            eventually("the files are gone", LIMIT, || count(&folder) == 0);
        }
    }
}

#[test]
fn uploaded_files_of_a_failed_script_are_removed() {
    for model in &models() {
        let (site, path) = Site::of_scripts_in(model);
        let folder = temporary_folder(&site);
        site.write(
            "public/fails.php",
            "<?php register_shutdown_function(fn () => null); nothing();",
        );
        let hearth =
            Serve::new(path).model(model).workers(1).ini("upload_tmp_dir", &folder).start();
        assert_eq!(hearth.post("/fails.php", &[MULTI], &form(&[file("a", b"first")])).status, 500);
        eventually("the file is gone", LIMIT, || count(&folder) == 0);

        // a client that disconnects in the middle of its file
        let mut client = hearth.connect();
        client.send(testkit::head("POST", "/upload.php", &[MULTI], 1_000_000)).unwrap();
        client.send(&file("a", &vec![1; 200_000])[..150_000]).unwrap();
        drop(client);
        hearth.wait_idle(1);
        assert_eq!(count(&folder), 0, "{model}: PHP gets a form when it is complete");
        assert_eq!(hearth.get("/hello.php").status, 200, "{model}");
    }
}

/// Size of the large upload in bytes: a gigabyte in long runs.
fn large() -> usize {
    if std::env::var_os("HEARTH_LONG").is_some() { 1 << 30 } else { 200 << 20 }
}

#[test]
fn a_large_upload_is_not_held_in_memory() {
    let site = Site::of_scripts();
    a_large_upload(Serve::new(site.path()).model("request"), large());
    // The other model reads it with the same loop of the engine, so a smaller upload shows that nothing is kept.
    let site = Site::of_scripts().with_file(
        "worker.php",
        "<?php while (hearth_handle_request(function () { require __DIR__ . '/public/upload.php'; })) { }",
    );
    let script = site.path().join("worker.php");
    a_large_upload(Serve::new(script).model("worker"), large() / 4);
}

fn a_large_upload(serve: Serve, size: usize) {
    let hearth = serve
        .workers(1)
        .ini("upload_max_filesize", "1100M")
        .ini("post_max_size", "1100M")
        .set("HEARTH_HTTP_BODY_LIMIT", "1100MiB")
        .start();
    assert_eq!(hearth.post("/upload.php", &[MULTI], &form(&[file("a", b"warm")])).status, 200);
    let (server, worker) = (hearth.process.pid(), hearth.worker_pid());
    let resident = || [server, worker].map(|pid| ProcessFacts::of(pid).unwrap().resident);
    let before = resident();

    let head =
        b"--b0undary\r\nContent-Disposition: form-data; name=\"a\"; filename=\"large.bin\"\r\n\r\n";
    let tail = b"\r\n--b0undary--\r\n";
    let over = AtomicBool::new(false);
    let (seen, most) = thread::scope(|scope| {
        let _over = OverOnDrop(&over);
        let watch = scope.spawn(|| {
            let mut most = before;
            while !over.load(Ordering::Relaxed) {
                let now = resident();
                most = std::array::from_fn(|n| now[n].max(most[n]));
                thread::sleep(Duration::from_millis(5));
            }
            most
        });
        let mut client = hearth.connect();
        let length = head.len() + size + tail.len();
        client.send(testkit::head("POST", "/upload.php", &[MULTI], length)).unwrap();
        client.send(head).unwrap();
        let piece = vec![b'x'; 1 << 20];
        for _ in 0..size / piece.len() {
            client.send(&piece).unwrap();
        }
        client.send(tail).unwrap();
        let seen = client.answer_to("POST").unwrap().json();
        over.store(true, Ordering::Relaxed);
        (seen, watch.join().unwrap())
    });
    assert_eq!(seen["files"][0]["size"], size, "{seen}");
    assert_eq!(seen["files"][0]["error"], 0, "{seen}");
    for (before, most) in before.iter().zip(most) {
        assert!(most < before + (8 << 20), "grew from {before} to {most} bytes");
    }
}

#[test]
fn a_large_raw_body_is_read_piece_by_piece() {
    let (_site, hearth) = {
        let site = Site::of_scripts();
        let hearth =
            Serve::new(site.path()).model("request").workers(1).ini("post_max_size", "64M").start();
        (site, hearth)
    };
    let body = vec![b'r'; 40 << 20];
    let kind = ("Content-Type", "application/octet-stream");
    let seen = hearth.post("/input.php", &[kind], &body).json();
    assert_eq!(seen["length"], body.len());
    assert!(seen["peak"].as_u64().unwrap() < 8 << 20, "{seen}");

    // chunked, without a length
    let mut client = hearth.connect();
    client
        .send("PUT /input.php HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        .unwrap();
    for _ in 0..300 {
        client.send("400\r\n").unwrap();
        client.send([b'c'; 1024]).unwrap();
        client.send("\r\n").unwrap();
    }
    client.send("0\r\n\r\n").unwrap();
    assert_eq!(client.answer_to("PUT").unwrap().json()["length"], 300 * 1024);
}

#[test]
fn an_unread_body_does_not_disturb_the_next_request() {
    for (_model, _site, hearth) in in_each_model() {
        let mut client = hearth.connect();
        for _ in 0..5 {
            let body = vec![b'u'; 3 << 20];
            let kind = ("Content-Type", "application/octet-stream");
            let answer = client.request("POST", "/input.php?skip", &[kind], &body).unwrap();
            assert_eq!(answer.json()["skipped"], true);
            assert_eq!(client.get("/hello.php").unwrap().text(), "hello world\n");
        }
    }
}

#[test]
fn phps_body_limits_apply_as_under_php_fpm() {
    let ini = [
        ("upload_max_filesize", "1000"),
        ("post_max_size", "5000"),
        ("max_file_uploads", "2"),
        ("max_input_vars", "5"),
        ("max_input_nesting_level", "3"),
    ];
    let site = Site::of_scripts()
        .with_script("everything/dump.php", "dump.php")
        .with_file("public/index.php", "<?php (require __DIR__ . '/dump.php')();");
    let peer = php_fpm(&site.public(), &ini);
    let mut serve = Serve::new(site.path()).model("request").workers(1);
    for (name, value) in ini {
        serve = serve.ini(name, value);
    }
    let hearth = serve.start();
    let pairs = |count: usize| {
        let mut text = Vec::new();
        for n in 0..count {
            write!(text, "v{n}={n}&").unwrap();
        }
        text
    };
    let bodies = [
        (FORM, pairs(5)),
        (FORM, pairs(20)),
        (FORM, b"a[b][c][d]=deep&a[b][c]=fits".to_vec()),
        (FORM, vec![b'a'; 6000]),
        (MULTI, form(&[file("a", &[1; 1000])])),
        (MULTI, form(&[file("a", &[1; 1001]), file("b", b"fits")])),
        (MULTI, form(&[file("a", b"1"), file("b", b"2"), file("c", b"3")])),
        (MULTI, form(&[file("a", &[1; 900]), file("b", &[1; 6000])])),
        (("Content-Type", "application/octet-stream"), vec![b'a'; 6000]),
    ];
    for (n, (kind, body)) in bodies.iter().enumerate() {
        let ask = |address| -> [Value; 6] {
            let mut client = Client::connect(address).unwrap();
            let seen = client.request("POST", "/", &[*kind], body).unwrap().json();
            ["$_POST", "$_FILES", "php://input", "last error", "$_GET", "$_REQUEST"]
                .map(|name| seen[name].clone())
        };
        assert_eq!(ask(hearth.address), ask(peer.address()), "body {n}");
    }
    let query = format!("/?{}", String::from_utf8(pairs(20)).unwrap());
    let get =
        |address| Client::connect(address).unwrap().get(&query).unwrap().json()["$_GET"].clone();
    assert_eq!(get(hearth.address), get(peer.address()));
}

#[test]
fn a_body_above_hearths_own_limit_is_answered_with_413() {
    let site = Site::of_scripts();
    let hearth = Serve::new(site.path())
        .model("request")
        .workers(1)
        .set("HEARTH_HTTP_BODY_LIMIT", "10KiB")
        .start();
    let pid = hearth.worker_pid();
    let kind = ("Content-Type", "application/octet-stream");
    assert_eq!(hearth.post("/input.php", &[kind], &[1; 10 << 10]).status, 200);
    let mut client = hearth.connect();
    client.send(testkit::head("POST", "/input.php", &[kind], (10 << 10) + 1)).unwrap();
    assert_eq!(client.answer_to("POST").unwrap().status, 413, "before any of the body was sent");

    let mut client = hearth.connect();
    client
        .send("POST /input.php HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        .unwrap();
    for _ in 0..11 {
        client.send("400\r\n").unwrap();
        client.send([b'c'; 1024]).unwrap();
        client.send("\r\n").unwrap();
    }
    assert_eq!(client.answer_to("POST").unwrap().status, 413);
    hearth.wait_idle(1);
    assert_eq!(hearth.get("/pid.php").text(), pid.to_string(), "the worker has lost nothing");
}

#[test]
fn a_client_waiting_for_100_continue_gets_it() {
    for (_model, _site, hearth) in in_each_model() {
        let mut client = hearth.connect();
        let fields = [("Expect", "100-continue"), ("Content-Type", "text/plain")];
        client.send(testkit::head("POST", "/input.php", &fields, 4)).unwrap();
        assert_eq!(client.head().unwrap().status, 100);
        client.send("data").unwrap();
        assert_eq!(client.answer_to("POST").unwrap().json()["length"], 4);
    }
}
