//! The page of an experiment: its tables, curves, matrices and maps.

pub(crate) mod charts;
pub(crate) mod course;
pub(crate) mod curves;
pub(crate) mod data;
pub(crate) mod difference;
pub(crate) mod draw;
pub(crate) mod grid;
pub(crate) mod hosts;
pub(crate) mod map;
pub(crate) mod matrix;
pub(crate) mod others;
pub(crate) mod page;
pub(crate) mod sizes;
