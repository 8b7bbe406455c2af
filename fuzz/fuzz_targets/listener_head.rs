//! Heads as callers of the egress broker might garble them: judged as hyper reads them, and what goes on is sound.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| egress::fuzzing::head(input));
