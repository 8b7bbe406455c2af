//! Boots a failed application again beside the model that runs in its place, until the boot succeeds and takes over.
//!
//! Invariants
//! - Attempts are [`FIRST`] apart, then twice as long each time, at most [`LONGEST`]; a reload begins with the first pause again.
//! - An attempt that fails changes nothing for requests; one that succeeds takes over as a reload does, once it answers, and its files
//!   are watched from then on (`php.watch`, `server.watch`).

use std::time::Duration;

use tokio::time::Instant;

use crate::app::applications::Planned;
use crate::app::release;
use crate::failure::Failure;
use crate::ops::boot_retries::Outcome;
use crate::runtime::generation::{Booted, Generation, end};
use crate::runtime::proof::prove;
use crate::runtime::reload::Generations;

/// The pause before the first attempt.
const FIRST: Duration = Duration::from_secs(1);
/// The longest pause between two attempts.
const LONGEST: Duration = Duration::from_mins(1);

/// Returns the pause after this many attempts.
fn pause(attempts: u32) -> Duration {
    pool::pause_after(attempts, FIRST, LONGEST)
}

/// The attempts to boot what the current generation runs in another model.
#[derive(Debug, Default)]
pub(crate) struct Retry {
    attempts: u32,
    at: Option<Instant>,
}

impl Retry {
    /// Waits until the next attempt is due; forever if there is none. Cancel safe.
    pub(crate) async fn due(at: Option<Instant>) {
        match at {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    /// Returns the time of the next attempt.
    pub(crate) fn at(&self) -> Option<Instant> {
        self.at
    }
}

impl Generations<'_> {
    /// Plans the first attempt for the generation that takes requests now, if one of its boots failed.
    pub(crate) fn plan_retries(&mut self) {
        let failed =
            self.current.as_ref().is_some_and(|current| current.to_retry().next().is_some());
        self.retry = Retry { attempts: 0, at: failed.then(|| Instant::now() + pause(0)) };
        self.state.boot_retries.next(self.retry.at);
    }

    /// Makes one attempt.
    pub(crate) async fn retry(&mut self) {
        let places = self.connectors.fitted();
        let outcome = Box::pin(self.boot_failed_again()).await;
        match outcome {
            Ok(true) => self.state.boot_retries.count(Outcome::Succeeded),
            // The server ends.
            Ok(false) => self.retry = Retry::default(),
            Err(failure) => {
                self.connectors.put_back(&places);
                self.retry.attempts = self.retry.attempts.saturating_add(1);
                let (attempts, wait) = (self.retry.attempts, pause(self.retry.attempts));
                self.retry.at = Some(Instant::now() + wait);
                let (reason, hint) = (failure.message(), failure.hint());
                tracing::warn!(attempts, reason, hint, next = ?wait, "the application still does not boot");
                self.state.boot_retries.count(Outcome::Failed(reason));
                self.state.boot_retries.next(self.retry.at);
            }
        }
    }

    /// Returns whether the boot has succeeded and taken over; false if the server ends.
    async fn boot_failed_again(&mut self) -> Result<bool, Failure> {
        let failed: Vec<Planned> = self.current.iter().flat_map(Generation::to_retry).collect();
        let Some(booted) = Box::pin(self.boot_again(failed)).await? else { return Ok(false) };
        let proved = tokio::select! {
            proved = prove_each(&booted) => proved.map(|()| true),
            () = self.drain.cancelled() => Ok(false),
        };
        if !matches!(proved, Ok(true)) {
            end(booted, Instant::now()).await;
            return proved;
        }
        let release = {
            let runs = self.current.iter().flat_map(|current| &current.applications);
            let successor = |old: &Booted| {
                let same = |new: &&Booted| new.planned.name == old.planned.name;
                booted.iter().find(same).map(|new| &new.planned)
            };
            release::release(runs.map(|old| successor(old).unwrap_or(&old.planned)))
        };
        let release = match release {
            Ok(release) => release,
            Err(failure) => {
                end(booted, Instant::now()).await;
                return Err(failure);
            }
        };
        let Some(old) = &mut self.current else { return Ok(false) };
        let (generation, guard) = old.succeeded_by(booted);
        let (number, explanation) = (generation.number, generation.explanation());
        self.take_over(self.settings.clone(), generation, guard, release);
        // `boot_begins` was not called: other applications were not booted again, and changes of their files must still count.
        self.watch_successor().await;
        tracing::info!(
            generation = number,
            explanation,
            "the application boots again, generation took over"
        );
        Ok(true)
    }
}

async fn prove_each(all: &[Booted]) -> Result<(), Failure> {
    for booted in all {
        prove(booted).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_between_attempts_double_up_to_a_minute() {
        let pauses: Vec<u64> = (0..9).map(|attempts| pause(attempts).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    }
}
