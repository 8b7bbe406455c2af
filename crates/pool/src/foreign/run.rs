//! One request in one slot: from a process that is ready for it to one that is ready for the next.
//!
//! Invariants
//! - A slot is returned once its process can accept the next request, whatever the client does.
//! - The process of a request that exceeded its limit has ended before the request is answered.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio_util::sync::CancellationToken;
use traces::Span;
use tracing::{debug, error};

use super::answer::Answer;
use super::request::Request;
use super::slots::Leased;
use super::worker::Worker;
use super::{Common, Slot};
use crate::backend::Core;
use crate::exchange::Failure;
use crate::info::{CurrentRequest, WorkerInfo, how_it_ended};
use crate::lifecycle::Dismissal;
use crate::status::WorkerState;
use crate::trace;

/// How an exchange ended.
#[derive(Debug)]
enum Outcome {
    Served(Result<(), Failure>),
    /// The client is gone.
    Left,
    TimedOut,
    /// The pool is being closed.
    Cut,
}

impl Common {
    /// Serves one request and returns its worker.
    pub(super) async fn run(
        self: Arc<Self>,
        mut slot: Leased<Slot>,
        mut request: Request,
        mut answer: Answer,
        left: CancellationToken,
    ) {
        let span = trace::runs(&request.context, &self.core, None);
        let limit = self.options.request_timeout.map(|limit| self.clock.after(limit));
        let deadline = request.context.deadline.map(|at| self.clock.moment(Some(at)));
        let deadline = limit.into_iter().chain(deadline).min();
        let outcome = tokio::select! {
            biased;
            served = self.serve(&mut slot, &mut request, &mut answer) => Outcome::Served(served),
            () = left.cancelled() => Outcome::Left,
            () = self.clock.reached(deadline) => Outcome::TimedOut,
            () = self.cut.cancelled() => Outcome::Cut,
        };
        self.requests.fetch_add(1, Ordering::Relaxed);
        Self::end_span(span, &slot.worker, &outcome);
        let lost = match outcome {
            Outcome::Served(Ok(())) => self.wait_until_ready(&mut slot, deadline, true).await,
            Outcome::Left => self.wait_until_ready(&mut slot, deadline, false).await,
            Outcome::Served(Err(failure @ (Failure::RequestBody(_) | Failure::TooLarge))) => {
                answer.fail(failure);
                self.wait_until_ready(&mut slot, deadline, false).await
            }
            Outcome::Served(Err(failure)) => {
                answer.fail(self.explained(failure, &slot.worker).await);
                slot.worker.kill().await;
                true
            }
            Outcome::TimedOut => {
                self.time_out(&mut slot).await;
                answer.fail(Failure::TimedOut);
                true
            }
            Outcome::Cut => {
                if let Some(info) = slot.worker.info() {
                    info.life.dismiss(Dismissal::Recycled);
                }
                slot.worker.kill().await;
                let pid = slot.worker.info().map_or(0, |info| info.pid());
                answer.fail(Failure::Died { pid, how: "the server ends".into() });
                return;
            }
        };
        drop((answer, request));
        if let Some(info) = slot.worker.info().map(Arc::clone) {
            info.busy_since.store(0, Ordering::Relaxed);
            if !lost {
                info.requests.fetch_add(1, Ordering::Relaxed);
                self.recycle(&mut slot, &info).await;
            }
            info.life.set_state(WorkerState::Idle);
        }
        self.refill(slot).await;
    }

    /// Records the outcome of a request in its span.
    fn end_span(span: Option<Span>, worker: &Worker, outcome: &Outcome) {
        let Some(mut span) = span else { return };
        if let Some(info) = worker.info() {
            span.set("process.pid", info.pid());
        }
        match outcome {
            Outcome::Served(Ok(())) => {
                if let Some(info) = worker.info() {
                    trace::answered(&mut span, info);
                }
            }
            Outcome::Served(Err(failure)) => trace::failed(&mut span, failure),
            Outcome::TimedOut => trace::failed(&mut span, &Failure::TimedOut),
            Outcome::Left => trace::abandoned(&mut span),
            Outcome::Cut => span.fail("server_ended", "the server ends"),
        }
    }

    /// Gives the request to the slot's process, or to its successor if it was gone before it could read any of it.
    async fn serve(
        &self,
        slot: &mut Slot,
        request: &mut Request,
        answer: &mut Answer,
    ) -> Result<(), Failure> {
        const TRIES: usize = 3;
        for _ in 0..TRIES {
            if !slot.worker.is_ready()
                && let Err(cause) = self.prepare(slot).await
            {
                error!(error = %cause, "PHP does not start");
                return Err(Failure::Died { pid: 0, how: format!("it does not start: {cause}") });
            }
            if let Some(info) = slot.worker.info() {
                info.set_request(CurrentRequest::new(&request.parts, &request.context));
                info.busy_since.store(self.now(), Ordering::Relaxed);
                info.life.set_state(WorkerState::Busy);
            }
            match slot.worker.exchange(request, answer).await {
                Err(Failure::NotSent) if request.body.is_whole() => slot.worker.kill().await,
                served => return served,
            }
        }
        Err(Failure::NotSent)
    }

    /// Waits until the process can accept the next request. Returns `true` if the process is lost.
    async fn wait_until_ready(&self, slot: &mut Slot, deadline: Option<u64>, whole: bool) -> bool {
        let settled = tokio::select! {
            biased;
            settled = slot.worker.wait_until_ready(whole) => Some(settled),
            () = self.clock.reached(deadline) => None,
            () = self.cut.cancelled() => Some(Err("the server ends".into())),
        };
        match settled {
            Some(Ok(())) => return false,
            Some(Err(cause)) => {
                debug!(error = %cause, "worker is not there after its request");
                slot.worker.kill().await;
            }
            None => self.time_out(slot).await,
        }
        true
    }

    /// Kills a process whose request took too long.
    async fn time_out(&self, slot: &mut Slot) {
        if !slot.worker.info().is_some_and(|info| self.core.time_out(info)) {
            // There was no process yet.
            self.timeouts.fetch_add(1, Ordering::Relaxed);
        }
        slot.worker.kill().await;
    }

    /// Adds which process died, and how.
    async fn explained(&self, failure: Failure, worker: &Worker) -> Failure {
        match (failure, worker.info()) {
            (Failure::Died { how, .. }, Some(info)) if how.is_empty() => {
                Failure::Died { pid: info.pid(), how: how_it_ended(info, &self.clock).await }
            }
            (Failure::Died { pid: 0, how }, Some(info)) => Failure::Died { pid: info.pid(), how },
            (failure, _) => failure,
        }
    }

    /// Ends a process that has served its number of requests or uses too much memory.
    async fn recycle(&self, slot: &mut Slot, info: &WorkerInfo) {
        let served = info.requests.load(Ordering::Relaxed);
        let why = if served >= info.max_requests {
            "max_requests"
        } else if self.exceeds_memory_limit(info) {
            "memory_limit"
        } else {
            return;
        };
        Core::replaced(info, why);
        info.life.dismiss(Dismissal::Recycled);
        slot.worker.kill().await;
    }
}
