//! Which servers a TLS client trusts: by authorities, with or without their names, by pinned keys, or all.
//!
//! Invariants
//! - Knows no sockets, files or settings, and not which protocol is spoken over TLS.
//! - The signatures of a handshake are always verified: without them any peer could present any certificate.

mod verifier;

pub use verifier::{Verifier, roots};
