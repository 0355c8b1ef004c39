#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| iscsi::fuzz::login_text(input));
