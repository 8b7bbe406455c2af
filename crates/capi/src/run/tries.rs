//! Further tries after a failure or a refusal, each with its body from the start.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use egress::{CallError, Fate};

use super::Way;
use crate::error::{Failure, Kind};
use crate::request::Payload;
use crate::retry;

impl Way<'_> {
    pub(super) fn tries(&self) -> u32 {
        self.so_far().timings.retries
    }

    pub(super) async fn after_failure(&mut self, error: CallError) -> Result<(), Failure> {
        let sent = error.fate == Fate::Failed;
        let kept = error.kept;
        let mut failure = Failure::from(error);
        if let Some(why) = self.track.failure() {
            failure = Failure::new(Kind::Source, format!("The body cannot be read: {why}"));
        }
        if self.stale < retry::STALE && retry::was_stale(kept, failure.kind, &self.method) {
            self.stale += 1;
            return self.rewind().await.map_err(|_gone| failure);
        }
        match retry::after_failure(
            &self.settings.retry,
            self.tries(),
            failure.kind,
            sent,
            &self.method,
        ) {
            Some(delay) => self.again(delay).await.map_err(|_gone| failure),
            None => Err(failure),
        }
    }

    pub(super) fn retry_after(&self, status: u16) -> Option<Duration> {
        let so_far = self.so_far();
        let tries = so_far.timings.retries;
        retry::after_answer(&self.settings.retry, tries, status, &so_far.headers, &self.method)
    }

    pub(super) async fn again(&mut self, delay: Duration) -> Result<(), Failure> {
        self.rewind().await?;
        self.forget_head();
        self.so_far().timings.retries += 1;
        self.io.runtime.numbers.retries.fetch_add(1, Relaxed);
        let _held = self.track.hold();
        tokio::time::sleep(delay).await;
        Ok(())
    }

    /// Rewinds the body.
    pub(super) async fn rewind(&mut self) -> Result<(), Failure> {
        if let Some(reading) = self.reading.take() {
            reading.store(false, Relaxed);
        }
        let begun = self.track.begun();
        self.track.again();
        if !self.with_body || !begun {
            return Ok(());
        }
        let Some(Payload::Source(source)) = self.extras.map(|extras| &extras.body) else {
            return Ok(());
        };
        let (source, caller) = (*source, Arc::clone(self.in_flight));
        let threaded = self.in_flight.spec.threaded;
        let _held = self.track.hold();
        let can = self
            .io
            .runtime
            .callbacks
            .ask(threaded, move || source.rewind(caller.request().as_ref()))
            .await;
        if can == Some(true) {
            return Ok(());
        }
        Err(Failure {
            code: 65,
            ..Failure::new(Kind::Source, "necessary data rewind wasn't possible")
        })
    }
}
