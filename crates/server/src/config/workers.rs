//! The numbers of workers that the settings ask for.

use std::num::NonZeroUsize;

use super::Settings;
use crate::system::machine::processors;

/// Returns the number of workers that are always there.
pub(crate) fn workers(settings: &Settings) -> NonZeroUsize {
    settings.php.workers.0.unwrap_or_else(processors)
}

/// Returns the largest number of workers at once.
pub(crate) fn most_workers(settings: &Settings) -> NonZeroUsize {
    settings.php.workers_max.unwrap_or_else(|| workers(settings))
}
