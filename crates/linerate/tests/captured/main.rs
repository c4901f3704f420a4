//! The rules, the program and its documents on captured hosts: archives under `fixtures/hosts`, read by
//! the real reader, never the machine that the tests run on (but for one loopback measurement).

#![expect(
    clippy::print_stderr,
    reason = "a skip is said aloud, never passed over"
)]

mod archives;
mod cases;
mod ceiling;
mod corpus;
mod doctor;
mod documents;
mod map;
mod metrics_page;
mod nic;
mod picture;
mod program;
mod rules;
mod rules_page;
mod runs;
mod schemas;
