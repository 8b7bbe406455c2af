//! Answers as origins might garble them: read the same however they arrive, and bodies that we send as whoever reads them gets them.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    egress::fuzzing::answer(input);
    egress::fuzzing::chunks(input);
});
