//! The pool owns PHP: it starts zygotes, makes them fork workers, gives each request to one idle worker, and replaces
//! workers that end.
//!
//! Invariants
//! - A worker begins one request at a time. A request that was written ahead to it can be taken back until it is begun.
//! - Every dispatched request gets exactly one response or one [`DispatchError`], even if its worker dies.
//! - A client that disconnects never costs a worker.
//! - Nothing here distinguishes HTTP/1 from HTTP/2 or Lambda: fronts translate.

mod ahead;
mod backend;
mod backlog;
mod body;
mod boot_files;
mod boot_trace;
mod clock;
mod context;
mod databases;
mod error;
mod events;
mod exchange;
mod foreign;
mod frames;
mod groups;
mod identity;
mod info;
mod lease;
mod lifecycle;
mod long_buffers;
mod memory;
mod memory_file;
mod model;
mod oom;
mod options;
mod output;
mod overload;
mod pauses;
mod php_settings;
mod pool;
mod process_stat;
mod processor_time;
mod program;
mod queue;
mod recent;
mod sandbox;
mod scaler;
mod scheduling;
mod seats;
mod shared;
mod shared_counters;
mod slow;
mod source;
mod status;
mod supervisor;
mod sys;
mod trace;
mod variables;
mod verified;
mod worker;
mod zygote;

pub use body::{Cut, ResponseBody};
pub use boot_files::BootFiles;
pub use boot_trace::BootTrace;
pub use context::{
    CompleteBody, HintFn, HintSender, RequestContext, RequestId, ResponseObserver, Scheme, Script,
};
pub use databases::{DatabaseServer, DatabaseStatus, ResetTimes};
pub use error::{DispatchError, StartError};
pub use events::{EventSink, PublishedEvent, PurgeSink, Refused};
pub use identity::Identity;
pub use memory::{MemoryStatus, ProcessMemory, SnapshotMemory};
pub use model::Model;
pub use options::{ByteSize, Entry, EntryScripts, Options, Others, Scaling};
pub use output::{Level, each_line, own_level};
pub use pauses::pause_after;
pub use php_settings::give_settings;
pub use pool::{Pool, Reason};
pub use program::{LaunchError, Launcher, Program, ProgramOptions};
pub use sandbox::{Sandbox, SandboxError};
pub use slow::SlowRequest;
pub use status::{
    Ending, GroupState, GroupStatus, PoolStatus, Running, WorkerEnd, WorkerState, WorkerStatus,
};
pub use verified::VerifiedRestores;

/// Entry points of fuzz targets.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::foreign::fuzzing::{fastcgi, head};
}
