//! Mail servers as they might garble their replies: read the same however they arrive, and no conversation goes wrong but by saying so.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| mail::fuzzing::server(input));
