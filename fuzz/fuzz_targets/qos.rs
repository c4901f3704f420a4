//! `linerate::fuzz::qos`
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| linerate::fuzz::qos(bytes));
