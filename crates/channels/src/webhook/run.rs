//! The task that tells: it moves what happened into the queue, bytes into the spool, and batches to the application.

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

/// One webhook, as it is to be sent: a POST with `Content-Type: application/json`, `X-Pusher-Key: ` the application's key, and `X-Pusher-Signature`.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Whose.
    pub app: Arc<App>,
    /// The endpoint's [`target`](super::Endpoint::target).
    pub target: Arc<str>,
    /// JSON.
    pub body: Arc<str>,
    /// Of the body: HMAC-SHA256 in hexadecimal digits.
    pub signature: String,
}

/// Brings webhooks to the application, by HTTP or into its own workers. It is asked for one delivery of an endpoint at a time, and sets a limit to the
/// time that takes.
pub trait Carrier: fmt::Debug + Send + Sync + 'static {
    /// Brings one.
    fn carry(&self, delivery: Delivery) -> Pin<Box<dyn Future<Output = Outcome> + Send>>;
}

/// How often at most what was written is made safe from a loss of power, and a file that failed is tried again.
const SYNC: Duration = Duration::from_secs(1);
const REPAIR: Duration = Duration::from_secs(30);

/// How often a folder is looked at that another process has.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Tells what comes in by `intake`, until `ending` is over and then as long as it has something to tell, [`Options::linger`](super::Options::linger)
/// at most: the hub ends first, so that what its end brings about is told or kept.
///
/// `woken` is what the intake's `wake` notifies. What the spool had kept is in `queue` already.
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
        // What was kept by another process may be due at once.
        let step_wake = if disk.adopted() { Some(clock()) } else { step.wake };
        let wake = step_wake.map(|at| began + at.since(Moment::default()));
        let wake = [wake, disk.wake(), last].into_iter().flatten().min();
        tokio::select! {
            () = woken.notified() => {}
            Some(flight) = flights.join_next() => {
                let (id, outcome) = flight.expect("a flight neither panics nor is cancelled");
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
    // In a task of its own: a carrier that panics has failed, and no more.
    let mut attempt = JoinSet::new();
    attempt.spawn(async move {
        let (sender, receiver) = oneshot::channel();
        let answer = Box::new(move |app| {
            // Nobody listens any more when the process ends.
            let _unheard: Result<(), _> = sender.send(app);
        });
        apps.ask(AppRef::Id(&batch.app), answer);
        // An application that nobody knows at the moment may be known again.
        let Ok(Ok(Some(app))) = receiver.await else { return Outcome::Failed };
        let signature = auth::sign(&app.secret, batch.body.as_bytes());
        carrier.carry(Delivery { app, target: batch.target, body: batch.body, signature }).await
    });
    (id, attempt.join_next().await.and_then(Result::ok).unwrap_or(Outcome::Failed))
}

/// Where webhooks outlive the process.
#[derive(Debug)]
pub enum Keeping {
    /// Nowhere.
    Nowhere,
    /// Here; what was kept is in the queue already.
    Here(Spool),
    /// In this folder, as soon as the process that has it ends: until then in memory. What that one leaves is told then.
    Soon(PathBuf),
}

impl From<Option<Spool>> for Keeping {
    fn from(spool: Option<Spool>) -> Self {
        spool.map_or(Self::Nowhere, Self::Here)
    }
}

/// The spool, and when it is next to be looked after. Disk calls run on threads that may wait.
struct Disk {
    spool: Option<Spool>,
    /// A folder that another process still has, and when to look again.
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

    /// Did the queue get what another process had left, since this was asked last?
    fn adopted(&mut self) -> bool {
        mem::take(&mut self.adopted)
    }

    /// Takes the folder over, if it is free now.
    async fn take_over(&mut self, queue: &mut Queue, now: Moment) {
        let Some((folder, at)) = self.soon.take_if(|(_, at)| *at <= Instant::now()) else { return };
        let place = folder.clone();
        match task::spawn_blocking(move || Spool::open(&place)).await {
            Ok(Ok((spool, kept))) => {
                info!(events = kept.len(), "webhooks of an earlier process are taken over");
                queue.adopt(kept, now);
                self.spool = Some(spool.into_unsound());
                self.adopted = true;
            }
            Ok(Err(OpenError::InUse { .. })) => self.soon = Some((folder, at + LOOK_AGAIN)),
            Ok(Err(failure)) => {
                warn!(reason = %failure, "webhooks are not kept for a restart; trying again");
                self.soon = Some((folder, at + REPAIR));
            }
            Err(_broke) => error!("webhooks are not kept for a restart: their file broke"),
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
                // It has what is to be appended already.
                Some(records) => spool.replace(&records),
                None if append.is_empty() => Ok(()),
                None => spool.append(&append),
            };
            let outcome = outcome.and_then(|()| if sync { spool.sync() } else { Ok(()) });
            (spool, outcome)
        });
        let Ok((spool, outcome)) = job.await else {
            error!("webhooks are not kept any more: their file broke");
            return;
        };
        match (outcome, was_sound, spool.is_sound()) {
            (Err(failure), true, _) => {
                warn!(reason = %failure, "webhooks are not kept for a restart; they are sent all the same");
            }
            (_, false, true) => info!("webhooks are kept again"),
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
            warn!("the webhooks' file could not be synced");
        }
    }
}

#[cfg(test)]
mod tests;
