//! Events of any shape, as AWS Lambda sends them. The first byte of the input is ignored.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((_, event)) = input.split_first() else { return };
    front_lambda::fuzzing::event(event);
});
