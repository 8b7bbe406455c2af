//! `Range` and `Accept-Encoding`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| front_http::fuzzing::fields(input));
