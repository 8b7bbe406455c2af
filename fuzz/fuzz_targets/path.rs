//! A request target's path: cleaned, it never climbs out of the document root.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| front_http::fuzzing::path(input));
