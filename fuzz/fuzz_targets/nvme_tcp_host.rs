#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| nvmf::tcp::testing::fuzz::host(input));
