//! The listeners on a run: terminal, JSON, and one self-contained page.

#![expect(
    clippy::format_push_string,
    reason = "a page is made once; `write!` would give every line a Result that cannot fail"
)]

pub mod data;
pub mod doctor;
mod figures;
pub mod fill;
pub mod flat;
mod gaps;
mod html;
mod map_devices;
mod map_dot;
mod map_interface;
mod map_json;
mod map_machine;
mod map_nic;
mod map_svg;
mod map_text;
pub mod page;
mod sections;
mod text;
mod verdict;

pub use data::ReportData;
pub(crate) use figures::{detectable, effect_figure};
pub use gaps::nulled;
pub use map_dot::map_dot;
pub use map_json::{MAP_SCHEMA, MapDocument, map_json};
pub use map_svg::{Layout, MapEnd, host_map_svg, map_svg};
pub use map_text::map_text;
pub(crate) use map_text::words;
pub use page::render_page;
pub use text::render_text;
