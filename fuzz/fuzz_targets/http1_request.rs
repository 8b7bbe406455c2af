//! A request head that passes the strict check is read by httparse in the same way.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| http1::fuzzing::request(input));
