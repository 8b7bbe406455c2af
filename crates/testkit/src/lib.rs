//! For tests only: peers that behave on cue.

mod programs;

pub use programs::{fake_worker, php_worker};
