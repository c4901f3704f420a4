//! `linerate`: what people type.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    linerate::run()
}
