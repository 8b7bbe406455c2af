//! The limits of docs/internals/frames.md. `native/wire/frame.h` has the same.

/// Version in HELLO. A worker of another version is not used.
pub const VERSION: u16 = 10;
/// Length of a frame header in bytes.
pub const HEADER_LEN: usize = 8;
/// Maximum payload of any frame in bytes.
pub const MAX_PAYLOAD: usize = 1_048_576;
/// Maximum payload of a BODY frame in bytes, in both directions.
pub const MAX_BODY: usize = 65_536;
/// Maximum number of name/value pairs in a REQUEST, HEAD or INFORM, and of channels in a PUBLISH.
pub const MAX_PAIRS: usize = 1_024;
/// Content length of a request whose body's length is unknown.
pub const NO_LENGTH: u64 = u64::MAX;
/// Maximum payload of a CALL in bytes.
pub const MAX_CALL: usize = 131_072;
/// Maximum payload of an OPEN in bytes.
pub const MAX_TOKEN: usize = 1_024;
