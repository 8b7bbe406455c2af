//! An unsafe request and the stored answers that it makes invalid (RFC 9111, section 4.4).
//!
//! Invariants
//! - Its response counts also if its client has left: the application has changed what it answers.
//! - It removes answers once, before its client gets the response.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use answer_cache::{Key, invalidates, other_targets};
use http::{HeaderMap, Method, StatusCode};
use pool::ResponseObserver;

use super::AnswerCache;

/// An unsafe request whose response has not arrived.
#[derive(Debug)]
pub(crate) struct Invalidation {
    cache: Arc<AnswerCache>,
    key: Key,
    method: Method,
    host: Box<[u8]>,
    has_head: AtomicBool,
}

impl Invalidation {
    /// Returns `None` for a safe method.
    pub(crate) fn of(
        cache: &Arc<AnswerCache>,
        key: Key,
        method: &Method,
        host: &[u8],
    ) -> Option<Arc<Self>> {
        invalidates(method, StatusCode::OK).then(|| {
            let (cache, method) = (Arc::clone(cache), method.clone());
            Arc::new(Self {
                cache,
                key,
                method,
                host: host.into(),
                has_head: AtomicBool::default(),
            })
        })
    }
}

impl ResponseObserver for Invalidation {
    fn head(&self, status: StatusCode, headers: &HeaderMap) {
        if self.has_head.swap(true, Ordering::Relaxed) || !invalidates(&self.method, status) {
            return;
        }
        let others = other_targets(headers, &self.host);
        others
            .iter()
            .filter_map(|path| self.key.at(path))
            .for_each(|key| self.cache.invalidate(&key));
        self.cache.invalidate(&self.key);
    }

    fn failed(&self) {}
}
