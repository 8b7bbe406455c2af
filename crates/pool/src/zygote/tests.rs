//! A zygote that is asked for more than fits into its socket, and one that is stopped.

use std::num::NonZeroUsize;

use super::*;
use crate::Model;

fn options() -> Options {
    let patience = Duration::from_secs(30);
    Options {
        program: testkit::fake_worker(),
        model: Model::Request,
        warm_up: Vec::new(),
        rehearse: false,
        verify_restores: 0.0,
        sandbox: None,
        worker_script: None,
        entry: None,
        directory: "/".into(),
        run_dir: std::env::temp_dir(),
        ini: Vec::new(),
        env: Vec::new(),
        hidden: Vec::new(),
        identity: None,
        workers: NonZeroUsize::MIN,
        scaling: None,
        backlog: 0,
        backlog_timeout: patience,
        backlog_target: None,
        request_timeout: None,
        boot_timeout: patience,
        max_requests: None,
        memory_limit: None,
        slow: None,
        events: None,
        boot_files: None,
        boot_trace: None,
        purges: None,
    }
}

fn zygote_clock() -> Arc<Clock> {
    Arc::new(Clock::new())
}

/// More frames than the socket has room for, and for their responses.
#[tokio::test]
async fn a_zygote_that_is_asked_much_at_once_answers_all_of_it() {
    const FRAMES: u32 = 3_000;
    const LIMIT: Duration = Duration::from_mins(1);
    let mut zygote = Zygote::start(&options(), zygote_clock()).await.unwrap();
    let (mut current, mut answered, mut refused) = (0, 0, 0);
    let talking = async {
        while answered < FRAMES {
            while current < FRAMES {
                let frame = current + 1;
                // A worker exits when its socket is closed.
                let sent = if frame % 50 == 0 {
                    zygote.spawn(frame).map(drop)
                } else {
                    zygote.trace(frame)
                };
                match sent {
                    Ok(()) => current = frame,
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                        refused += 1;
                        break;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            let frame = answered + 1;
            match zygote.next().await.unwrap() {
                Event::Exited { .. } => continue,
                Event::Spawned { slot, .. } if frame % 50 == 0 => assert_eq!(slot, frame),
                Event::Stack { pid, .. } => assert_eq!(pid, frame),
                other => panic!("{other:?} for frame {frame}"),
            }
            answered = frame;
        }
    };
    tokio::time::timeout(LIMIT, talking).await.expect("every frame is answered");
    assert!(refused > 0, "more frames than there is room for");
    assert_eq!(zygote.owed(), 0);
    zygote.end(LIMIT).await;
}

#[tokio::test]
async fn a_stopped_zygote_owes_an_answer_and_holds_up_nothing() {
    const LIMIT: Duration = Duration::from_mins(1);
    let mut zygote = Zygote::start(&options(), zygote_clock()).await.unwrap();
    assert_eq!(zygote.silence(), Duration::ZERO);
    let pid = rustix::process::Pid::from_raw(zygote.pid().cast_signed()).unwrap();
    rustix::process::kill_process(pid, Signal::STOP).unwrap();
    let full = loop {
        if let Err(error) = zygote.trace(1) {
            break error;
        }
    };
    assert_eq!(full.kind(), std::io::ErrorKind::WouldBlock);
    assert!(zygote.owed() > Zygote::UNANSWERED, "as many SPAWN frames fit as may wait");
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(zygote.silence() >= Duration::from_millis(10));
    let ending = zygote.end(Duration::from_millis(100));
    tokio::time::timeout(LIMIT, ending).await.expect("a stopped process can be killed");
}
