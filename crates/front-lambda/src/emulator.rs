//! The other side of the Runtime API, for local work: plays it to a runtime, and turns HTTP requests into the events of API Gateway,
//! of a Function URL and of an Application Load Balancer.
//!
//! ```text
//! browser -> web -> integration: event ─┐                    ┌─ runtime_api <- runtime: next, response, error
//! POST …/invocations -> invocations ────┴─> environment <────┴─ extensions_api <- extensions
//!                                   (which call is legal, what waits, what ran too long)
//! ```
//!
//! Invariants
//! - Each invocation that was taken gets exactly one answer, and one `REPORT` line.
//! - `environment`, `integration` and `report` are pure: they take what came and the time, and return what is to be done.
//! - It knows of the runtime only what comes over the Runtime API; what runs there, PHP or not, is nothing to it.

mod driver;
mod environment;
mod extensions_api;
mod integration;
mod invocations;
mod options;
mod prelude;
mod reply;
mod report;
mod runtime_api;
mod samples;
mod time;
mod web;

pub use driver::{Emulator, Handle};
pub use environment::FunctionError;
pub use integration::{Integration, UnknownIntegration};
pub use options::{Function, Options};
pub use report::LogTail;
pub use samples::{SAMPLES, Sample, sample};
