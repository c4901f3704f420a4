//! `linerate::fuzz::store`
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| linerate::fuzz::store(bytes));
