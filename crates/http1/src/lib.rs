//! HTTP/1.1 messages from bytes to values and back (RFC 9112), for clients and servers: heads, bodies, chunked coding, limits.
//!
//! Sans I/O: a reader takes what has arrived and returns a value, or asks for more. Knows nothing of sockets, clocks, runtimes, and of
//! which side of the connection it is used on.
//!
//! Invariants
//! - However the bytes arrive, the same message is read.
//! - A message whose length two readers could understand in two ways is rejected (RFC 9112, 6.3 and 11.2).
//! - Everything that a peer decides the size of has a limit.

mod fields;
mod head_end;
mod request;
mod response;
mod shared;
mod spelling;

mod decoder;
mod encoder;

mod collect;

#[cfg(any(test, fuzzing))]
mod checks;

/// Entries for fuzz targets.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::checks::{chunks, collected, request, response};
}

pub use collect::{CollectError, Collector, Response, parse_response};
pub use decoder::{BadChunk, Decoder, Piece};
pub use encoder::{Encoder, TooShort, WriteBuffer, put_chunk_size};
pub use fields::{
    content_length, lenient_field, put_all, put_field, put_request_line, put_spelled,
    put_status_line,
};
pub use head_end::head_end;
pub use request::{EMPTY_FIELD, Facts, Field, RequestHead, check, parse, strict_end, to_parts};
pub use response::{BadHead, Framing, HeadLimits, ResponseHead, ResponseReader, parse_status};
pub use spelling::{Spelling, put_title_case};
