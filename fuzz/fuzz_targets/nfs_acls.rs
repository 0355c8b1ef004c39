#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| doubles::fuzz::nfs_acls(input));
