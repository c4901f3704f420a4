//! `linerate::fuzz::facts`
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| linerate::fuzz::facts(bytes));
