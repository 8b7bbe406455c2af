//! `Hearth-Control`, with `TOKEN` for the right token: nothing counts without it.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| egress::fuzzing::options(input));
