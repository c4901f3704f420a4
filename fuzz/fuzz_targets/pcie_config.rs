//! `linerate_host::fuzz::pcie_config`
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| linerate_host::fuzz::pcie_config(bytes));
