//! The Lambda front through its public face: real sockets, and peers that behave on cue.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod bootstrap;
mod emulator;
