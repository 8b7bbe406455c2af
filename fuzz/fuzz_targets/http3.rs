//! Packets and streams of HTTP/3, before quinn and h3 read them.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| front_http::fuzzing::http3(input));
