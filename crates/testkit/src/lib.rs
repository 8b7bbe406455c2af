//! For tests only: peers that behave on cue, the peers Hearth is compared with, and clients that show every byte.

mod http1;
mod php_fpm;
mod process;
mod programs;

pub use http1::{Answer, Client, head};
pub use php_fpm::PhpFpm;
pub use process::{Log, ProcessFacts, Running, eventually};
pub use programs::{fake_worker, php_worker};
