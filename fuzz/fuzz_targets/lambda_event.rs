//! What AWS Lambda sends: events of any shape, and answers of its Runtime API.
//!
//! The first byte of the input chooses which.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((&which, rest)) = input.split_first() else { return };
    if which % 2 == 0 { front_lambda::fuzzing::event(rest) } else { front_lambda::fuzzing::answer(rest) }
});
