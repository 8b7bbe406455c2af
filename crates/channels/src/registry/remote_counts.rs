//! The number of subscribers of one channel on other nodes.

use crate::nodes::{NodeId, Origin};

#[derive(Debug, Default)]
pub(super) struct RemoteCounts(Vec<(Origin, u32)>);

impl RemoteCounts {
    pub(super) fn total(&self) -> usize {
        self.0.iter().map(|(_, count)| *count as usize).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Replaces the number of subscribers on a node.
    pub(super) fn set(&mut self, from: Origin, count: u32) {
        self.0.retain(|(known, _)| known.node != from.node);
        if count > 0 {
            self.0.push((from, count));
        }
    }

    /// Removes the number that a node published in a round other than `round`.
    pub(super) fn forget(&mut self, node: NodeId, round: Option<u32>) {
        self.0.retain(|(known, _)| known.node != node || Some(known.round) == round);
    }

    /// Returns whether [`RemoteCounts::forget`] would remove a number.
    pub(super) fn has_outdated(&self, node: NodeId, round: Option<u32>) -> bool {
        self.0.iter().any(|(known, _)| known.node == node && Some(known.round) != round)
    }
}
