//! libhearth: the C ABI over the egress engine.
//!
//! Knows nothing of PHP, workers, doors and configuration files.
//!
//! Invariants
//! - No panic crosses the boundary.
//! - What C gets it owns, borrows for the length of a callback, or gives away: each function says which of the three.
