//! Reports of progress while bytes move, and the end of a request whose bytes do not move.

use std::sync::Arc;
use std::time::Duration;

use crate::calls::{Far, Flow};
use crate::error::{Failure, Kind};
use crate::in_flight::InFlight;
use crate::io::Io;
use crate::progress::Track;

/// The shortest interval between two reports of progress.
const INTERVAL: Duration = Duration::from_millis(50);

pub(super) async fn idle(track: &Track, limit: Option<Duration>) -> Failure {
    let Some(limit) = limit else { return std::future::pending().await };
    track.idle(limit).await;
    let what = format!("Nothing came or went for {} milliseconds", limit.as_millis());
    Failure::new(Kind::IdleTimeout, what)
}

/// Reports progress while bytes move. Returns when the caller cancels.
pub(super) async fn report_progress(
    io: &Arc<Io>,
    in_flight: &Arc<InFlight>,
    track: &Arc<Track>,
    told: &mut Far,
) -> Failure {
    if in_flight.spec.extras.as_ref().is_none_or(|extras| extras.progress.is_none()) {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(INTERVAL).await;
        let far = track.far();
        if far != *told {
            *told = far;
            if let Err(failure) = report_once(io, in_flight, track).await {
                return failure;
            }
        }
    }
}

pub(super) async fn report_once(
    io: &Arc<Io>,
    in_flight: &Arc<InFlight>,
    track: &Arc<Track>,
) -> Result<(), Failure> {
    let Some(progress) = in_flight.spec.extras.as_ref().and_then(|extras| extras.progress) else {
        return Ok(());
    };
    let (caller, far) = (Arc::clone(in_flight), track.far());
    let threaded = in_flight.spec.threaded;
    let _held = track.hold();
    let said = io
        .runtime
        .callbacks
        .ask(threaded, move || progress.call(caller.request().as_ref(), far))
        .await;
    if said == Some(Flow::Abort) { Err(aborted(in_flight)) } else { Ok(()) }
}

/// The error of a callback that has cancelled.
pub(crate) fn aborted(in_flight: &InFlight) -> Failure {
    in_flight.abort();
    Failure::new(Kind::Aborted, "The request was aborted")
}
