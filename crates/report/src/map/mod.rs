//! The map of a host: text, JSON, SVG and DOT.

pub(crate) mod devices;
pub(crate) mod dot;
pub(crate) mod gaps;
pub(crate) mod interface;
pub(crate) mod json;
pub(crate) mod machine;
pub(crate) mod one;
pub(crate) mod picture;
pub(crate) mod queues;
pub(crate) mod text;
pub(crate) mod watch;
