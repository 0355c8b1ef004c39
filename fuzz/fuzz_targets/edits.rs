#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| control::fuzz_edits(input));
