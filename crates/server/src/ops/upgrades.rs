//! The queue of requests for an upgrade, and what a successor gets of this process.

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::failure::Failure;

/// A socket for the admin address that another process has bound.
#[derive(Debug)]
pub(crate) struct AdminSocket {
    pub listener: TcpListener,
    /// A service manager has passed it: `admin.listen` is ignored.
    pub passed: bool,
}

/// The channel for the outcome of an upgrade.
pub(crate) type UpgradeAsk = oneshot::Sender<Result<Upgraded, Failure>>;

/// A successor has taken over.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Upgraded {
    /// The process id of the successor.
    pub pid: u32,
    /// The version of the successor.
    pub version: String,
    /// The time from the start of the program to the moment it took over.
    pub milliseconds: u64,
}

/// The queue between commands that ask for an upgrade and the task that upgrades.
#[derive(Debug, Default)]
pub(crate) struct UpgradeQueue {
    /// The sender to the task that upgrades; empty until there is one.
    asks: OnceLock<mpsc::Sender<UpgradeAsk>>,
    /// The reason why upgrades are refused.
    refused: OnceLock<Failure>,
    /// An upgrade was asked for and has no outcome yet.
    under_way: AtomicBool,
    /// Cancelled when another process has taken over.
    succeeded: CancellationToken,
    /// The socket of the admin address, for that process.
    admin: Mutex<Option<AdminSocket>>,
}

impl UpgradeQueue {
    /// Asks for an upgrade. Fails when no task takes requests, and while an upgrade runs.
    pub(crate) fn ask(&self, answer: UpgradeAsk) -> Result<(), Failure> {
        let refused = |message, hint| Err(Failure::failed(message, hint));
        if self.succeeded.is_cancelled() {
            return refused("another process has taken its place", "ask that one");
        }
        if let Some(why) = self.refused.get() {
            return Err(why.clone());
        }
        let Some(asks) = self.asks.get() else {
            return refused("there is nothing to upgrade here", "restart it");
        };
        if self.under_way.swap(true, Ordering::AcqRel) {
            return refused("an upgrade is under way", "the log says what becomes of it");
        }
        asks.try_send(answer).or_else(|_ended| {
            self.ended();
            refused("the server is shutting down", "start it again")
        })
    }

    /// Allows the next request: the last one has its outcome.
    pub(crate) fn ended(&self) {
        self.under_way.store(false, Ordering::Release);
    }

    /// Returns the receiver of requests from now on. To be called once.
    pub(crate) fn asked(&self) -> mpsc::Receiver<UpgradeAsk> {
        let (asks, asked) = mpsc::channel(1);
        self.asks.set(asks).expect("it is called once");
        asked
    }

    /// Refuses every request with this failure.
    pub(crate) fn refuse(&self, why: Failure) {
        self.refused.get_or_init(|| why);
    }

    /// Returns the token that is cancelled when another process has taken over.
    pub(crate) fn succeeded(&self) -> &CancellationToken {
        &self.succeeded
    }

    /// Keeps the admin address's socket for a successor.
    pub(crate) fn keep_admin(&self, socket: AdminSocket) {
        *self.admin.lock().expect("no holder panics") = Some(socket);
    }

    /// Takes that socket.
    pub(crate) fn admin_socket(&self) -> Option<AdminSocket> {
        self.admin.lock().expect("no holder panics").take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_one_upgrade_runs_at_a_time() {
        let queue = UpgradeQueue::default();
        let ask = || queue.ask(oneshot::channel().0).map_err(|why| why.message());
        assert_eq!(ask(), Err("there is nothing to upgrade here".to_owned()));
        let mut asked = queue.asked();
        assert_eq!(ask(), Ok(()));
        drop(asked.recv().await.unwrap());
        assert_eq!(ask(), Err("an upgrade is under way".to_owned()));
        queue.ended();
        assert_eq!(ask(), Ok(()));
        drop(asked.recv().await.unwrap());
        queue.ended();
        drop(asked);
        assert_eq!(ask(), Err("the server is shutting down".to_owned()));
        queue.succeeded().cancel();
        assert_eq!(ask(), Err("another process has taken its place".to_owned()));
    }
}
