//! Frames of a WebSocket client.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| channels::fuzzing::websocket(input));
