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
mod lab_charts;
mod lab_course;
mod lab_curves;
mod lab_difference;
mod lab_draw;
mod lab_grid;
mod lab_hosts;
mod lab_map;
mod lab_matrix;
mod lab_others;
mod lab_page;
mod lab_seen;
mod lab_sizes;
mod map_card;
mod map_devices;
mod map_dot;
mod map_flow;
mod map_gaps;
mod map_interface;
mod map_json;
mod map_machine;
mod map_nic;
mod map_one;
mod map_picture;
mod map_queues;
mod map_stacked;
mod map_svg;
mod map_text;
mod map_watch;
pub mod page;
pub(crate) mod picture;
mod sections;
mod served;
mod text;
mod verdict;

pub use data::ReportData;
pub(crate) use figures::flag_in_words;
pub use gaps::nulled;
pub use lab_page::lab_page;
pub use lab_seen::Seen;
pub use map_dot::map_dot;
pub use map_json::{MAP_SCHEMA, MapDocument, map_json};
pub use map_picture::map_svg;
pub use map_svg::{HotPath, Layout, MapEnd, host_map_svg};
pub use map_text::{Beside, map_text, map_text_with};
pub use map_watch::watch_json;
pub use page::render_page;
pub(crate) use served::{Form, front_page, progress_page};
pub use text::render_text;
