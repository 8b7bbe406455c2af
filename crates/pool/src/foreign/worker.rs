//! The process of a slot: one face for a child of php-fpm, a `php -S` and a `php-cgi`.

use std::sync::Arc;

use super::answer::Answer;
use super::request::Request;
use super::{builtin, cgi, fpm};
use crate::exchange::{BoxError, Failure};
use crate::info::WorkerInfo;

/// The connection to a slot's process.
#[derive(Debug)]
pub(super) enum Worker {
    Fpm(fpm::Worker),
    Builtin(builtin::Worker),
    Cgi(cgi::Worker),
}

impl Worker {
    /// Returns whether the process would accept a request now, as far as can be seen without a request to it.
    pub(super) fn is_ready(&mut self) -> bool {
        match self {
            Self::Fpm(worker) => worker.is_ready(),
            Self::Builtin(worker) => worker.is_ready(),
            Self::Cgi(worker) => worker.is_ready(),
        }
    }

    /// Makes the worker ready and discards its previous state.
    pub(super) async fn prepare(&mut self) -> Result<(), BoxError> {
        match self {
            Self::Fpm(worker) => worker.prepare().await,
            Self::Builtin(worker) => worker.prepare().await,
            Self::Cgi(worker) => {
                worker.prepare();
                Ok(())
            }
        }
    }

    /// Returns the current process.
    pub(super) fn info(&self) -> Option<&Arc<WorkerInfo>> {
        match self {
            Self::Fpm(worker) => worker.info(),
            Self::Builtin(worker) => worker.info(),
            Self::Cgi(worker) => Some(worker.info()),
        }
    }

    /// Serves one request up to the end of its response. Dropped early if the client is gone.
    pub(super) async fn exchange(
        &mut self,
        request: &mut Request,
        answer: &mut Answer,
    ) -> Result<(), Failure> {
        match self {
            Self::Fpm(worker) => worker.exchange(request, answer).await,
            Self::Builtin(worker) => worker.exchange(request, answer).await,
            Self::Cgi(worker) => worker.exchange(request, answer).await,
        }
    }

    /// Waits until the script has ended and the process can accept the next request. `whole` says that the exchange
    /// was not dropped.
    pub(super) async fn wait_until_ready(&mut self, whole: bool) -> Result<(), BoxError> {
        match self {
            Self::Fpm(worker) => worker.wait_until_ready(whole).await,
            Self::Builtin(worker) => worker.wait_until_ready(whole).await,
            Self::Cgi(worker) => {
                worker.kill().await;
                Ok(())
            }
        }
    }

    /// Kills the process.
    pub(super) async fn kill(&mut self) {
        match self {
            Self::Fpm(worker) => worker.kill(),
            Self::Builtin(worker) => worker.kill().await,
            Self::Cgi(worker) => worker.kill().await,
        }
    }
}
