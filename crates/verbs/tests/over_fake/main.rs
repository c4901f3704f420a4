//! Every type of this crate, over the library that stands in for libibverbs: that bytes go where they shall,
//! that what goes wrong is said, that everything is returned. Each test has devices of its own.

mod ends;
mod faults;
mod life;
mod manager;
mod moves;
mod order;
mod refusals;
mod telling;
