//! The figures of realtime, for `/status` and `/metrics`.

use super::Realtime;
use crate::ops::metric::metrics_table;
use crate::ops::status::Status;
use crate::ops::status::realtime::{Application, Looked, Status as RealtimeStatus};
use crate::ops::subsystem::Subsystem;
use channels::Counters;
use channels::hub::Reason;
use channels::lookup::Lookup;

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
        self.set_metrics_of_node();
        for (id, counters) in self.channels.statistics().all() {
            set_metrics_of_app(&id, &counters);
        }
    }
}

impl Realtime {
    fn set_metrics_of_node(&self) {
        let figures = self.hub.figures();
        metrics_table! { &[];
            gauge "hearth_channels_sockets" = figures.sockets, "Sockets of realtime there are now";
            gauge "hearth_channels" = self.channels.registry().len(), "Channels with subscribers or stored events";
            counter "hearth_channels_accepted_total" = figures.accepted, "Connections taken by listeners of realtime's own";
            counter "hearth_channels_upgraded_total" = figures.upgraded, "WebSockets opened";
            counter "hearth_channels_delivered_total" = figures.delivered, "Messages put into queues of sockets";
            counter "hearth_channels_dropped_total" = figures.dropped, "Messages let go because the queue of their socket was full";
            counter "hearth_channels_writes_total" = figures.writes, "Writes to sockets; one may carry many messages";
            counter "hearth_channels_received_bytes_total" = figures.bytes_in, "Bytes read from sockets";
            counter "hearth_channels_sent_bytes_total" = figures.bytes_out, "Bytes written to sockets";
            counter "hearth_channels_blocked_total" = figures.blocked, "Times a socket took less than there was for it";
        }
        for reason in Reason::ALL {
            metrics_table! { &[("reason", reason.as_str().to_owned())];
                counter "hearth_channels_closed_total" = figures.closed_by(reason), "Sockets of realtime that ended, by reason";
            }
        }
        if let Some(report) = self.nodes() {
            metrics_table! { &[];
                gauge "hearth_channels_nodes" = report.nodes, "Other nodes that this one hears";
                gauge "hearth_channels_broker_connected" = report.connected, "1 while the adapter's broker is connected";
                counter "hearth_channels_packets_missed_total" = report.missed, "Packets of other nodes that were lost on the way";
            }
        }
        if let Some((subscribers, published, slow)) =
            self.mercure.as_ref().map(super::mercure::Hub::figures)
        {
            metrics_table! { &[];
                gauge "hearth_mercure_subscribers" = subscribers, "Subscribers of the Mercure hub on this node";
                counter "hearth_mercure_updates_total" = published, "Updates that publishers sent to the Mercure hub on this node";
                counter "hearth_mercure_slow_total" = slow, "Subscribers of the Mercure hub that were disconnected because too many updates waited for them";
            }
        }
        if let Some(looked) = self.lookup.as_deref().map(looked) {
            metrics_table! { &[];
                gauge "hearth_channels_lookup_known" = looked.known, "Looked-up applications that are known now";
                gauge "hearth_channels_lookup_waiting" = looked.waiting, "Keys and ids of applications that are being asked for";
                counter "hearth_channels_lookup_changes_total" = looked.changed, "Looked-up applications that were different, or gone, when they were asked for again";
            }
            let outcomes =
                [("found", looked.found), ("absent", looked.absent), ("failed", looked.failed)];
            for (outcome, count) in outcomes {
                metrics_table! { &[("outcome", outcome.to_owned())];
                    counter "hearth_channels_lookups_total" = count, "Applications asked for, by what came of it: `found`, `absent`, `failed`";
                }
            }
        }
    }
}

fn set_metrics_of_app(id: &str, counters: &Counters) {
    metrics_table! { &[("app", id.to_owned())];
        gauge "hearth_channels_connections" = counters.connections.get(), "Sockets open now, by application";
        gauge "hearth_channels_subscriptions" = counters.subscriptions.get(), "Subscriptions there are now, by application";
        counter "hearth_channels_connected_total" = counters.connected.get(), "Sockets opened, by application";
        counter "hearth_channels_errors_total" = counters.closed_with_error.get(), "Sockets turned away or closed with an error of the protocol, by application";
        counter "hearth_channels_messages_received_total" = counters.received.get(), "Messages from clients, by application";
        counter "hearth_channels_messages_sent_total" = counters.sent.get(), "Messages to clients, by application";
        counter "hearth_channels_published_total" = counters.published.get(), "Events published, one for each channel, by application";
        counter "hearth_channels_client_events_total" = counters.client_events.get(), "Events that clients published, by application";
        counter "hearth_channels_signatures_refused_total" = counters.signatures_refused.get(), "Signatures of clients and of calls that were refused, by application";
        counter "hearth_channels_rate_limited_total" = counters.rate_limited.get(), "Events refused because there were too many, by application";
        counter "hearth_channels_subscribed_total" = counters.subscribed.get(), "Subscriptions made, by application";
        counter "hearth_channels_subscription_errors_total" = counters.subscription_errors.get(), "Subscriptions refused, by application";
        counter "hearth_channels_inbox_full_total" = counters.inbox_full.get(), "Deliveries that an event loop had no room for, by application";
        counter "hearth_channels_signed_in_total" = counters.signed_in.get(), "Users that signed in, by application";
        counter "hearth_channels_recovered_total" = counters.recovered.get(), "Clients that came back and got all they had missed, by application";
        counter "hearth_channels_not_recovered_total" = counters.not_recovered.get(), "Clients that came back and could not, by application";
    }
}
