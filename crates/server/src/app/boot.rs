//! Prepares the start of an application's workers: Hearth's files, the pool's options, the broker; and describes failed boots.
//!
//! Invariants
//! - Only the broker's socket is opened here; otherwise this creates options, and files in the run folder.

mod entries;
mod files;
mod options;
mod programs;
mod reason;
mod requests;

pub(crate) use self::entries::{boot_known, entry_scripts, with_others};
pub(crate) use self::files::{
    OwnFiles, PRELOAD_LIST, RUN_DIR_HINT, bind_broker, no_run_dir, own_files, run_dir,
};
pub(crate) use self::options::{DATABASES, pool_options, sandbox};
pub(crate) use self::programs::{Surroundings, program, program_options};
pub(crate) use self::reason::Reason;
pub(crate) use self::requests::{boot_failure, explained_boot_failure, service_of};
