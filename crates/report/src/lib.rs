//! Documents in; text, JSON, HTML, SVG, DOT, SARIF, JUnit and Prometheus metrics out.
//!
//! `map` shows a host, `doctor` its findings, `check` both in brief, `failover` the page of interruptions, `lab` the page of an experiment, `measurement` that of a
//! measurement, `mesh` a mesh of hosts, `nic` one NIC and its state, `page` and `text` a run of `prove`, `metrics` a document for Prometheus, `junit` the cases of a suite, `served`
//! what only a server has. No file, socket, clock or random number generator is used.

#![expect(
    clippy::format_push_string,
    reason = "a page is made once; `write!` would give every line a Result that cannot fail"
)]

mod chart;
mod check;
pub mod data;
pub mod doctor;
pub mod failover;
mod figures;
pub mod fill;
pub mod flat;
mod gaps;
mod html;
pub mod junit;
mod lab;
mod map;
pub mod measurement;
pub mod mesh;
pub mod metrics;
pub mod nic;
pub mod page;
pub mod picture;
mod prove_charts;
mod sections;
mod served;
mod text;
mod verdict;

pub use check::check_text;
pub use data::ReportData;
pub use figures::{EXPECTED_FLAGS, flag_in_words, flag_name};
pub use gaps::{Nulled, nulled};
pub use lab::data::LabData;
pub use lab::page::lab_page;
pub use map::dot::map_dot;
pub use map::json::{MAP_SCHEMA, MapDocument, MemoryBandwidth, MemoryCell, MemoryCells, map_json};
pub use map::picture::{HotPath, Layout, PathEnd, map_svg, path_svg};
pub use map::text::{MapExtras, map_text, map_text_with};
pub use map::watch::WatchDocument;
pub use page::render_page;
pub use served::{Form, front_page, progress_page};
pub use text::render_text;
