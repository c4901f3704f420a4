//! Text as every output writes it.

pub mod table;
pub mod timestamp;
pub mod visible;
pub mod words;
