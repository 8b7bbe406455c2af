//! Upgrades: a new program takes the place of the running one, and nobody who connects notices.
//!
//! ```text
//! running server                                   its successor (HEARTH_TAKE_OVER says where to ask)
//! hearth upgrade, USR2 -> starts the program ----> connects to successor.sock
//!                  listening sockets (SCM_RIGHTS) ->
//!                                                  reads settings, boots, all workers are ready
//!                                               <- ready
//! its service manager is told                go -> puts its other sockets into their places
//!                                               <- (hangs up)
//! stops accepting, finishes what it has, ends      accepts
//! ```
//!
//! Invariants
//! - Until the successor is ready the running server does not change: whatever fails, it goes on.
//! - Sockets are given to processes of our own user and of root only.
//! - The queues of the listening sockets are never closed: nobody is refused.

mod message;
mod offer;
mod places;
mod predecessor;

use serde::{Deserialize, Serialize};

pub(crate) use self::offer::Offer;
pub(crate) use self::places::{Leftovers, Published, beside};
pub(crate) use self::predecessor::Predecessor;

/// Where a successor asks for sockets: set by the server whose place it takes.
pub(crate) const VARIABLE: &str = "HEARTH_TAKE_OVER";
/// The name of that socket, in the run folder.
const SOCKET: &str = "successor.sock";

/// A successor has taken over.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Upgraded {
    /// Its process.
    pub pid: u32,
    /// Its version.
    pub version: String,
    /// From the start of the program to the moment it took over.
    pub milliseconds: u64,
}
