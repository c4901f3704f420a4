//! Makes the report page from a file of `ReportData` JSON, for the browser tests of `web/`.
//!
//! usage: `cargo run -p linerate-report --example report_page -- DATA.json > page.html`

#![expect(
    clippy::disallowed_methods,
    reason = "an example reads a file and prints"
)]

use std::error::Error;
use std::io::Write;

use linerate_report::{ReportData, render_page};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args()
        .nth(1)
        .ok_or("usage: report_page DATA.json > page.html")?;
    let data: ReportData = serde_json::from_str(&std::fs::read_to_string(path)?)?;
    std::io::stdout().write_all(render_page(&data).as_bytes())?;
    Ok(())
}
