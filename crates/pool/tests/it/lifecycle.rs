//! Tests start, recycling, loss of the zygote, and drain.

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pool::{DispatchError, Entry, EntryScripts, Options, Others, Pool, StartError};
use tokio::task::JoinSet;

use crate::{eventually, get, options, start, text};

#[tokio::test]
async fn a_missing_program_is_named() {
    let mut options = options(1);
    options.program = "/nonexistent/hearth-worker-9.9".into();
    let error = Pool::start(options).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot start /nonexistent/hearth-worker-9.9");
}

#[tokio::test]
async fn a_php_start_error_is_quoted() {
    let mut options = options(1);
    options.ini = vec![("refuse-to-start".into(), "1".into())];
    let error = Pool::start(options).await.unwrap_err();
    let StartError::Zygote { output, .. } = &error else { panic!("{error}") };
    assert_eq!(output, "fake-worker: told not to start");
}

#[tokio::test]
async fn a_boot_error_is_quoted() {
    let mut options = options(2);
    options.ini = vec![("refuse-to-boot".into(), "1".into())];
    let error = Pool::start(options).await.unwrap_err();
    let StartError::Boot { output } = &error else { panic!("{error}") };
    assert_eq!(output, "fake-worker: told not to boot\nexit status 255");
}

#[tokio::test]
async fn workers_are_recycled_after_max_requests_and_no_request_notices() {
    let mut options = options(2);
    options.max_requests = NonZeroU64::new(10);
    let pool = Pool::start(options).await.unwrap();
    let mut clients = JoinSet::new();
    for _ in 0..4 {
        let pool = pool.clone();
        clients.spawn(async move {
            for _ in 0..100 {
                assert_eq!(text(get(&pool, "/hello").await.unwrap()).await, "hello");
            }
        });
    }
    clients.join_all().await;
    eventually("recycled", || pool.status().recycled >= 5).await;
    eventually("two workers again", || pool.status().workers.len() == 2).await;
    assert_eq!(pool.status().crashes, 0);
}

#[tokio::test]
async fn a_start_without_any_fork_fails_at_the_time_limit_of_the_boot() {
    let mut options = options(1);
    options.boot_timeout = Duration::from_millis(100);
    options.ini = vec![("refuse-forks".into(), "1".into())];
    let error = Pool::start(options).await.unwrap_err();
    assert!(matches!(&error, StartError::Fork { .. }), "{error}");
}

#[tokio::test]
async fn a_failed_fork_of_a_successor_is_retried() {
    let mut options = options(1);
    options.max_requests = NonZeroU64::new(2);
    options.ini = vec![("refuse-second".into(), "1".into())];
    let pool = Pool::start(options).await.unwrap();
    for _ in 0..2 {
        assert_eq!(text(get(&pool, "/hello").await.unwrap()).await, "hello");
    }
    // Its next request makes it ask again, as soon as the rejection is known.
    for _ in 0..1000 {
        assert_eq!(text(get(&pool, "/hello").await.unwrap()).await, "hello");
        if pool.status().recycled > 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("it was never replaced");
}

#[tokio::test]
async fn a_worker_that_dies_while_its_successor_boots_is_not_replaced_twice() {
    let mut options = options(1);
    options.max_requests = NonZeroU64::new(2);
    options.ini = vec![("slow-to-boot".into(), "1".into())];
    let pool = Pool::start(options).await.unwrap();
    for _ in 0..2 {
        assert_eq!(text(get(&pool, "/hello").await.unwrap()).await, "hello");
    }
    eventually("its successor boots", || pool.status().workers.len() == 2).await;
    let error = get(&pool, "/die").await.unwrap_err();
    assert!(matches!(error, DispatchError::WorkerDied { .. }), "{error}");
    assert_eq!(text(get(&pool, "/hello").await.unwrap()).await, "hello");
    let status = pool.status();
    assert_eq!((status.workers.len(), status.crashes), (1, 1));
}

#[tokio::test]
async fn a_lost_zygote_is_restarted() {
    let mut options = options(2);
    options.env = vec![("HEARTH_TEST_LOST".into(), "1".into())];
    let pool = Pool::start(options).await.unwrap();
    kill_zygote("HEARTH_TEST_LOST=1");
    eventually("the loss is seen", || pool.status().crashes >= 2).await;
    assert_eq!(text(get(&pool, "/hello").await.unwrap()).await, "hello");
}

/// Kills the child of this process that has `variable` in its environment.
pub(crate) fn kill_zygote(variable: &str) {
    let zygote = children().into_iter().find(|pid| environment(*pid).contains(variable)).unwrap();
    let zygote = rustix::process::Pid::from_raw(zygote.cast_signed()).unwrap();
    rustix::process::kill_process(zygote, rustix::process::Signal::KILL).unwrap();
}

/// Returns the direct children of this process.
fn children() -> Vec<u32> {
    let own = std::process::id();
    let entries = std::fs::read_dir("/proc").unwrap();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let after = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        after.split(' ').nth(1) == Some(&own.to_string())
    })
    .collect()
}

fn environment(pid: u32) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn a_drain_answers_accepted_requests_and_rejects_new_ones() {
    let pool = start(1).await;
    let mut clients = JoinSet::new();
    for _ in 0..5 {
        let pool = pool.clone();
        clients.spawn(async move { text(get(&pool, "/sleep?100").await.unwrap()).await });
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    let draining = pool.clone();
    let (drained, late, answers) = tokio::join!(
        async {
            draining.drain(Duration::from_secs(10)).await;
            draining.status().workers.len()
        },
        async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            get(&pool, "/hello").await
        },
        clients.join_all(),
    );
    assert_eq!(answers, ["slept"; 5]);
    assert!(matches!(late.unwrap_err(), DispatchError::Draining));
    assert_eq!(drained, 0);
}

#[tokio::test]
async fn a_drain_ends_at_the_time_limit() {
    let pool = start(1).await;
    let busy = pool.clone();
    let mut clients = JoinSet::new();
    clients.spawn(async move { get(&busy, "/sleep?30000").await.map(|_| ()) });
    tokio::time::sleep(Duration::from_millis(50)).await;
    let started = tokio::time::Instant::now();
    pool.drain(Duration::from_millis(300)).await;
    assert!(started.elapsed() < Duration::from_secs(20));
    assert!(clients.join_all().await[0].is_err(), "the request got an error, not silence");
}

/// Every script waits for its requests: `slow.php` in a process that boots for as long as the file is there.
#[derive(Debug)]
struct AllWait {
    options: Options,
    gate: PathBuf,
}

impl EntryScripts for AllWait {
    fn options(&self, script: &Path) -> Option<Options> {
        let mut options = self.options.clone();
        options.worker_script = Some(script.into());
        if script.ends_with("slow.php") {
            options.env.push(("HEARTH_TEST_BOOTS".into(), self.gate.display().to_string()));
        }
        Some(options)
    }

    fn reason(&self, error: &StartError) -> String {
        error.to_string()
    }
}

/// Returns the zygotes of this process that have the variable in their environment.
fn zygotes(variable: &str) -> usize {
    children().into_iter().filter(|pid| environment(*pid).contains(variable)).count()
}

#[tokio::test]
async fn a_start_that_is_dropped_ends_every_pool_that_it_has_started() {
    let folder = tempfile::tempdir().unwrap();
    let (gate, mark) = (folder.path().join("boots"), "HEARTH_TEST_DROPPED_START");
    std::fs::write(&gate, "").unwrap();
    let mut front = options(2);
    front.env = vec![(mark.into(), "1".into())];
    front.worker_script = Some("/srv/index.php".into());
    let scripts = AllWait { options: front.clone(), gate };
    front.entry = Some(Entry {
        document_root: "/srv".into(),
        await_after: None,
        learn_classes: false,
        others: Some(Others {
            rest: Box::new(front.clone()),
            idle_timeout: Duration::from_secs(10),
            burst: NonZeroUsize::MIN,
            scripts: Arc::new(scripts),
            known: ["/srv/quick.php", "/srv/slow.php"].map(PathBuf::from).to_vec(),
        }),
    });
    // The front controller, the rest and one group are ready; the other group boots.
    tokio::select! {
        started = Pool::start(front) => panic!("one group still boots: {started:?}"),
        () = eventually("four zygotes run", || zygotes(mark) == 4) => {}
    }
    eventually("no zygote is left", || zygotes(mark) == 0).await;
}

#[tokio::test]
async fn a_pool_whose_last_handle_is_dropped_ends_its_processes() {
    let mark = "HEARTH_TEST_DROPPED_POOL";
    let mut options = options(2);
    options.env = vec![(mark.into(), "1".into())];
    let pool = Pool::start(options).await.unwrap();
    drop(pool.clone());
    assert_eq!(text(get(&pool, "/hello").await.unwrap()).await, "hello");
    assert_eq!(zygotes(mark), 1);
    drop(pool);
    eventually("no process is left", || zygotes(mark) == 0).await;
}
