//! How many hear one channel on other nodes.

use crate::peers::{NodeId, Origin};

#[derive(Debug, Default)]
pub(super) struct Elsewhere(Vec<(Origin, u32)>);

impl Elsewhere {
    pub(super) fn total(&self) -> usize {
        self.0.iter().map(|(_, count)| *count as usize).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// So many hear it on that node, whatever was known before.
    pub(super) fn set(&mut self, from: Origin, count: u32) {
        self.0.retain(|(known, _)| known.node != from.node);
        if count > 0 {
            self.0.push((from, count));
        }
    }

    /// Forgets what that node told in other rounds than `round`.
    pub(super) fn forget(&mut self, node: NodeId, round: Option<u32>) {
        self.0.retain(|(known, _)| known.node != node || Some(known.round) == round);
    }

    /// Is there something for [`Elsewhere::forget`]?
    pub(super) fn has_old(&self, node: NodeId, round: Option<u32>) -> bool {
        self.0.iter().any(|(known, _)| known.node == node && Some(known.round) != round)
    }
}
