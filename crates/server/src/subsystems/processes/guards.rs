//! The guards of process groups: one for each user that commands run as, started with its first command.

use std::sync::{Arc, Mutex, PoisonError};

use pool::Identity;

use crate::system::guard::Guard;

/// The guards by user.
#[derive(Debug, Default)]
pub(super) struct Guards(Mutex<Vec<(Option<Identity>, Arc<Guard>)>>);

impl Guards {
    /// Returns the guard that can kill this user's processes. Without one, only what the server itself has started ends
    /// with a server that is killed.
    pub(super) fn of(&self, identity: Option<&Identity>) -> Option<Arc<Guard>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, guard)) = all.iter().find(|(known, _)| known.as_ref() == identity) {
            return Some(Arc::clone(guard));
        }
        match Guard::start(identity) {
            Ok(guard) => {
                let guard = Arc::new(guard);
                all.push((identity.cloned(), Arc::clone(&guard)));
                Some(guard)
            }
            Err(error) => {
                tracing::warn!(%error, "no guard: children of processes may outlive a server that is killed");
                None
            }
        }
    }
}
