//! Effects of a request outside its own memory, in each model that isolates. Its shutdown work runs once, its open
//! files and connections are closed, and deliberately shared data is available to the next request.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pool::Model;
use serde_json::{Value, json};
use testkit::{ProcessFacts, eventually};

use crate::hearth::{Hearth, LIMIT, Serve, Site, each_isolating};

/// The application of tests/php/effects.
#[derive(Debug)]
struct Application {
    model: Model,
    hearth: Hearth,
    site: Site,
}

impl Application {
    fn start(model: Model, workers: usize, environment: &str) -> Self {
        let site = Site::empty().with_folder("effects");
        let script = site.path().join("worker.php");
        let path = if model.runs_worker_script() { script.as_path() } else { site.path() };
        let hearth = Serve::new(path)
            .model(model.name())
            .workers(workers)
            .ini("session.save_path", &site.path().display().to_string())
            .ini("upload_tmp_dir", &site.path().display().to_string())
            .set("HEARTH_PHP_ENV", environment)
            .start();
        Self { model, hearth, site }
    }

    /// Returns the application's answer.
    fn act(&self, target: &str) -> Value {
        let answer = self.hearth.get(target);
        assert_eq!(answer.status, 200, "{:?} {target}: {}", self.model, answer.text());
        answer.json()["answer"].clone()
    }

    fn notes(&self) -> Vec<String> {
        let notes = std::fs::read_to_string(self.site.path().join("notes")).unwrap_or_default();
        notes.lines().map(str::to_owned).collect()
    }

    /// Waits for this many lines of a kind, and checks that there are no more.
    fn noted(&self, line: &str, times: usize) {
        let count = || self.notes().iter().filter(|note| *note == line).count();
        eventually(line, LIMIT, || count() >= times);
        assert_eq!(count(), times, "{:?}: {:?}", self.model, self.notes());
    }
}

#[test]
fn shutdown_functions_and_destructors_of_a_request_run_once() {
    for model in each_isolating() {
        let application = Application::start(model, 1, "");
        let ends = [("/?do=ends", 200), ("/?do=ends&exit", 200), ("/?do=ends&fails", 500)];
        for (target, status) in ends.into_iter().chain(ends) {
            assert_eq!(application.hearth.get(target).status, status, "{model:?} {target}");
        }
        assert_eq!(application.act("/"), "nothing");
        application.noted("shutdown function", 6);
        application.noted("destructor of a local", 6);
        application.noted("destructor of an object kept", 6);
        let boots =
            application.notes().iter().filter(|note| *note == "destructor of the boot").count();
        if model.boots_in_zygote() {
            assert_eq!(boots, 0, "objects created by the boot still exist");
        } else {
            assert!(boots <= 7, "at most once for each boot");
        }
    }
}

#[test]
fn callbacks_and_buffers_do_not_reach_the_next_response() {
    for model in each_isolating() {
        let application = Application::start(model, 1, "");
        for _ in 0..2 {
            let first = application.hearth.get("/?do=fields");
            assert_eq!(first.field("x-left"), Some("left"), "{model:?}");
            assert!(first.text().ends_with(" left"), "{}", first.text());
            let next = application.hearth.get("/");
            assert_eq!(next.field("x-left"), None, "{model:?}");
            assert_eq!(next.json()["answer"], "nothing", "and it is JSON to its end");
        }
    }
}

#[test]
fn open_files_are_flushed_and_temporary_files_removed() {
    for model in each_isolating() {
        let application = Application::start(model, 1, "");
        assert_eq!(application.act("/?do=gzip"), "written");
        let file = application.site.path().join("left.gz");
        let whole = "all of it ".repeat(10_000);
        eventually("the file is whole", LIMIT, || {
            let text = std::process::Command::new("gzip").arg("-cd").arg(&file).output().unwrap();
            text.status.success() && text.stdout == whole.as_bytes()
        });
        let multi = ("Content-Type", "multipart/form-data; boundary=b");
        let body = b"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\ntext\r\n--b--\r\n";
        let uploaded = application.hearth.post("/?do=upload", &[multi], body).json();
        for path in [application.act("/?do=temporary"), uploaded["answer"].clone()] {
            let path = path.as_str().unwrap().to_owned();
            assert!(path.starts_with('/'), "{path}");
            eventually("the temporary file is gone", LIMIT, || {
                !std::path::Path::new(&path).exists()
            });
        }
    }
}

#[test]
fn connections_left_open_are_closed() {
    for model in each_isolating() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let application = Application::start(model, 1, "");
        let target = format!("/?do=connect&address={}", listener.local_addr().unwrap());
        for _ in 0..3 {
            assert_eq!(application.act(&target), 2);
            // The second connection is persistent. Only the model `request` keeps it open, because its process
            // continues, as PHP's own do.
            for kind in ["plain", "persistent"].into_iter().take(if model == Model::Request {
                1
            } else {
                2
            }) {
                let (mut peer, _) = listener.accept().unwrap();
                peer.set_read_timeout(Some(LIMIT)).unwrap();
                assert_eq!(
                    peer.read(&mut [0; 1]).unwrap(),
                    0,
                    "{model:?}, {kind}: the peer sees the end"
                );
            }
            if model == Model::Request {
                listener.set_nonblocking(true).unwrap();
                let _kept = listener.accept();
                listener.set_nonblocking(false).unwrap();
            }
        }
    }
}

#[test]
fn a_session_is_private_in_every_session_store() {
    for model in each_isolating() {
        let application = Application::start(model, 1, "");
        let clean = application.act("/?do=session-look");
        assert_eq!(clean, json!(["", 1, null, "files", "PHPSESSID"]));
        let ada = application.act("/?do=session");
        assert_eq!(ada["visits"], 1);
        assert_eq!(application.act("/?do=session-look"), clean, "{model:?}");
        let eve = application.act("/?do=session");
        assert_eq!(eve["visits"], 1);
        assert_ne!(eve["id"], ada["id"]);
        for n in 1..3 {
            assert_eq!(application.act("/?do=session-handler"), json!(["user", "left"]));
            application.noted("session handler", n);
            assert_eq!(application.act("/?do=session-look"), clean, "{model:?}");
        }
    }
}

#[test]
fn a_file_opened_at_boot_has_its_own_position_in_each_worker() {
    for model in each_isolating() {
        let application = Application::start(model, 2, "");
        application.hearth.wait_idle(2);
        let whole = std::fs::read_to_string(application.site.path().join("read.txt")).unwrap();
        assert_eq!(whole.len(), 100);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        assert_eq!(application.act("/?do=read"), whole, "{model:?}");
                    }
                });
            }
        });
    }
}

/// Answers `ping` with `pong`, and reports each new connection.
fn peer() -> (String, mpsc::Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (tell, told) = mpsc::channel();
    let answer = |stream: TcpStream| {
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        while let Some(Ok(line)) = lines.next() {
            assert_eq!(line, "ping");
            if (&stream).write_all(b"pong\n").is_err() {
                break;
            }
        }
    };
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            if tell.send(()).is_err() {
                break;
            }
            std::thread::spawn(move || answer(stream));
        }
    });
    (address, told)
}

#[test]
fn a_connection_opened_at_boot_is_reported_and_not_used_by_workers() {
    for model in each_isolating().into_iter().filter(|model| model.boots_in_zygote()) {
        let (address, _told) = peer();
        let application = Application::start(model, 2, &format!("CONNECT=boot;PEER={address}"));
        let line = application.hearth.log_line(&address);
        let message = line["message"].as_str().unwrap();
        assert!(message.contains("workers cannot share it"), "{line}");
        for _ in 0..4 {
            let answer = application.act("/?do=ask");
            assert_ne!(answer[1], "pong\n", "{answer}");
        }
    }
}

#[test]
fn a_start_callbacks_connection_is_kept_unless_it_would_be_shared() {
    for model in each_isolating().into_iter().filter(|model| model.boots_in_zygote()) {
        let (address, told) = peer();
        let application = Application::start(model, 1, &format!("CONNECT=start;PEER={address}"));
        let shared = model == Model::Snapshot;
        let answer = if shared { json!([false, null]) } else { json!([5, "pong\n"]) };
        for _ in 0..5 {
            assert_eq!(application.act("/?do=ask"), answer, "{model:?}");
        }
        if shared {
            application.hearth.log_line("cannot stay open: nothing was said over it yet");
        }
        for _ in 0..if shared { 1 } else { 5 } {
            told.recv_timeout(LIMIT).expect("one for each process");
        }
        if shared {
            assert_eq!(told.try_iter().count(), 0, "one for the worker");
        }
    }
}

#[test]
fn opcache_is_deliberately_shared() {
    for model in each_isolating() {
        let application = Application::start(model, 2, "");
        application.hearth.wait_idle(2);
        assert_eq!(application.act("/?do=compiled"), false);
        application.act("/?do=compile");
        let mut pids = BTreeSet::new();
        eventually("another process has seen it", LIMIT, || {
            let answers = std::thread::scope(|scope| {
                let both = [(); 2]
                    .map(|()| scope.spawn(|| application.hearth.get("/?do=compiled").json()));
                both.map(|answer| answer.join().unwrap())
            });
            for answer in &answers {
                assert_eq!(answer["answer"], true, "{model:?}: compiled once for all");
                pids.insert(answer["pid"].as_u64().unwrap());
            }
            pids.len() > 1
        });
    }
}

#[test]
fn apcu_is_deliberately_shared() {
    for model in each_isolating() {
        let application = Application::start(model, 2, "");
        application.hearth.wait_idle(2);
        let mut last = application.act("/?do=apcu");
        if last.is_null() {
            return;
        }
        for _ in 0..20 {
            let next = application.act("/?do=apcu");
            assert_eq!(next.as_u64(), last.as_u64().map(|n| n + 1), "{model:?}");
            last = next;
        }
    }
}

#[test]
fn the_clock_of_a_request_is_its_own() {
    for model in each_isolating() {
        let application = Application::start(model, 1, "");
        let mut last = 0.0;
        for _ in 0..2 {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
            let answer = application.act("/?do=clock");
            for time in answer.as_array().unwrap() {
                let time = time.as_f64().unwrap();
                assert!((now - 1.0..now + 20.0).contains(&time), "{model:?}: {answer} at {now}");
            }
            assert!(answer[1].as_f64().unwrap() > last, "{answer}");
            last = answer[1].as_f64().unwrap();
            std::thread::sleep(Duration::from_millis(1100));
        }
    }
}

#[test]
fn a_child_forked_by_a_request_never_serves() {
    let has_fork = "<?php echo json_encode(['answer' => function_exists('pcntl_fork')]);";
    let site = Site::empty().with_file("public/index.php", has_fork);
    if Hearth::request(&site).get("/").json()["answer"] != true {
        return;
    }
    for model in each_isolating() {
        let application = Application::start(model, 1, "");
        for n in 1..=3 {
            assert_eq!(application.act("/?do=fork"), "parent");
            application.noted("child", n);
            assert_eq!(application.act("/"), "nothing");
        }
        assert_eq!(application.act("/?do=fork&late"), "parent");
        for _ in 0..3 {
            assert_eq!(application.act("/"), "nothing", "while the child still runs");
        }
        if model.is_one_shot() {
            // A one-shot process ends alone, and its child is not a worker.
            eventually("the child has written its note", LIMIT, || application.notes().len() >= 4);
        }
        application.noted("child", 4);
        application.hearth.wait_idle(1);
        let workers = ProcessFacts::children(application.hearth.zygote_pid());
        assert_eq!(workers.len(), 1, "no other process is left");
    }
}
