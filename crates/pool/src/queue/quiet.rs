//! The end of a queue: no new requests, no request left, nothing answered any more.

use std::sync::Arc;

use crate::shared::Shared;

/// Registers a task that waits for quiet.
struct Watching<'s>(&'s Shared);

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        self.0.queue.lock().expect("no holder panics").watched -= 1;
    }
}

impl Shared {
    /// Rejects new requests from now on.
    pub(crate) fn start_draining(&self) {
        self.queue.lock().expect("no holder panics").draining = true;
    }

    /// Waits until no request runs or waits. Cancel safe.
    pub(crate) async fn is_quiet(&self) {
        let mut watching = None;
        loop {
            let quiet = self.quiet.notified();
            {
                let mut queue = self.queue.lock().expect("no holder panics");
                if queue.leased == 0 && queue.waiting.is_empty() {
                    drop(queue);
                    return;
                }
                queue.watched += usize::from(watching.is_none());
                drop(queue);
            }
            watching.get_or_insert(Watching(self));
            quiet.await;
        }
    }

    /// Rejects all waiting requests and ends every idle worker; workers returned later are ended too.
    pub(crate) fn close(self: &Arc<Self>) {
        let (idle, waiting) = {
            let mut queue = self.queue.lock().expect("no holder panics");
            queue.draining = true;
            queue.closed = true;
            queue.lines.close();
            (std::mem::take(&mut queue.idle), std::mem::take(&mut queue.waiting))
        };
        drop(waiting);
        for worker in idle {
            self.end(worker);
        }
    }
}
