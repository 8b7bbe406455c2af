//! The pool owns PHP: it starts zygotes, has them fork workers, hands each request to one idle worker, and replaces workers that end.
//!
//! Invariants
//! - A worker serves at most one request at a time.
//! - Every dispatched request gets exactly one answer or one [`DispatchError`], even when its worker dies.
//! - A client that goes away never costs a worker.
//! - Nothing here knows HTTP/1 from HTTP/2 or Lambda: fronts translate.

mod context;
mod error;
mod options;
mod status;
mod body;
mod pool;

pub use body::ResponseBody;
pub use context::{HintSender, RequestContext, RequestId, Scheme, Script};
pub use error::{DispatchError, StartError};
pub use options::{Bytes as ByteSize, Model, Options};
pub use pool::Pool;
pub use status::{PoolStatus, WorkerState, WorkerStatus};
