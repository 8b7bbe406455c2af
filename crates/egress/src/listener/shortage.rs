//! Callers for which no descriptor is left get a refusal at once, instead of waiting until a descriptor is free.
//!
//! Invariants
//! - One descriptor is kept in reserve for that. It is taken back before the next caller is refused.
//! - The shortage is logged at most once a minute.

use std::fs::File;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How often the shortage is logged.
const QUIET: Duration = Duration::from_mins(1);

/// The reserved descriptor.
#[derive(Debug)]
pub(crate) struct Reserve {
    held: Mutex<Option<File>>,
    told: Mutex<Option<Instant>>,
}

impl Reserve {
    /// Reserves a descriptor. If none is available, callers wait.
    pub(crate) fn new() -> Self {
        Self { held: Mutex::new(placeholder()), told: Mutex::default() }
    }

    /// Frees the descriptor for one caller. Returns `false` if it is in use.
    pub(crate) fn lend(&self) -> bool {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).take().is_some()
    }

    /// Reserves a descriptor again, if one is available.
    pub(crate) fn restore(&self) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_none() {
            *held = placeholder();
        }
    }

    /// Returns whether to log the shortage now.
    pub(crate) fn is_news(&self, now: Instant) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = told.is_none_or(|at| now.duration_since(at) >= QUIET);
        if is_news {
            *told = Some(now);
        }
        is_news
    }
}

fn placeholder() -> Option<File> {
    File::open("/dev/null").ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spare_descriptor_is_lent_once_and_logged_once_a_minute() {
        let reserve = Reserve::new();
        assert!(reserve.lend() && !reserve.lend());
        reserve.restore();
        assert!(reserve.lend());

        let begun = Instant::now();
        let told = (0..150).filter(|second| reserve.is_news(begun + Duration::from_secs(*second)));
        assert_eq!(told.collect::<Vec<_>>(), [0, 60, 120]);
    }
}
