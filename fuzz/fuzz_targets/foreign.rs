//! Output of PHP's own programs: FastCGI records, and response heads, with the same result however they are split.
//!
//! The first byte of the input chooses which.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((&which, rest)) = input.split_first() else { return };
    if which % 2 == 0 { pool::fuzzing::fastcgi(rest) } else { pool::fuzzing::head(rest) }
});
