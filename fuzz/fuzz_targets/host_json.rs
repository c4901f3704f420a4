//! `linerate::fuzz::host_json`
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| linerate::fuzz::host_json(bytes));
