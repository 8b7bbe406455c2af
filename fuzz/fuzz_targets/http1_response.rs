//! Malformed responses are read the same however they arrive, and bodies that Hearth sends are read as they were written.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    http1::fuzzing::response(input);
    http1::fuzzing::chunks(input);
    http1::fuzzing::collected(input);
});
