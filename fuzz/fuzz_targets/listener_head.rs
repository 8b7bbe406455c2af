//! Invalid heads of the egress broker's callers: the result equals hyper's, and the forwarded head is valid.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| egress::fuzzing::head(input));
