//! Tests workers that answer one request, workers that retire, and zygotes that boot the application themselves.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use pool::{DispatchError, Model, Options, Pool, StartError, WorkerState};
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep};

use crate::{context, eventually, get, options, text};

const ONE_SHOT: [Model; 3] = [Model::Spawn, Model::Prespawn, Model::Fork];

fn in_model(model: Model, workers: usize) -> Options {
    Options { model, ..options(workers) }
}

/// Returns a pool whose workers misbehave as `name` says (see the fake worker).
fn misbehaving(model: Model, workers: usize, name: &str) -> Options {
    Options { ini: vec![(name.into(), "1".into())], ..in_model(model, workers) }
}

fn idle(pool: &Pool) -> usize {
    let workers = pool.status().workers;
    let all = workers.len();
    let idle = workers.iter().filter(|worker| worker.state == WorkerState::Idle).count();
    if idle == all { idle } else { 0 }
}

#[tokio::test]
async fn each_request_to_a_one_shot_model_has_a_process_of_its_own() {
    for model in ONE_SHOT {
        let pool = Pool::start(in_model(model, 2)).await.unwrap();
        let mut pids = BTreeSet::new();
        for _ in 0..50 {
            assert!(pids.insert(text(get(&pool, "/pid").await.unwrap()).await), "{model:?}");
        }
        eventually("two successors wait", || idle(&pool) == 2).await;
        let status = pool.status();
        assert_eq!((status.requests, status.crashes, status.recycled), (50, 0, 0), "{model:?}");
    }
}

#[tokio::test]
async fn no_more_one_shot_workers_run_than_are_set_and_at_most_twice_as_many_live() {
    let pool = Pool::start(in_model(Model::Fork, 2)).await.unwrap();
    let mut clients = JoinSet::new();
    for _ in 0..20 {
        let pool = pool.clone();
        clients.spawn(async move { text(get(&pool, "/sleep?30").await.unwrap()).await });
    }
    let (mut most_busy, mut most_alive) = (0, 0);
    while !clients.is_empty() {
        let workers = pool.status().workers;
        let busy = workers.iter().filter(|worker| worker.state == WorkerState::Busy).count();
        most_busy = most_busy.max(busy);
        most_alive = most_alive.max(workers.len());
        while let Some(answer) = clients.try_join_next() {
            assert_eq!(answer.unwrap(), "slept");
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!((most_busy, most_alive), (2, 4));
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_one_shot_worker_and_no_other() {
    let pool = Pool::start(in_model(Model::Prespawn, 2)).await.unwrap();
    for wait in 0..20 {
        for path in ["/sleep?10", "/drip?5", "/large?1000000", "/finish?10", "/cleanup?10"] {
            let leave = tokio::time::timeout(Duration::from_millis(wait / 2), async {
                let mut body = get(&pool, path).await.unwrap().into_body();
                while let Some(Ok(_)) = body.frame().await {}
            });
            let _left_or_not = leave.await;
        }
    }
    eventually("two successors wait and no other worker lives", || idle(&pool) == 2).await;
    let status = pool.status();
    assert_eq!((status.workers.len(), status.crashes, status.recycled), (2, 0, 0));
    assert_eq!(text(get(&pool, "/hello").await.unwrap()).await, "hello");
}

#[tokio::test]
async fn an_undeliverable_request_costs_no_one_shot_worker() {
    for model in ONE_SHOT {
        let pool = Pool::start(in_model(model, 1)).await.unwrap();
        let pid = pool.status().workers[0].pid.to_string();
        for _ in 0..3 {
            let mut request = Request::get("/hello").extension(context());
            for number in 0..2000 {
                request = request.header(format!("x-{number}"), "");
            }
            let error = pool.dispatch(request.body(Full::<Bytes>::default()).unwrap()).await;
            assert!(matches!(error.unwrap_err(), DispatchError::HeadTooLarge), "{model:?}");
        }
        assert_eq!(text(get(&pool, "/pid").await.unwrap()).await, pid, "{model:?}");
        let status = pool.status();
        assert_eq!((status.requests, status.crashes), (1, 0), "{model:?}");
        eventually("its successor waits", || idle(&pool) == 1).await;
    }
}

#[tokio::test]
async fn a_one_shot_worker_that_works_on_after_its_answer_counts_as_running() {
    let pool = Pool::start(in_model(Model::Spawn, 1)).await.unwrap();
    let started = Instant::now();
    assert_eq!(text(get(&pool, "/finish?5000").await.unwrap()).await, "early");
    assert!(started.elapsed() < Duration::from_secs(5), "the answer did not wait");
    assert_eq!(text(get(&pool, "/hello").await.unwrap()).await, "hello");
    assert!(started.elapsed() >= Duration::from_secs(5), "the next request did");
}

#[tokio::test]
async fn crashing_one_shot_requests_delay_no_other() {
    let pool = Pool::start(in_model(Model::Fork, 1)).await.unwrap();
    let started = Instant::now();
    for _ in 0..20 {
        let error = get(&pool, "/die").await.unwrap_err();
        let DispatchError::WorkerDied { how, .. } = &error else { panic!("{error}") };
        assert_eq!(how, "signal 11 (SIGSEGV)");
        assert_eq!(text(get(&pool, "/hello").await.unwrap()).await, "hello");
    }
    // Increasing pauses, as after other losses, would take a minute in total.
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    eventually("all deaths are counted", || pool.status().crashes == 20).await;
}

#[tokio::test]
async fn a_one_shot_worker_that_exits_silently_counts_as_dead() {
    let pool = Pool::start(in_model(Model::Fork, 1)).await.unwrap();
    let error = get(&pool, "/leave").await.unwrap_err();
    let DispatchError::WorkerDied { how, .. } = &error else { panic!("{error}") };
    assert_eq!(how, "exit status 0");
    eventually("it is counted", || pool.status().crashes == 1).await;
    assert_eq!(text(get(&pool, "/hello").await.unwrap()).await, "hello");
}

#[tokio::test]
async fn an_unread_body_disturbs_no_one_shot_request() {
    let pool = Pool::start(in_model(Model::Spawn, 1)).await.unwrap();
    for _ in 0..5 {
        let body = Full::from(vec![1; 1_000_000]);
        let request = Request::post("/unread").extension(context()).body(body).unwrap();
        assert_eq!(text(pool.dispatch(request).await.unwrap()).await, "hello");
    }
    eventually("the successor waits", || idle(&pool) == 1).await;
    assert_eq!(pool.status().crashes, 0);
}

#[tokio::test]
async fn a_one_shot_worker_over_its_time_limit_is_killed() {
    let mut options = in_model(Model::Prespawn, 1);
    // The limit applies to the next request too.
    options.request_timeout = Some(Duration::from_secs(3));
    let pool = Pool::start(options).await.unwrap();
    let error = get(&pool, "/sleep?60000").await.unwrap_err();
    assert!(matches!(error, DispatchError::TimedOut { .. }), "{error}");
    assert_eq!(text(get(&pool, "/hello").await.unwrap()).await, "hello");
    let status = pool.status();
    assert_eq!((status.timeouts, status.crashes), (1, 0));
}

#[tokio::test]
async fn a_drain_of_one_shot_workers_answers_what_was_accepted() {
    let pool = Pool::start(in_model(Model::Fork, 1)).await.unwrap();
    let mut clients = JoinSet::new();
    for _ in 0..5 {
        let pool = pool.clone();
        clients.spawn(async move { text(get(&pool, "/sleep?50").await.unwrap()).await });
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
    let ((), answers) = tokio::join!(pool.drain(Duration::from_secs(10)), clients.join_all());
    assert_eq!(answers, ["slept"; 5]);
    assert!(pool.status().workers.is_empty());
}

#[tokio::test]
async fn a_retiring_worker_loses_no_request() {
    let pool = Pool::start(in_model(Model::Snapshot, 1)).await.unwrap();
    let started = Instant::now();
    for round in 1..=10 {
        assert_eq!(text(get(&pool, "/retire").await.unwrap()).await, "answered");
        assert_eq!(text(get(&pool, "/hello").await.unwrap()).await, "hello");
        eventually("it is counted", || pool.status().retired == round).await;
    }
    // Increasing pauses, as after losses, would take fifteen seconds in total.
    assert!(started.elapsed() < Duration::from_secs(10), "no pause: {:?}", started.elapsed());
    let status = pool.status();
    assert_eq!((status.requests, status.crashes, status.recycled), (20, 0, 0));
}

#[tokio::test]
async fn a_request_queued_at_a_retiring_worker_moves_to_another() {
    let pool = Pool::start(in_model(Model::Snapshot, 1)).await.unwrap();
    for round in 1..=5 {
        get(&pool, "/retire-in-cleanup?50").await.unwrap();
        assert_eq!(text(get(&pool, "/hello").await.unwrap()).await, "hello");
        eventually("it is counted", || pool.status().retired == round).await;
    }
    let status = pool.status();
    assert_eq!((status.requests, status.crashes), (10, 0));
}

fn post<B>(body: B) -> Request<B> {
    Request::post("/echo").extension(context()).body(body).unwrap()
}

/// A body that arrives in pieces of 1000 bytes, with 10 ms between two.
pub(crate) struct Trickle {
    pieces: std::ops::Range<u8>,
    pause: Pin<Box<Sleep>>,
}

impl Trickle {
    pub(crate) fn of(pieces: std::ops::Range<u8>) -> Self {
        Self { pieces, pause: Box::pin(tokio::time::sleep(Duration::ZERO)) }
    }
}

impl Body for Trickle {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        ready!(self.pause.as_mut().poll(cx));
        self.pause.as_mut().reset(Instant::now() + Duration::from_millis(10));
        let piece = self.pieces.next().map(|piece| Bytes::from(vec![piece; 1000]));
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }
}

#[tokio::test]
async fn a_body_queued_at_a_retiring_worker_moves_whole() {
    let pool = Pool::start(in_model(Model::Snapshot, 1)).await.unwrap();
    let trickled: String = ('a'..='j').map(|piece| piece.to_string().repeat(1000)).collect();
    for (round, retires) in ["/retire-in-cleanup?50", "/retire"].into_iter().enumerate() {
        for body in ["of one piece".to_owned(), "x".repeat(65_536)] {
            get(&pool, retires).await.unwrap();
            let answer = pool.dispatch(post(Full::from(body.clone()))).await.unwrap();
            assert_eq!(text(answer).await, body, "{retires}");
        }
        get(&pool, retires).await.unwrap();
        let answer = pool.dispatch(post(Trickle::of(b'a'..b'k'))).await.unwrap();
        assert_eq!(text(answer).await, trickled, "{retires}");
        get(&pool, retires).await.unwrap();
        let answer = pool.dispatch(post(Trickle::of(0..0))).await.unwrap();
        assert_eq!(text(answer).await, "", "{retires}");
        let retired = (round as u64 + 1) * 4;
        eventually("all are counted", || pool.status().retired == retired).await;
    }
    let status = pool.status();
    assert_eq!((status.requests, status.crashes), (16, 0));
}

#[tokio::test]
async fn a_body_above_the_kept_size_is_lost_with_its_worker() {
    let mut options = misbehaving(Model::Snapshot, 1, "retire-when-asked");
    options.backlog_timeout = Duration::from_millis(300);
    let pool = Pool::start(options).await.unwrap();
    let error = pool.dispatch(post(Full::from(vec![b'x'; 65_537]))).await.unwrap_err();
    assert!(matches!(error, DispatchError::WorkerDied { .. }), "{error}");
    assert_eq!(pool.status().requests, 1);
    let error = pool.dispatch(post(Full::from(vec![b'x'; 65_536]))).await.unwrap_err();
    assert!(matches!(error, DispatchError::Overloaded { .. }), "tried again and again: {error}");
    assert_eq!(pool.status().requests, 1);
}

#[tokio::test]
async fn workers_that_retire_before_they_answer_anything_are_replaced_ever_more_slowly() {
    let pool = Pool::start(misbehaving(Model::Snapshot, 2, "retire-idle")).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let status = pool.status();
    assert!(status.retired < 40, "{} retired", status.retired);
    assert_eq!(status.crashes, 0);
    eventually("they are replaced", || pool.status().retired >= 2).await;
}

#[tokio::test]
async fn retries_of_a_request_that_retires_workers_are_bounded() {
    let mut options = misbehaving(Model::Snapshot, 1, "retire-when-asked");
    options.backlog_timeout = Duration::from_secs(3);
    let pool = Pool::start(options).await.unwrap();
    let error = get(&pool, "/hello").await.unwrap_err();
    assert!(matches!(error, DispatchError::Overloaded { .. }), "{error}");
    let status = pool.status();
    assert!((2..20).contains(&status.retired), "{} retired", status.retired);
    assert_eq!((status.requests, status.crashes), (0, 0));
}

#[tokio::test]
async fn a_failed_snapshot_is_a_separate_start_error() {
    let error = Pool::start(misbehaving(Model::Snapshot, 2, "retire-at-boot")).await.unwrap_err();
    let StartError::NoSnapshot { why } = &error else { panic!("{error}") };
    assert_eq!(why, "fake-worker: a thread was left running");
}

#[tokio::test]
async fn an_unforkable_zygote_differs_from_an_ended_script() {
    for model in [Model::Fork, Model::Snapshot] {
        let error = Pool::start(misbehaving(model, 1, "unfit")).await.unwrap_err();
        let StartError::Unfit { why } = &error else { panic!("{error}") };
        assert_eq!(why, "fake-worker: a thread was left running");
        let error = Pool::start(misbehaving(model, 1, "end-early")).await.unwrap_err();
        let StartError::Boot { output } = &error else { panic!("{error}") };
        assert_eq!(output, "fake-worker: the script took no request");
    }
    let error = Pool::start(misbehaving(Model::Fork, 1, "refuse-to-start")).await.unwrap_err();
    assert!(matches!(error, StartError::Zygote { .. }), "{error}");
}

fn warm_up(path: &str) -> Request<()> {
    Request::get(path).header("host", "localhost").extension(context()).body(()).unwrap()
}

#[tokio::test]
async fn a_zygote_that_boots_warms_up_with_requests_marked_as_such() {
    for (model, warms) in [(Model::Fork, true), (Model::Snapshot, true), (Model::Request, false)] {
        let mut options = in_model(model, 1);
        options.warm_up = vec![warm_up("/"), warm_up("/news?page=2")];
        let pool = Pool::start(options).await.unwrap();
        let warmed = text(get(&pool, "/warmed").await.unwrap()).await;
        let seen: Vec<&str> = warmed
            .lines()
            .filter(|line| {
                ["REQUEST_URI=", "HEARTH_WARM_UP", "HTTP_HOST"]
                    .iter()
                    .any(|name| line.starts_with(name))
            })
            .collect();
        let one = |uri| [uri, "HTTP_HOST=localhost", "HEARTH_WARM_UP=1"];
        let both = [one("REQUEST_URI=/"), one("REQUEST_URI=/news?page=2")].concat();
        assert_eq!(seen, if warms { both } else { Vec::new() }, "{model:?}");
    }
}

#[tokio::test]
async fn a_large_warm_up_does_not_deadlock_with_zygote_output() {
    let mut options = misbehaving(Model::Snapshot, 1, "chatty");
    options.warm_up = vec![warm_up("/"); 3000];
    let pool = Pool::start(options).await.unwrap();
    assert_eq!(text(get(&pool, "/hello").await.unwrap()).await, "hello");
}

#[tokio::test]
async fn requests_that_wait_time_out_even_while_the_application_boots() {
    let folder = tempfile::tempdir().unwrap();
    let boots = folder.path().join("boots");
    let mut options = in_model(Model::Snapshot, 1);
    options.backlog_timeout = Duration::from_millis(200);
    options.env = vec![("HEARTH_TEST_BOOTS".into(), boots.display().to_string())];
    let pool = Pool::start(options).await.unwrap();
    // The next one boots for as long as this file exists.
    std::fs::write(&boots, "").unwrap();
    crate::lifecycle::kill_zygote(&format!("HEARTH_TEST_BOOTS={}", boots.display()));
    eventually("the loss is seen", || pool.status().crashes == 1).await;
    let answer = tokio::time::timeout(Duration::from_secs(30), get(&pool, "/hello")).await;
    let error = answer.expect("it does not wait for the boot").unwrap_err();
    assert!(matches!(error, DispatchError::Overloaded { .. }), "{error}");
}
