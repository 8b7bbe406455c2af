//! HTTP/3 connections (RFC 9114) over QUIC, by quinn and h3.
//!
//! ```text
//! socket -> endpoint (address validation, places) -> http3::serve -> exchange -> respond
//! ```
//!
//! Invariants
//! - A stream's task ends with its connection; a stream that the client gives up drops its request at once.
//! - A client that gives up many more requests than it takes answers of loses the connection ("rapid reset").
//! - Before it is closed, a connection says which requests it has accepted (GOAWAY). Others are rejected in a way that
//!   lets the client repeat them.

mod body;
mod budget;
mod endpoint;
mod exchange;
mod filter;
#[cfg(any(fuzzing, test))]
pub(crate) mod fuzzing;
mod ids;
mod quic;
mod socket;

use std::pin::pin;
use std::sync::Arc;

use h3::error::Code;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

pub(crate) use self::body::Incoming;
pub use self::endpoint::GivenQuic;
pub(crate) use self::endpoint::{QuicListener, transport};
use self::exchange::{Outcome, exchange};
use crate::application::Application;
use crate::front::Shared;
use crate::metrics::ClientLimit;
use crate::multiplexed::GOODBYE;
use crate::pace::UnreadBodies;
use crate::phase::PhaseCell;
use crate::respond::Connection;

/// Maximum number of requests that a client may give up, or get wrong, beyond those whose answers it takes.
const MAX_LOST: u32 = 100;

/// Serves one connection until it ends, or until `drain` is cancelled and its requests are answered.
async fn serve<A: Application>(
    front: &Arc<Shared<A>>,
    connection: Connection,
    quic: quinn::Connection,
    phase: Arc<PhaseCell>,
    drain: CancellationToken,
) {
    let mut traffic = Traffic::default();
    // A compressed head is seldom longer than the head; h3 looks at what it has become.
    let limit = front.limits.max_head.saturating_mul(2);
    let (adapter, admission) = quic::Connection::new(quic.clone(), limit);
    let mut builder = h3::server::builder();
    builder.max_field_section_size(front.limits.max_head).send_grease(false);
    let mut h3 = match timeout(front.patience.header, builder.build(adapter)).await {
        Ok(Ok(h3)) => h3,
        Ok(Err(error)) => return tracing::debug!(%error, "HTTP/3 did not begin"),
        Err(_) => return,
    };
    let connection = Arc::new(connection);
    let mut streams = JoinSet::new();
    let unread = UnreadBodies::default();
    let mut ending = false;
    let mut lost = 0_u32;
    // How long to wait for another request.
    let mut timer = pin!(tokio::time::sleep(front.patience.keep_alive));
    loop {
        let idle = streams.is_empty();
        tokio::select! {
            biased;
            accepted = h3.accept() => match accepted {
                Ok(Some(resolver)) => {
                    let Some(arrival) = admission.arrival() else { break };
                    if idle {
                        phase.busy();
                    }
                    let exchange = exchange(
                        Arc::clone(front), Arc::clone(&connection), unread.clone(), resolver, arrival,
                    );
                    streams.spawn(exchange.in_current_span());
                }
                Ok(None) => break,
                Err(error) => {
                    tracing::debug!(%error, "connection broke off");
                    break;
                }
            },
            Some(ended) = streams.join_next() => {
                lost = match ended {
                    Ok(Outcome::Answered) => lost.saturating_sub(1),
                    Ok(Outcome::Lost) => lost + 1,
                    Err(error) => {
                        tracing::error!(%error, "stream failed");
                        lost
                    }
                };
                if lost > MAX_LOST {
                    front.metrics.limited(ClientLimit::Resets);
                    tracing::debug!("client gives up too many requests");
                    quic.close(quic::number(Code::H3_EXCESSIVE_LOAD), b"too many requests given up");
                    break;
                }
                traffic.count(&quic, &front.metrics);
                if streams.is_empty() {
                    phase.answered();
                    let wait = if ending { GOODBYE } else { front.patience.keep_alive };
                    timer.as_mut().reset(Instant::now() + wait);
                }
            }
            () = async { tokio::select! {
                () = drain.cancelled() => {}
                () = front.succeeded.cancelled() => {}
            } }, if !ending => {
                ending = true;
                admission.refuse();
                if !matches!(timeout(GOODBYE, h3.shutdown(1)).await, Ok(Ok(()))) {
                    break;
                }
                timer.as_mut().reset(Instant::now() + GOODBYE);
            }
            () = timer.as_mut(), if idle => {
                if ending {
                    break;
                }
                ending = true;
                admission.refuse();
                if !matches!(timeout(GOODBYE, h3.shutdown(1)).await, Ok(Ok(()))) {
                    break;
                }
                timer.as_mut().reset(Instant::now() + GOODBYE);
            }
        }
    }
    streams.shutdown().await;
    traffic.count(&quic, &front.metrics);
}

/// The counted bytes of a connection.
#[derive(Debug, Default)]
struct Traffic {
    received: u64,
    sent: u64,
}

impl Traffic {
    fn count(&mut self, quic: &quinn::Connection, metrics: &crate::metrics::FrontMetrics) {
        let stats = quic.stats();
        let (received, sent) = (stats.udp_rx.bytes, stats.udp_tx.bytes);
        metrics.bytes_in.increment(received.saturating_sub(self.received));
        metrics.bytes_out.increment(sent.saturating_sub(self.sent));
        *self = Self { received, sent };
    }
}
