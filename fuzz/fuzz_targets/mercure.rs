//! A stranger's token, query and form for the Mercure hub.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| channels::fuzzing::mercure(input));
