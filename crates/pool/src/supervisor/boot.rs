//! The boot of one worker: from its fork until it accepts requests, or until its time is up.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::lease::Release;
use crate::shared::{Command, Shared};
use crate::status::WorkerState;
use crate::worker::{Event, Gone, Worker};

/// Waits until a new worker accepts requests, then adds it to the pool.
pub(super) async fn boot(shared: Arc<Shared>, mut worker: Box<Worker>) {
    let slot = worker.info.slot;
    let booting = async {
        loop {
            match worker.next().await {
                Ok(Event::Hello { version: wire::VERSION, pid, .. }) => {
                    // It may arrive before the zygote's SPAWNED, and a worker in use has a process id.
                    worker.info.pid.store(pid, Ordering::Relaxed);
                }
                Ok(Event::Ready) => return Ok(()),
                Ok(other) => return Err(format!("unexpected frame {other:?}")),
                Err(Gone::Closed) => return Err(String::new()),
                Err(Gone::Malformed(malformed)) => return Err(malformed.to_string()),
            }
        }
    };
    let limit = shared.options.boot_timeout;
    let result = shared
        .clock
        .timeout(limit, booting)
        .await
        .unwrap_or_else(|_elapsed| Err(format!("not ready within {limit:?}")));
    match result {
        Ok(()) => {
            worker.ready = true;
            worker.info.life.set_state(WorkerState::Idle);
            shared.release(worker, Release::Booted);
            shared.command(Command::Booted { slot });
        }
        Err(why) => {
            let how = crate::info::how_it_ended(&worker.info, &shared.clock);
            let why = if why.is_empty() { how.await } else { why };
            worker.info.set_gone(shared.now());
            shared.command(Command::BootFailed { info: Arc::clone(&worker.info), why });
        }
    }
}
