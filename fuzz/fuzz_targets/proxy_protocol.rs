//! A PROXY protocol header, version 1 or 2, as the first bytes of a connection.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| front_http::fuzzing::proxy_protocol(input));
