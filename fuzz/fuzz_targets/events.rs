//! `linerate_host::fuzz::events`
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| linerate_host::fuzz::events(bytes));
