//! What PHP's own programs send: FastCGI records, and heads of answers, which are the same in whatever pieces they come.
//!
//! The first byte of the input chooses which.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((&which, rest)) = input.split_first() else { return };
    if which % 2 == 0 { pool::fuzzing::fastcgi(rest) } else { pool::fuzzing::head(rest) }
});
