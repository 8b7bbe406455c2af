//! Upgrades: a new program replaces the running one without refusing a connection.
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
//! - Until the successor is ready, the running server is unchanged and survives every failure.
//! - Sockets are given to processes of our own user and of root only.
//! - The queues of the listening sockets are never closed: no connection is refused.

mod message;
mod offer;
mod predecessor;

pub(crate) use self::offer::Offer;
pub(crate) use self::predecessor::Predecessor;

/// The name of that socket, in the run folder.
const SOCKET: &str = "successor.sock";
