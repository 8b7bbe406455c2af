//! Other nodes, by the adapter that the settings name.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use channels::adapter::{self, Broker, Joined, LogLink, LogOptions, Report, nats, redis};
use channels::{Channels, NodeId, hub};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::config::{AdapterUrl, NamedApp, Settings};
use crate::failure::Failure;

/// The subject after the prefix, which all nodes of an installation subscribe to. Other versions of the packets use other subjects.
const SUBJECT: &str = "channels.1";

/// A broker, and its log if histories are shared.
type Link = (Box<dyn Broker>, Option<LogLink>);

/// Returns the bounds of the log; `None` if no application can have a history, or each node keeps its own.
fn log_options(settings: &Settings, named: &[NamedApp]) -> Option<LogOptions> {
    let bytes = settings.realtime.history_log?.0;
    let of_all = settings.realtime.lookup.as_ref();
    let of_all = of_all.map(|_| settings.realtime.apps.adopted("", "", "").app.history);
    // An application that is looked up may have a history of its own.
    let looked_up = of_all.map(|history| history.map_or(LOOKED_UP_AGE, |history| history.age));
    let ages = named.iter().filter_map(|named| Some(named.app.history.as_ref()?.age));
    let age = ages.chain(looked_up).max()?;
    Some(LogOptions { age, bytes, wait: settings.realtime.history_wait })
}

/// The age of entries for applications that are looked up and have no common setting: the default of `history_age`.
const LOOKED_UP_AGE: Duration = Duration::from_mins(5);

/// This node in its cluster.
#[derive(Debug)]
pub(super) struct Nodes {
    joined: Joined,
    tasks: JoinSet<Report>,
    end: CancellationToken,
}

impl Nodes {
    /// Connects these channels with those of other nodes; none where the settings name no adapter.
    pub(super) async fn join(
        channels: &Channels,
        settings: &Settings,
        named: &[NamedApp],
    ) -> Result<Option<Self>, Failure> {
        let hint = "correct `realtime.adapter` (`--adapter`)";
        let subject = format!("{}.{SUBJECT}", settings.realtime.adapter_prefix.0);
        let ca = settings.realtime.adapter_ca.as_deref();
        let authorities = ca.map(std::fs::read).transpose().map_err(|error| {
            let hint =
                "correct `realtime.adapter_ca`, or leave it out: the system's authorities count";
            Failure::caused_by("cannot read the authorities of the adapter", &error, hint)
        })?;
        // Keyed at random by the standard library: 64 bits that no other node has.
        let me = NodeId(RandomState::new().hash_one(std::process::id()));
        let shared = log_options(settings, named);
        let of_redis = |servers: &[String], sentinel| -> Result<Link, Failure> {
            let options = redis::Options {
                servers: servers.to_vec(),
                sentinel,
                subject: subject.clone(),
                authorities: authorities.clone(),
            };
            let invalid = |error: redis::InvalidOptions| Failure::caused(&error, hint);
            let broker = redis::Redis::new(&options).map_err(invalid)?;
            let log = shared.as_ref().map(|log| redis::log(&options, me, log)).transpose();
            Ok((Box::new(broker), log.map_err(invalid)?))
        };
        let (broker, log): Link = match &settings.realtime.adapter {
            AdapterUrl::Memory => return Ok(None),
            AdapterUrl::Redis(servers) => of_redis(servers, None)?,
            AdapterUrl::Sentinel { servers, service, tls, user, password } => {
                let sentinel = redis::Sentinel {
                    service: service.clone(),
                    user: user.clone(),
                    password: password.clone(),
                    tls: *tls,
                };
                of_redis(servers, Some(sentinel))?
            }
            AdapterUrl::Nats(servers) => {
                let options = nats::Options {
                    servers: servers.clone(),
                    subject,
                    authorities: settings.realtime.adapter_ca.clone(),
                };
                let broker = nats::Nats::new(&options)
                    .await
                    .map_err(|error| Failure::caused(&error, hint))?;
                let log = shared.as_ref().map(|log| nats::log(&broker, me, log));
                (Box::new(broker), log)
            }
        };
        let end = CancellationToken::new();
        let ending = end.clone().cancelled_owned();
        let (node, joined) = adapter::start(
            channels.clone(),
            broker,
            log.zip(shared),
            me,
            adapter::Options::default(),
            hub::now,
            ending,
        );
        let mut tasks = JoinSet::new();
        tasks.spawn(node);
        Ok(Some(Self { joined, tasks, end }))
    }

    /// Waits until this node knows what the others have. A broker that cannot be reached is waited for no longer than others take to notice.
    pub(super) async fn ready(&mut self) {
        let patience = adapter::Options::default().patience;
        if tokio::time::timeout(patience, self.joined.ready()).await.is_err() {
            tracing::warn!(
                "the adapter's broker has not been reached yet: other nodes are not known"
            );
        }
    }

    pub(super) fn report(&self) -> Report {
        self.joined.report()
    }

    /// Leaves the cluster.
    pub(super) async fn end(mut self) {
        self.end.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}
