#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| scsi::testing::fuzz_cdb(input));
