//! The figures of realtime, for `/status` and `/metrics`.

use super::Realtime;
use crate::ops::status::Status;
use crate::ops::status::realtime::{Application, Looked, Status as RealtimeStatus};
use crate::ops::subsystem::Subsystem;
use channels::hub::{Figures, Reason};
use channels::lookup::Lookup;
use channels::{Counters, Number};

fn looked(lookup: &Lookup) -> Looked {
    let figures = lookup.figures();
    Looked {
        known: lookup.known(),
        waiting: lookup.waiting(),
        found: figures.found.get(),
        absent: figures.absent.get(),
        failed: figures.failed.get(),
        changed: figures.changed.get(),
    }
}

impl Realtime {
    /// Returns realtime's part of `/status`.
    fn part(&self) -> RealtimeStatus {
        let mut applications: Vec<Application> = self
            .channels
            .statistics()
            .all()
            .into_iter()
            .map(|(id, counters)| Application {
                id: id.to_string(),
                connections: counters.connections.get(),
                subscriptions: counters.subscriptions.get(),
                published: counters.published.get(),
                sent: counters.sent.get(),
                received: counters.received.get(),
            })
            .collect();
        applications.sort_by(|a, b| a.id.cmp(&b.id));
        RealtimeStatus {
            sockets: self.hub.figures().sockets,
            channels: self.channels.registry().len(),
            nodes: self.nodes().map(|report| report.nodes),
            lookup: self.lookup.as_deref().map(looked),
            applications,
        }
    }
}

impl Subsystem for Realtime {
    fn status(&self, status: &mut Status) {
        status.realtime = Some(self.part());
    }

    fn metrics(&self) {
        describe_metrics();
        set_metrics(self);
    }
}

/// A figure of the hub: its metric, its description, and its value.
type OfHub = (&'static str, &'static str, fn(&Figures) -> u64);
/// A number of an application's.
type OfApp = (&'static str, &'static str, fn(&Counters) -> &Number);

const HUB_COUNTERS: &[OfHub] = &[
    (
        "hearth_channels_accepted_total",
        "Connections taken by listeners of realtime's own",
        |figures| figures.accepted,
    ),
    ("hearth_channels_upgraded_total", "WebSockets opened", |figures| figures.upgraded),
    ("hearth_channels_delivered_total", "Messages put into queues of sockets", |figures| {
        figures.delivered
    }),
    (
        "hearth_channels_dropped_total",
        "Messages let go because the queue of their socket was full",
        |figures| figures.dropped,
    ),
    ("hearth_channels_writes_total", "Writes to sockets; one may carry many messages", |figures| {
        figures.writes
    }),
    ("hearth_channels_received_bytes_total", "Bytes read from sockets", |figures| figures.bytes_in),
    ("hearth_channels_sent_bytes_total", "Bytes written to sockets", |figures| figures.bytes_out),
    (
        "hearth_channels_blocked_total",
        "Times a socket took less than there was for it",
        |figures| figures.blocked,
    ),
];

const APP_GAUGES: &[OfApp] = &[
    ("hearth_channels_connections", "Sockets open now, by application", |counters| {
        &counters.connections
    }),
    ("hearth_channels_subscriptions", "Subscriptions there are now, by application", |counters| {
        &counters.subscriptions
    }),
];

const APP_COUNTERS: &[OfApp] = &[
    ("hearth_channels_connected_total", "Sockets opened, by application", |counters| {
        &counters.connected
    }),
    (
        "hearth_channels_errors_total",
        "Sockets turned away or closed with an error of the protocol, by application",
        |counters| &counters.closed_with_error,
    ),
    (
        "hearth_channels_messages_received_total",
        "Messages from clients, by application",
        |counters| &counters.received,
    ),
    ("hearth_channels_messages_sent_total", "Messages to clients, by application", |counters| {
        &counters.sent
    }),
    (
        "hearth_channels_published_total",
        "Events published, one for each channel, by application",
        |counters| &counters.published,
    ),
    (
        "hearth_channels_client_events_total",
        "Events that clients published, by application",
        |counters| &counters.client_events,
    ),
    (
        "hearth_channels_signatures_refused_total",
        "Signatures of clients and of calls that were refused, by application",
        |counters| &counters.signatures_refused,
    ),
    (
        "hearth_channels_rate_limited_total",
        "Events refused because there were too many, by application",
        |counters| &counters.rate_limited,
    ),
    ("hearth_channels_subscribed_total", "Subscriptions made, by application", |counters| {
        &counters.subscribed
    }),
    (
        "hearth_channels_subscription_errors_total",
        "Subscriptions refused, by application",
        |counters| &counters.subscription_errors,
    ),
    (
        "hearth_channels_inbox_full_total",
        "Deliveries that an event loop had no room for, by application",
        |counters| &counters.inbox_full,
    ),
    ("hearth_channels_signed_in_total", "Users that signed in, by application", |counters| {
        &counters.signed_in
    }),
    (
        "hearth_channels_recovered_total",
        "Clients that came back and got all they had missed, by application",
        |counters| &counters.recovered,
    ),
    (
        "hearth_channels_not_recovered_total",
        "Clients that came back and could not, by application",
        |counters| &counters.not_recovered,
    ),
];

/// Describes realtime's metrics.
fn describe_metrics() {
    metrics::describe_gauge!("hearth_channels_nodes", "Other nodes that this one hears");
    metrics::describe_gauge!(
        "hearth_channels_broker_connected",
        "1 while the adapter's broker is connected"
    );
    metrics::describe_counter!(
        "hearth_channels_packets_missed_total",
        "Packets of other nodes that were lost on the way"
    );
    metrics::describe_gauge!(
        "hearth_channels_lookup_known",
        "Looked-up applications that are known now"
    );
    metrics::describe_gauge!(
        "hearth_channels_lookup_waiting",
        "Keys and ids of applications that are being asked for"
    );
    metrics::describe_counter!(
        "hearth_channels_lookups_total",
        "Applications asked for, by what came of it: `found`, `absent`, `failed`"
    );
    metrics::describe_counter!(
        "hearth_channels_lookup_changes_total",
        "Looked-up applications that were different, or gone, when they were asked for again"
    );
    metrics::describe_gauge!("hearth_channels_sockets", "Sockets of realtime there are now");
    metrics::describe_gauge!("hearth_channels", "Channels with subscribers or stored events");
    metrics::describe_counter!(
        "hearth_channels_closed_total",
        "Sockets of realtime that ended, by reason"
    );
    for (name, text, _) in HUB_COUNTERS {
        metrics::describe_counter!(*name, *text);
    }
    for (name, text, _) in APP_COUNTERS {
        metrics::describe_counter!(*name, *text);
    }
    for (name, text, _) in APP_GAUGES {
        metrics::describe_gauge!(*name, *text);
    }
}

/// Copies the numbers at the moment of the scrape.
#[expect(clippy::cast_precision_loss, reason = "gauges are floats in Prometheus")]
fn set_metrics(realtime: &Realtime) {
    let figures = realtime.hub.figures();
    metrics::gauge!("hearth_channels_sockets").set(figures.sockets as f64);
    metrics::gauge!("hearth_channels").set(realtime.channels.registry().len() as f64);
    if let Some(report) = realtime.nodes() {
        metrics::gauge!("hearth_channels_nodes").set(report.nodes as f64);
        metrics::gauge!("hearth_channels_broker_connected")
            .set(f64::from(u8::from(report.connected)));
        metrics::counter!("hearth_channels_packets_missed_total").absolute(report.missed);
    }
    if let Some(looked) = realtime.lookup.as_deref().map(looked) {
        metrics::gauge!("hearth_channels_lookup_known").set(looked.known as f64);
        metrics::gauge!("hearth_channels_lookup_waiting").set(looked.waiting as f64);
        let outcomes =
            [("found", looked.found), ("absent", looked.absent), ("failed", looked.failed)];
        for (outcome, count) in outcomes {
            metrics::counter!("hearth_channels_lookups_total", "outcome" => outcome)
                .absolute(count);
        }
        metrics::counter!("hearth_channels_lookup_changes_total").absolute(looked.changed);
    }
    for (name, _, value) in HUB_COUNTERS {
        metrics::counter!(*name).absolute(value(&figures));
    }
    for reason in Reason::ALL {
        metrics::counter!("hearth_channels_closed_total", "reason" => reason.as_str())
            .absolute(figures.closed_by(reason));
    }
    for (id, counters) in realtime.channels.statistics().all() {
        for (name, _, value) in APP_COUNTERS {
            metrics::counter!(*name, "app" => id.to_string()).absolute(value(&counters).get());
        }
        for (name, _, value) in APP_GAUGES {
            metrics::gauge!(*name, "app" => id.to_string()).set(value(&counters).get() as f64);
        }
    }
}
