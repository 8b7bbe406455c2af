//! Reloads of the model `snapshot` while snapshots are taken and restored: requests leave state behind, workers retire
//! and are replaced.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use pool::Model;
use serde_json::json;
use testkit::{eventually, head};

use super::reload::{Deploys, assert_reloaded, wait_drained};
use crate::hearth::{LIMIT, OverOnDrop, isolating};

/// A script that prints its release and the state left by earlier requests: in a global, a static variable, the
/// directory and the environment.
const LEAVING: &str = r"
    static $kept = 0;
    $left = ($GLOBALS['left'] ?? 0) + $kept + (getcwd() === '/' ? 1 : 0) + (getenv('LEFT') !== false ? 1 : 0);
    $GLOBALS['left'] = $kept = 1;
    $GLOBALS['much'] = str_repeat('x', 300000);
    chdir('/');
    putenv('LEFT=1');
    if (isset($_GET['retire'])) {
        proc_nice(1);
    }
    echo RELEASE, ' ', $left;
";

const CLIENTS: usize = 12;
const RELOADS: u32 = 5;
/// Every ninth request changes something that cannot be restored.
const RETIRES_EVERY: usize = 9;

#[test]
fn reloads_while_snapshots_are_taken_and_restored_lose_no_request_and_leave_nothing_behind() {
    if !isolating().contains(&Model::Snapshot) {
        return;
    }
    let deploys = Deploys::new();
    let release =
        |number: u32| deploys.answering(number, &format!("const RELEASE = {number};{LEAVING}"));
    release(1);
    let hearth = deploys.serve("snapshot").workers(3).patient().start();
    let (taken_over, begun) = (AtomicU32::new(1), AtomicU32::new(1));
    let (over, answered) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for first in 0..CLIENTS {
            let (hearth, over, answered) = (&hearth, &over, &answered);
            let (taken_over, begun) = (&taken_over, &begun);
            scope.spawn(move || {
                let mut client = hearth.connect();
                for request in first.. {
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    let at_least = taken_over.load(Ordering::SeqCst);
                    let target = if request % RETIRES_EVERY == 0 { "/?retire" } else { "/" };
                    client.send(head("GET", target, &[], 0)).unwrap();
                    let answer = client.answer_to("GET").unwrap();
                    let text = answer.text();
                    assert_eq!(answer.status, 200, "{text}");
                    let (number, left) = text.split_once(' ').unwrap();
                    assert_eq!(left, "0", "a request found what another had left: {text}");
                    let number: u32 = number.parse().unwrap();
                    assert!(number >= at_least, "{number} after {at_least}");
                    assert!(number <= begun.load(Ordering::SeqCst), "{number} is not deployed yet");
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let _over = OverOnDrop(&over);
        for number in 2..=RELOADS + 1 {
            let before = answered.load(Ordering::Relaxed);
            eventually("the load runs", LIMIT, || {
                answered.load(Ordering::Relaxed) > before + 10 * u32::try_from(CLIENTS).unwrap()
            });
            release(number);
            deploys.point_to(number);
            begun.store(number, Ordering::SeqCst);
            assert_reloaded(deploys.reload(), number.into());
            taken_over.store(number, Ordering::SeqCst);
        }
    });
    wait_drained(&hearth);
    let status = hearth.status();
    assert_eq!(status["pool"]["crashes"], 0, "{status}");
    assert!(status["pool"]["retired"].as_u64().unwrap() > 0, "workers retired: {status}");
    // The log line of each retired worker has the reason.
    let log = hearth.log().text();
    let mut reasons: BTreeMap<&str, u32> = BTreeMap::new();
    for line in log.lines().filter(|line| line.contains("worker retired")) {
        let told = line.contains("nice") || line.contains("priority");
        *reasons.entry(if told { "told" } else { line }).or_default() += 1;
    }
    assert_eq!(reasons.keys().collect::<Vec<_>>(), [&"told"], "{reasons:?}");
    assert!(!log.contains("oracle:"), "{log}");
    assert_eq!(status["reloads"]["done"], json!(RELOADS));
    assert_eq!(hearth.stop().code(), Some(0));
}
