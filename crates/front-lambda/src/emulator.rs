//! The platform's side of the Runtime API, for local work. It serves a runtime, and turns HTTP requests into the
//! events of API Gateway, of a Function URL and of an Application Load Balancer.
//!
//! ```text
//! browser -> web -> integration: event ─┐                    ┌─ runtime_api <- runtime: next, response, error
//! POST …/invocations -> invocations ────┴─> environment <────┴─ extensions_api <- extensions
//!                                   (which call is legal, what waits, what ran too long)
//! ```
//!
//! Invariants
//! - Each accepted invocation gets exactly one response, and one `REPORT` line.
//! - `environment`, `integration` and `report` are pure: they take input and the time, and return what is to be done.
//! - The emulator knows the runtime only through the Runtime API; whether that is PHP makes no difference.

mod answer;
mod driver;
mod environment;
mod extensions_api;
mod function_error;
mod ids;
mod integration;
mod invocations;
mod options;
mod prelude;
mod reply;
mod report;
mod runtime_api;
mod samples;
mod shared;
mod time;
mod web;

pub use driver::{Emulator, Handle};
pub use function_error::FunctionError;
pub use integration::{Integration, UnknownIntegration};
pub use options::{Function, Options};
pub use report::LogTail;
pub use samples::{SAMPLES, Sample, sample};
