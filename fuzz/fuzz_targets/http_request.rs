//! `linerate_traffic::http::fuzz::http_request`
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| linerate_traffic::http::fuzz::http_request(bytes));
