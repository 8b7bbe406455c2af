//! Webhooks on their way to the application.
//!
//! Invariants
//! - A delivery ends in time: it has failed without an answer within [`PATIENCE`].

use std::collections::HashMap;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use bytes::Bytes;
use channels::webhook::{
    self, Carrier, Delivery, Endpoint, Endpoints, Intake, Keeping, OpenError, Outcome, Queue,
    Spool, Topic,
};
use channels::{App, Apps};
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Method, Request};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::caller::{Caller, Reply};
use crate::config::{NamedApp, Settings};
use crate::failure::Failure;

/// The time that the application may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The webhooks that are delivered until the end.
#[derive(Debug)]
pub(super) struct Webhooks {
    /// The queue of channel events.
    pub(super) intake: Arc<Intake>,
    caller: Arc<Caller>,
    woken: Arc<Notify>,
    tasks: JoinSet<webhook::Report>,
    end: CancellationToken,
}

impl Webhooks {
    /// Returns the webhooks for these endpoints.
    pub(super) fn new(endpoints: Arc<OfApps>, caller: Arc<Caller>) -> Self {
        let woken = Arc::new(Notify::new());
        let wake = Arc::clone(&woken);
        let intake = Arc::new(Intake::new(endpoints, move || wake.notify_one()));
        Self { intake, caller, woken, tasks: JoinSet::new(), end: CancellationToken::new() }
    }

    /// Starts to deliver.
    pub(super) fn start(
        &mut self,
        apps: Arc<dyn Apps>,
        settings: &Settings,
    ) -> Result<(), Failure> {
        let (keeping, kept) = match folder(settings) {
            None => (Keeping::Nowhere, Vec::new()),
            Some(folder) => match Spool::open(&folder) {
                Ok((spool, kept)) => (Keeping::Here(spool), kept),
                // The server before this one drains.
                Err(OpenError::InUse { .. }) => (Keeping::Soon(folder), Vec::new()),
                Err(error) => {
                    let hint = "choose a folder of its own with `realtime.webhook_spool`, or `off`";
                    return Err(Failure::caused(&error, hint));
                }
            },
        };
        let queue = Queue::new(webhook::Options::default(), kept);
        self.tasks.spawn(webhook::run(
            queue,
            keeping,
            Arc::clone(&self.intake),
            Arc::clone(&self.woken),
            apps,
            Arc::new(Post { caller: Arc::clone(&self.caller) }),
            self.end.clone().cancelled_owned(),
        ));
        Ok(())
    }

    /// Delivers the rest, for as long as the engine's patience lasts.
    pub(super) async fn end(mut self) {
        self.end.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            if let Ok(report) = ended {
                tracing::info!(delivered = report.delivered, "webhooks ended");
            }
        }
    }
}

/// Returns the folder that keeps webhooks for the next start.
fn folder(settings: &Settings) -> Option<PathBuf> {
    match &settings.realtime.webhook_spool.0 {
        Some(named) => named.clone(),
        None => settings.server.run_dir.0.as_ref().map(|folder| folder.join("webhooks")),
    }
}

fn endpoints(named: &NamedApp) -> Arc<[Endpoint]> {
    let mut topics: Vec<Topic> =
        named.webhook_events.iter().filter_map(|event| Topic::of(event.0)).collect();
    topics.dedup();
    let endpoint = |target: String| Endpoint {
        target: target.into(),
        topics: topics.clone(),
        channels: Vec::new(),
    };
    named.webhooks.iter().map(|target| endpoint(target.to_string())).collect()
}

/// The targets of webhooks by application.
#[derive(Debug, Default)]
pub(super) struct OfApps {
    fixed: HashMap<Arc<str>, Arc<[Endpoint]>>,
    looked_up: RwLock<HashMap<Arc<str>, Arc<[Endpoint]>>>,
}

impl OfApps {
    /// Returns the targets of the applications in the settings.
    pub(super) fn new(named: &[NamedApp]) -> Self {
        let wanting = named.iter().filter(|named| !named.webhooks.is_empty());
        let fixed = wanting.map(|named| (Arc::clone(&named.app.id), endpoints(named))).collect();
        Self { fixed, looked_up: RwLock::default() }
    }

    /// Returns whether no application has webhooks.
    pub(super) fn is_empty(&self) -> bool {
        self.fixed.is_empty()
    }

    /// Sets the targets of a looked-up application.
    pub(super) fn learn(&self, named: &NamedApp) {
        if named.webhooks.is_empty() {
            return self.forget(&named.app.id);
        }
        let mut looked_up = self.looked_up.write().expect("no holder panics");
        looked_up.insert(Arc::clone(&named.app.id), endpoints(named));
    }

    /// Removes an application that is no longer known.
    pub(super) fn forget(&self, id: &str) {
        self.looked_up.write().expect("no holder panics").remove(id);
    }
}

impl Endpoints for OfApps {
    fn of(&self, app: &App) -> Arc<[Endpoint]> {
        let fixed = self.fixed.get(&app.id).cloned();
        fixed.unwrap_or_else(|| {
            let looked_up = self.looked_up.read().expect("no holder panics");
            looked_up.get(&app.id).cloned().unwrap_or_default()
        })
    }
}

#[derive(Debug)]
struct Post {
    caller: Arc<Caller>,
}

impl Carrier for Post {
    fn carry(&self, delivery: Delivery) -> Pin<Box<dyn Future<Output = Outcome> + Send>> {
        let caller = Arc::clone(&self.caller);
        Box::pin(async move {
            let target = Arc::clone(&delivery.target);
            let attempt = async {
                let request = request(&delivery)?;
                caller.call(&delivery.target, PATIENCE, request, None).await
            };
            match tokio::time::timeout(PATIENCE, attempt).await {
                Ok(Ok(Reply { status: 200..300, .. })) => Outcome::Taken,
                Ok(Ok(Reply { status, .. })) => {
                    tracing::warn!(%target, status, "webhook refused");
                    Outcome::Failed
                }
                Ok(Err(error)) => {
                    tracing::warn!(%target, error, "webhook not delivered");
                    Outcome::Failed
                }
                Err(_) => {
                    tracing::warn!(%target, "webhook not answered in time");
                    Outcome::Failed
                }
            }
        })
    }
}

fn request(delivery: &Delivery) -> Result<Request<Bytes>, String> {
    let field = |text: &str| {
        HeaderValue::from_str(text).map_err(|_unfit| "a key that is fit for no field".to_owned())
    };
    let mut request = Request::new(Bytes::copy_from_slice(delivery.body.as_bytes()));
    *request.method_mut() = Method::POST;
    let fields = request.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    fields.insert(USER_AGENT, HeaderValue::from_static("hearth (webhook)"));
    fields.insert("x-pusher-key", field(&delivery.app.key)?);
    fields.insert("x-pusher-signature", field(&delivery.signature)?);
    Ok(request)
}
