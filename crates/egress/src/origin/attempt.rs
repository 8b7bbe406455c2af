//! Opening connections: one task for each attempt.
//!
//! Invariants
//! - Each attempt reports to the plan exactly once: connected, failed or given up.
//! - An attempt does not end because its caller gave up, unless it waits for a place and no other call waits.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::{Origin, Waiter, plan};
use crate::connect::Connected;
use crate::http1::Http1;
use crate::http2::{Driver, Http2, Streams};
use crate::{CallError, HttpVersions};

/// The time limit of one attempt to connect. It is extended while a caller waits that has waited since the attempt began.
const ATTEMPT: Duration = Duration::from_secs(30);

impl Origin {
    /// Starts an attempt for each connection that the plan wants.
    pub(super) fn connect(self: &Arc<Self>, connections: usize, now: Instant) {
        for _ in 0..connections {
            let this = Arc::clone(self);
            self.spawn(async move { this.attempt(now).await });
        }
    }

    /// Opens one connection and gives it to the plan.
    async fn attempt(self: Arc<Self>, begun: Instant) {
        let made = self.made_in_time(begun);
        let Some(Some(made)) = self.common.closing.run_until_cancelled(made).await else {
            // Callers that still wait came later: another connection is opened for them.
            self.after(|state| state.plan.given_up(begun));
            return;
        };
        match made {
            Ok(None) => {}
            Ok(Some(Made::Http1(connection))) => {
                self.after(|state| {
                    state.plan.connected_http1(begun);
                    state.plan.put_back(connection, Instant::now());
                    if state.closed {
                        state.plan.clear();
                    }
                });
                self.make_room();
            }
            Ok(Some(Made::Http2(connection, driver, permit))) => {
                let id = self.after(|state| {
                    let id = state.plan.connected_http2(begun, connection, Instant::now());
                    if state.closed {
                        state.plan.clear();
                    }
                    id
                });
                self.make_room();
                let options = &self.common.options;
                driver.run(options.ping, options.pong).await;
                drop(permit);
                self.after(|state| state.plan.remove(id));
            }
            Err(error) => {
                tracing::debug!(
                    server.address = %self.key.host, server.port = self.key.port, %error, "no connection"
                );
                let told = self.after(|state| {
                    state.waiters.retain(|waiter| !waiter.gone());
                    let told = state.plan.failed(begun, Instant::now(), state.waiters.len());
                    state.waiters.drain(..told).collect::<Vec<_>>()
                });
                for waiter in told {
                    drop(waiter.tell.send(Err(error.clone())));
                }
            }
        }
    }

    /// Opens a connection; `None` if it takes too long.
    async fn made_in_time(
        self: &Arc<Self>,
        begun: Instant,
    ) -> Option<Result<Option<Made>, CallError>> {
        let mut made = pin!(self.made(begun));
        loop {
            if let Ok(made) = tokio::time::timeout(ATTEMPT, made.as_mut()).await {
                return Some(made);
            }
            // A caller that came while the attempt was young has no better one to wait for.
            let waits = |waiter: &Waiter| waiter.since < begun + plan::LATE && !waiter.gone();
            if !self.state().waiters.iter().any(waits) {
                return None;
            }
        }
    }

    /// Opens a connection; `None` if no call needs it any more.
    async fn made(self: &Arc<Self>, begun: Instant) -> Result<Option<Made>, CallError> {
        let permit = if let Some(permit) = self.common.free_place() {
            permit
        } else {
            tokio::select! {
                biased;
                () = self.needless(begun) => return Ok(None),
                permit = self.common.permit() => permit,
            }
        };
        let http = if self.state().http1_only { HttpVersions::Http1 } else { self.key.http };
        let connected = self.common.ways.connect(&self.key, http, &self.resolving).await?;
        self.counters.connected(connected.birth.secured.is_some());
        speak(connected, permit, Arc::clone(&self.streams)).await.map(Some)
    }

    /// Returns when no call waits here and the plan counts one attempt less. If others had to make room for the connection, only calls
    /// that wait justify it.
    async fn needless(self: &Arc<Self>, begun: Instant) {
        loop {
            let served = self.served.notified();
            let needless = self.after(|state| {
                let needless = state.waiters.iter().all(Waiter::gone);
                if needless {
                    state.plan.given_up(begun);
                }
                needless
            });
            if needless {
                return;
            }
            served.await;
        }
    }
}

/// A new connection with its version of HTTP.
enum Made {
    Http1(Box<Http1>),
    Http2(Http2, Box<Driver>, OwnedSemaphorePermit),
}

async fn speak(
    connected: Connected,
    permit: OwnedSemaphorePermit,
    streams: Arc<Streams>,
) -> Result<Made, CallError> {
    let undone = |error: String| CallError::declined(crate::Reason::Connect, 7, error);
    if connected.http2 {
        let made = Http2::new(connected, streams).await;
        let made = made.map_err(|error| undone(error.to_string()))?;
        Ok(Made::Http2(made.0, Box::new(made.1), permit))
    } else {
        Ok(Made::Http1(Http1::new(connected, permit)))
    }
}
