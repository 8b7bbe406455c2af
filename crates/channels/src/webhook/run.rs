//! The webhook task: moves events into the queue, records into the spool, and batches to the application.

use std::fmt;
use std::future::Future;
use std::mem;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::{Notify, oneshot};
use tokio::task::{self, JoinSet};
use tokio::time::{Instant, sleep_until};
use tracing::{error, info, warn};

use super::intake::Intake;
use super::queue::{Batch, BatchId, Outcome, Queue, Report};
use super::spool::{OpenError, Spool};
use crate::app::App;
use crate::apps::{AppRef, Apps};
use crate::auth;
use crate::moment::{Moment, UnixTime};

/// One webhook to send: a POST with `Content-Type: application/json`, the application's key as `X-Pusher-Key`, and
/// `X-Pusher-Signature`.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The application.
    pub app: Arc<App>,
    /// Target of the endpoint: [`target`](super::Endpoint::target).
    pub target: Arc<str>,
    /// Body: JSON.
    pub body: Arc<str>,
    /// Signature of the body: HMAC-SHA256 in hexadecimal.
    pub signature: String,
}

/// Sends webhooks to the application, by HTTP or through its own workers. It receives at most
/// two deliveries of an endpoint at a time, a new one and a retry, and must limit their duration.
pub trait Carrier: fmt::Debug + Send + Sync + 'static {
    /// Sends one delivery.
    fn carry(&self, delivery: Delivery) -> Pin<Box<dyn Future<Output = Outcome> + Send>>;
}

/// Minimum time between two syncs of the spool, and between two attempts to reopen a failed file.
const SYNC: Duration = Duration::from_secs(1);
const REPAIR: Duration = Duration::from_secs(30);

/// Interval of checks for a folder that another process is using.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Sends the events of `intake` until `ending` completes, then as long as events are left,
/// [`Options::linger`](super::Options::linger) at most. The hub must end first, so that the events caused by its end
/// are sent or stored.
///
/// `woken` must be notified by the intake's `wake`. The events of the spool are in `queue` already.
pub async fn run(
    mut queue: Queue,
    keeping: impl Into<Keeping>,
    intake: Arc<Intake>,
    woken: Arc<Notify>,
    apps: Arc<dyn Apps>,
    carrier: Arc<dyn Carrier>,
    ending: impl Future<Output = ()>,
) -> Report {
    let began = Instant::now();
    let clock =
        || Moment::from_millis(u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX));
    let mut ending = pin!(ending);
    let mut last = None;
    let mut disk = Disk::new(keeping.into());
    let mut flights: JoinSet<(BatchId, Outcome)> = JoinSet::new();
    loop {
        queue.take(intake.take(), clock());
        let step = queue.poll(clock(), UnixTime::from(SystemTime::now()));
        disk.keep(step.append, &mut queue, clock()).await;
        for batch in step.send {
            flights.spawn(carry(batch, Arc::clone(&apps), Arc::clone(&carrier)));
        }
        if last.is_some_and(|last| queue.is_empty() || Instant::now() >= last) {
            break;
        }
        // Events of another process may be due at once.
        let step_wake = if disk.adopted() { Some(clock()) } else { step.wake };
        let wake = step_wake.map(|at| began + at.since(Moment::default()));
        let wake = [wake, disk.wake(), last].into_iter().flatten().min();
        tokio::select! {
            () = woken.notified() => {}
            Some(flight) = flights.join_next() => {
                let (id, outcome) = flight.expect("a send task neither panics nor is cancelled");
                queue.done(id, outcome, clock());
            }
            () = until(wake) => {}
            () = &mut ending, if last.is_none() => {
                queue.end(clock());
                last = Some(Instant::now() + queue.linger());
            }
        }
    }
    disk.close().await;
    queue.report()
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

async fn carry(batch: Batch, apps: Arc<dyn Apps>, carrier: Arc<dyn Carrier>) -> (BatchId, Outcome) {
    let id = batch.id;
    // A separate task contains a panic of the carrier.
    let mut attempt = JoinSet::new();
    attempt.spawn(async move {
        let (sender, receiver) = oneshot::channel();
        let answer = Box::new(move |app| {
            // The receiver is closed while the process stops.
            let _unheard: Result<(), _> = sender.send(app);
        });
        apps.ask(AppRef::Id(&batch.app), answer);
        let app = match receiver.await {
            Ok(Ok(Some(app))) => app,
            Ok(Ok(None)) => return Outcome::Gone,
            // An application whose look-up fails may be available again later.
            Ok(Err(_)) | Err(_) => return Outcome::Failed,
        };
        let signature = auth::sign(&app.secret, batch.body.as_bytes());
        carrier.carry(Delivery { app, target: batch.target, body: batch.body, signature }).await
    });
    (id, attempt.join_next().await.and_then(Result::ok).unwrap_or(Outcome::Failed))
}

/// The storage of webhooks across restarts.
#[derive(Debug)]
pub enum Keeping {
    /// Webhooks are not stored.
    Nowhere,
    /// Webhooks are stored in this spool; its events are in the queue already.
    Here(Spool),
    /// Webhooks are stored in this folder once the process that uses it ends, and in memory until then. The events
    /// left by that process are sent afterwards.
    Soon(PathBuf),
}

impl From<Option<Spool>> for Keeping {
    fn from(spool: Option<Spool>) -> Self {
        spool.map_or(Self::Nowhere, Self::Here)
    }
}

/// The spool and its next maintenance. Disk operations run on blocking threads.
struct Disk {
    spool: Option<Spool>,
    /// A folder still used by another process, and when to check it again.
    soon: Option<(PathBuf, Instant)>,
    adopted: bool,
    sync: Option<Instant>,
    repair: Option<Instant>,
}

impl Disk {
    fn new(keeping: Keeping) -> Self {
        let (spool, soon) = match keeping {
            Keeping::Nowhere => (None, None),
            Keeping::Here(spool) => (Some(spool), None),
            Keeping::Soon(folder) => (None, Some((folder, Instant::now()))),
        };
        Self { spool, soon, adopted: false, sync: None, repair: None }
    }

    /// Returns whether the queue received the events of another process since the last call.
    fn adopted(&mut self) -> bool {
        mem::take(&mut self.adopted)
    }

    /// Opens the folder if no other process uses it any more.
    async fn take_over(&mut self, queue: &mut Queue, now: Moment) {
        let Some((folder, at)) = self.soon.take_if(|(_, at)| *at <= Instant::now()) else { return };
        let place = folder.clone();
        match task::spawn_blocking(move || Spool::open(&place)).await {
            Ok(Ok((spool, kept))) => {
                info!(events = kept.len(), "webhooks left by an earlier process are sent now");
                queue.adopt(kept, now);
                self.spool = Some(spool.into_damaged());
                self.adopted = true;
            }
            Ok(Err(OpenError::InUse { .. })) => self.soon = Some((folder, at + LOOK_AGAIN)),
            Ok(Err(failure)) => {
                warn!(reason = %failure, "webhooks cannot be stored for a restart; retrying");
                self.soon = Some((folder, at + REPAIR));
            }
            Err(_broke) => {
                error!("webhooks cannot be stored for a restart: the file operation panicked");
            }
        }
    }

    fn wake(&self) -> Option<Instant> {
        let soon = self.soon.as_ref().map(|(_, at)| *at);
        [self.sync, self.repair, soon].into_iter().flatten().min()
    }

    async fn keep(&mut self, append: Vec<u8>, queue: &mut Queue, moment: Moment) {
        self.take_over(queue, moment).await;
        let Some(mut spool) = self.spool.take() else { return };
        let now = Instant::now();
        let was_sound = spool.is_sound();
        let sync = self.sync.is_some_and(|at| at <= now);
        let repair = self.repair.is_none_or(|at| at <= now);
        self.repair = self.repair.filter(|at| *at > now);
        let replacement =
            (spool.wants_replacement(queue.bytes()) && repair).then(|| queue.snapshot());
        if append.is_empty() && replacement.is_none() && !sync {
            self.spool = Some(spool);
            return;
        }
        let job = task::spawn_blocking(move || {
            let outcome = match replacement {
                // The rewritten file includes the records to append.
                Some(records) => spool.replace(&records),
                None if append.is_empty() => Ok(()),
                None => spool.append(&append),
            };
            let outcome = outcome.and_then(|()| if sync { spool.sync() } else { Ok(()) });
            (spool, outcome)
        });
        let Ok((spool, outcome)) = job.await else {
            error!("webhooks are not stored any more: the file operation panicked");
            return;
        };
        match (outcome, was_sound, spool.is_sound()) {
            (Err(failure), true, _) => {
                warn!(reason = %failure, "webhooks cannot be stored for a restart; they are still sent");
            }
            (_, false, true) => info!("webhooks are stored again"),
            _ => {}
        }
        self.sync =
            spool.is_dirty().then(|| self.sync.filter(|at| *at > now).unwrap_or(now + SYNC));
        self.repair =
            (!spool.is_sound() || spool.wants_replacement(queue.bytes())).then_some(now + REPAIR);
        self.spool = Some(spool);
    }

    async fn close(&mut self) {
        let Some(mut spool) = self.spool.take() else { return };
        let outcome = task::spawn_blocking(move || spool.sync()).await;
        if !matches!(outcome, Ok(Ok(()))) {
            warn!("the webhooks file could not be synced");
        }
    }
}

#[cfg(test)]
mod tests;
