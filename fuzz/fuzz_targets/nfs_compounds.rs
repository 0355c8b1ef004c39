#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    nfsd::testing::fuzz(input);
});
