//! Other nodes, by the adapter that the settings name.

use std::hash::{BuildHasher as _, RandomState};

use channels::adapter::{self, Broker, Joined, Report, nats, redis};
use channels::{Channels, NodeId, hub};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::config::{AdapterUrl, Settings};
use crate::failure::Failure;

/// The subject after the prefix, which all nodes of an installation subscribe to. Other versions of the packets use other subjects.
const SUBJECT: &str = "channels.1";

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
    ) -> Result<Option<Self>, Failure> {
        let hint = "correct `realtime.adapter` (`--adapter`)";
        let subject = format!("{}.{SUBJECT}", settings.realtime.adapter_prefix.0);
        let ca = settings.realtime.adapter_ca.as_deref();
        let authorities = ca.map(std::fs::read).transpose().map_err(|error| {
            let hint =
                "correct `realtime.adapter_ca`, or leave it out: the system's authorities count";
            Failure::caused_by("cannot read the authorities of the adapter", &error, hint)
        })?;
        let of_redis = |servers: &[String], sentinel| -> Result<Box<dyn Broker>, Failure> {
            let options = redis::Options {
                servers: servers.to_vec(),
                sentinel,
                subject: subject.clone(),
                authorities: authorities.clone(),
            };
            let broker =
                redis::Redis::new(&options).map_err(|error| Failure::caused(&error, hint))?;
            Ok(Box::new(broker))
        };
        let broker: Box<dyn Broker> = match &settings.realtime.adapter {
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
                Box::new(broker)
            }
        };
        // Keyed at random by the standard library: 64 bits that no other node has.
        let me = NodeId(RandomState::new().hash_one(std::process::id()));
        let end = CancellationToken::new();
        let ending = end.clone().cancelled_owned();
        let (node, joined) = adapter::start(
            channels.clone(),
            broker,
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
