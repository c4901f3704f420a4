//! `linerate::fuzz::channel`
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| linerate::fuzz::channel(bytes));
