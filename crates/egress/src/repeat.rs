//! Whether a failed call may be repeated: "Never twice" of docs/internals/egress.md.

use http::Method;

/// How often an origin may report that it did not process a call.
const REFUSALS: u8 = 3;
/// How often a connection may turn out to be closed before anything was written.
const UNWRITTEN: u8 = 8;

/// How far a call had got when it failed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Progress {
    /// Nothing of it was written.
    Unwritten,
    /// The origin reported that it did not process the call (`REFUSED_STREAM`, a GOAWAY below it: RFC 9113, 8.7).
    Unprocessed,
    /// The origin requires HTTP/1.1 (`HTTP_1_1_REQUIRED`).
    WantsHttp1,
    /// Something was written, and nothing was received.
    Written,
    /// Something was received.
    Answered,
}

/// The attempts of one call.
#[derive(Debug, Default)]
pub(crate) struct Tries {
    unwritten: u8,
    refused: u8,
    written: bool,
}

impl Tries {
    /// Decides after a failure. `kept`: the connection was reused. `intact`: the whole body can be sent again.
    pub(crate) fn again(
        &mut self,
        progress: Progress,
        method: &Method,
        kept: bool,
        intact: bool,
    ) -> bool {
        let first = !self.written;
        match progress {
            Progress::Unwritten => {
                self.unwritten += 1;
                intact && self.unwritten < UNWRITTEN
            }
            Progress::Unprocessed | Progress::WantsHttp1 => {
                self.refused += 1;
                intact && self.refused < REFUSALS
            }
            Progress::Written => {
                self.written = true;
                first && kept && intact && idempotent(method)
            }
            Progress::Answered => {
                self.written = true;
                false
            }
        }
    }

    /// The origin may have seen the call, so it must not be repeated.
    pub(crate) fn sent(&self) -> bool {
        self.written
    }
}

/// Returns whether a method is idempotent: RFC 9110, 9.2.2, and QUERY. An unknown method is not.
pub(crate) fn idempotent(method: &Method) -> bool {
    matches!(
        *method,
        Method::GET | Method::HEAD | Method::PUT | Method::DELETE | Method::OPTIONS | Method::TRACE
    ) || matches!(method.as_str(), "PROPFIND" | "REPORT" | "SEARCH" | "QUERY")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_never_sent_twice() {
        use Progress::{Answered, Unprocessed, Unwritten, WantsHttp1, Written};
        let purge = Method::from_bytes(b"PURGE").expect("a method");
        for (progress, method, kept, intact, again) in [
            // Nothing was written: any method, on any connection.
            (Unwritten, &Method::POST, true, true, true),
            (Unwritten, &Method::POST, false, true, true),
            (Unwritten, &Method::GET, true, true, true),
            // A consumed body cannot be sent again.
            (Unwritten, &Method::POST, true, false, false),
            (Unprocessed, &Method::POST, true, false, false),
            (Written, &Method::PUT, true, false, false),
            // The origin said that it did nothing.
            (Unprocessed, &Method::POST, true, true, true),
            (Unprocessed, &Method::POST, false, true, true),
            (WantsHttp1, &Method::POST, false, true, true),
            // Written on a kept connection: only what may happen twice.
            (Written, &Method::GET, true, true, true),
            (Written, &Method::HEAD, true, true, true),
            (Written, &Method::PUT, true, true, true),
            (Written, &Method::DELETE, true, true, true),
            (Written, &Method::OPTIONS, true, true, true),
            (Written, &Method::POST, true, true, false),
            (Written, &Method::PATCH, true, true, false),
            (Written, &purge, true, true, false),
            // On a new one the origin itself has failed.
            (Written, &Method::GET, false, true, false),
            // An answer that broke off is the application's business.
            (Answered, &Method::GET, true, true, false),
        ] {
            let decided = Tries::default().again(progress, method, kept, intact);
            assert_eq!(decided, again, "{progress:?} {method} kept={kept} intact={intact}");
        }
    }

    #[test]
    fn a_call_is_repeated_at_most_once() {
        let mut tries = Tries::default();
        assert!(tries.again(Progress::Written, &Method::GET, true, true));
        assert!(tries.sent());
        assert!(!tries.again(Progress::Written, &Method::GET, true, true));
    }

    #[test]
    fn retries_of_a_refusing_origin_are_bounded() {
        let mut tries = Tries::default();
        let again =
            (0..10).take_while(|_| tries.again(Progress::Unprocessed, &Method::POST, true, true));
        assert_eq!(again.count(), 2);
        assert!(!tries.sent());

        let mut tries = Tries::default();
        let again =
            (0..100).take_while(|_| tries.again(Progress::Unwritten, &Method::POST, true, true));
        assert_eq!(again.count(), 7);
    }

    #[test]
    fn a_retried_call_that_was_written_counts_as_sent() {
        let mut tries = Tries::default();
        assert!(tries.again(Progress::Unprocessed, &Method::POST, true, true));
        assert!(!tries.sent());
        assert!(!tries.again(Progress::Written, &Method::POST, true, true));
        assert!(tries.sent());
    }
}
