//! Every type of this crate, over the library that replaces libibverbs: bytes arrive where they should,
//! errors are reported, everything is released. Each test has its own devices.

mod ends;
mod events;
mod faults;
mod life;
mod manager;
mod moves;
mod order;
mod refusals;
