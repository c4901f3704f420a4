//! `linerate::fuzz::setting_key`
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| linerate::fuzz::setting_key(bytes));
