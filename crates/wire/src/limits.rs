//! The numbers of docs/internals/frames.md. `native/wire/frames.h` holds the same.

/// Version that HELLO names. A worker of another version is not used.
pub const VERSION: u16 = 4;
/// Bytes before every payload.
pub const HEADER_LEN: usize = 8;
/// Bytes of payload in any frame.
pub const MAX_PAYLOAD: usize = 1_048_576;
/// Bytes of payload in a BODY frame, either way.
pub const MAX_BODY: usize = 65_536;
/// Name/value pairs in a REQUEST, HEAD or INFORM; channels in a PUBLISH.
pub const MAX_PAIRS: usize = 1_024;
/// Content length of a request whose body's length is not known.
pub const NO_LENGTH: u64 = u64::MAX;
/// Bytes of payload in a CALL.
pub const MAX_CALL: usize = 131_072;
/// Bytes of payload in an OPEN.
pub const MAX_TOKEN: usize = 1_024;
