//! `Forwarded` and `X-Forwarded-For` as a trusted proxy might garble them.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| front_http::fuzzing::forwarded(input));
