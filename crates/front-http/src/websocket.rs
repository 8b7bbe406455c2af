//! WebSockets that the application itself handles: connect, message and close are requests to it, and it sends
//! messages to any open connection by its id.
//!
//! ```text
//! upgrade -> routes, origins, registry -> event `connect` -> 101 -> session: messages -> event `message` -> its answer
//! hearth_socket_send() -> server -> registry -> outbox -> session -> socket
//! ```
//!
//! Invariants
//! - The events of one connection are handled in order, one at a time, each as a separate request.
//! - After an accepted `connect` there is exactly one `close`, unless the server is killed or its patience ends.
//! - Both directions are bounded: a client is not read from while its messages wait, and what waits for a client that
//!   does not read is limited.
//! - An id cannot be guessed, and is known only to the application whose connection it is.

pub(crate) mod events;
mod origins;
mod outbox;
mod rate;
mod registry;
mod routes;
pub(crate) mod session;

pub use origins::{InvalidOrigin, OriginRule};
pub use registry::{NotSent, SocketReport, WebSockets};
pub use routes::{InvalidRoute, WebSocketLimits, WebSocketOptions, WebSocketRoute};

pub(crate) use origins::allows;
pub(crate) use registry::NoSeat;
