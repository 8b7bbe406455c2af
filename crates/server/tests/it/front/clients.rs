//! Clients that disconnect: the script notices it as PHP promises, and no worker is lost.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use testkit::{Client, eventually, head};

use crate::hearth::{Hearth, LIMIT, Serve, Site, in_each_model, is_resident, models};

fn read_when_there(file: &Path) -> String {
    eventually("the script has written its file", LIMIT, || {
        fs::read_to_string(file).is_ok_and(|text| text.ends_with('\n'))
    });
    fs::read_to_string(file).unwrap()
}

#[test]
fn a_script_without_ignore_user_abort_is_stopped_and_its_shutdown_function_runs() {
    for (model, site, hearth) in in_each_model() {
        let pid = hearth.worker_pid();
        let file = site.path().join("seen");
        let mut client = hearth.connect();
        let target = format!("/aborted.php?times=100000&file={}", file.display());
        client.send(head("GET", &target, &[], 0)).unwrap();
        assert_eq!(client.head().unwrap().status, 200);
        client.chunk().unwrap();
        drop(client);
        let seen = read_when_there(&file);
        assert_eq!(seen, "[1,1]\n", "{model}: connection_aborted() and CONNECTION_ABORTED");
        hearth.wait_idle(1);
        assert_eq!(hearth.get("/pid.php").text() == pid.to_string(), is_resident(model), "{model}");
    }
}

#[test]
fn a_script_with_ignore_user_abort_continues_and_sees_the_abort() {
    for (model, site, hearth) in in_each_model() {
        site.write(
            "public/continues.php",
            "<?php ignore_user_abort(true); while (ob_get_level()) { ob_end_flush(); }\n\
             for ($i = 0; !connection_aborted() && $i < 3000; $i++) { echo 'x'; flush(); usleep(10000); }\n\
             $before = $i; for ($i = 0; $i < 5; $i++) { echo 'more'; flush(); }\n\
             file_put_contents($_GET['file'], \"after $i more, aborted \" . connection_aborted() . \"\\n\");",
        );
        let pid = hearth.worker_pid();
        let file = site.path().join("seen");
        let mut client = hearth.connect();
        let target = format!("/continues.php?file={}", file.display());
        client.send(head("GET", &target, &[], 0)).unwrap();
        client.head().unwrap();
        drop(client);
        assert_eq!(read_when_there(&file), "after 5 more, aborted 1\n", "{model}");
        hearth.wait_idle(1);
        assert_eq!(hearth.get("/pid.php").text() == pid.to_string(), is_resident(model), "{model}");
    }
}

#[test]
fn a_worker_script_survives_a_client_that_leaves() {
    let site = Site::empty().with_file(
        "public/worker.php",
        "<?php $n = 0; while (frankenphp_handle_request(function () use (&$n) {\n\
         $n++; if (!isset($_GET['drip'])) { echo $n; return; }\n\
         while (ob_get_level()) { ob_end_flush(); }\n\
         while (true) { echo 'x'; flush(); usleep(5000); } })) { }",
    );
    let hearth = Hearth::worker(&site, "worker.php");
    let pid = hearth.worker_pid();
    assert_eq!(hearth.get("/").text(), "1");
    for n in 1..4 {
        let mut client = hearth.connect();
        client.send(head("GET", "/?drip", &[], 0)).unwrap();
        client.head().unwrap();
        client.chunk().unwrap();
        drop(client);
        hearth.wait_idle(1);
        assert_eq!(hearth.get("/").text(), (1 + 2 * n).to_string(), "the loop continues");
    }
    assert_eq!(hearth.worker_pid(), pid);
}

/// A small generator (`SplitMix64`), so that a failure can be replayed from its seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// Runs one client that disconnects at a random point of its request or of the response.
fn disconnect_somewhere(address: SocketAddr, dice: &mut Dice) {
    let mut client = Client::connect(address).unwrap();
    let upload = ("Content-Type", "multipart/form-data; boundary=b");
    let (bytes, body) = match dice.below(4) {
        0 => (head("GET", "/streaming.php?chunks=50&size=2000&pause=200", &[], 0), 0),
        1 => (head("GET", "/large.php?size=3000000", &[], 0), 0),
        2 => (head("POST", "/upload.php", &[upload], 100_000), 60_000),
        _ => (head("GET", "/sleep.php?ms=5", &[], 0), 0),
    };
    let sent = 1 + usize::try_from(dice.below(2 * bytes.len() as u64)).unwrap();
    client.send(&bytes.as_bytes()[..sent.min(bytes.len())]).unwrap();
    if body > 0 && sent >= bytes.len() {
        let mut part =
            b"--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\n".to_vec();
        part.resize(body, b'x');
        // The server may have closed already.
        drop(client.send(&part));
    }
    client.set_timeout(Duration::from_millis(1 + dice.below(20)));
    if dice.below(2) == 0 {
        drop(client.head());
    }
}

#[test]
fn a_hundred_disconnecting_clients_cost_no_worker() {
    for model in &models() {
        let (_site, path) = Site::of_scripts_in(model);
        let hearth = Serve::new(path).model(model).workers(2).start();
        hearth.wait_idle(2);
        let pids = hearth.worker_pids();
        let seed = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().subsec_nanos();
        println!("seed {seed}, model {model}");
        std::thread::scope(|scope| {
            for client in 0..4 {
                let mut dice = Dice(u64::from(seed) << 8 | client);
                let address = hearth.address;
                scope.spawn(move || {
                    for _ in 0..25 {
                        disconnect_somewhere(address, &mut dice);
                    }
                });
            }
            // A client that stays gets every answer.
            scope.spawn(|| {
                for n in 0..40 {
                    let answer = hearth.get(&format!("/hello.php?name={n}"));
                    assert_eq!(
                        (answer.status, answer.text()),
                        (200, format!("hello {n}\n")),
                        "{model}"
                    );
                }
            });
        });
        hearth.wait_idle(2);
        if is_resident(model) {
            assert_eq!(hearth.worker_pids(), pids, "{model}");
        }
        assert_eq!(hearth.status()["pool"]["crashes"], 0, "{model}");
    }
}

#[test]
fn a_client_that_reads_slowly_gets_all_of_it() {
    for (model, _site, hearth) in in_each_model() {
        let mut client = hearth.connect();
        client.send(head("GET", "/large.php?size=8000000", &[], 0)).unwrap();
        // The pause gives PHP the time to print everything.
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(client.answer_to("GET").unwrap().body.len(), 8_000_000, "{model}");
    }
}
