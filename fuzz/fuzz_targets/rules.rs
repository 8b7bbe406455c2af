//! Rules of the operator (rates, passwords, redirects, fields), and a request that they may be for.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| front_http::fuzzing::rules(input));
