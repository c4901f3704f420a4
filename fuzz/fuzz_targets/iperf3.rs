//! `linerate::fuzz::iperf3`
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| linerate::fuzz::iperf3(bytes));
