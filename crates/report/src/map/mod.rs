//! The map of a host: text, JSON, SVG and DOT.

pub(crate) mod card;
pub(crate) mod devices;
pub(crate) mod dot;
pub(crate) mod flow;
pub(crate) mod gaps;
pub(crate) mod interface;
pub(crate) mod json;
pub(crate) mod machine;
pub(crate) mod nic;
pub(crate) mod one;
pub(crate) mod picture;
pub(crate) mod queues;
pub(crate) mod stacked;
pub(crate) mod svg;
pub(crate) mod text;
pub(crate) mod watch;
