//! Learned preloading (`php.preload`): OPcache declares, when PHP starts, functions and classes of files that requests include.
//!
//! Invariants
//! - A file is preloaded only if nothing in the application's folders tells whether its declarations are there early: see `choice`.
//! - Pages are compared with and without preloading before it is used; a difference switches it off.
//! - Nothing is written but one file in Hearth's own folder of the generation.

mod choice;
mod compare;
mod composer;
mod learn;
mod source;

pub(crate) use self::learn::{Learned, Listing, learn, obstacle};
