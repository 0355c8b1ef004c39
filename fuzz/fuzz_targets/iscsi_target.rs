#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| iscsi::testing::fuzz::iscsi_target(input));
