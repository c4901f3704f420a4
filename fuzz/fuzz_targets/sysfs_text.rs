//! `linerate_host::fuzz::sysfs_text`
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| linerate_host::fuzz::sysfs_text(bytes));
