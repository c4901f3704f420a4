//! Makes the report page from a file of `ReportData` JSON: what the browser tests of `web/` look at.
//!
//! usage: `cargo run -p linerate --example report_page -- DATA.json > page.html`

use std::io::Write;

use anyhow::Context;
use linerate::report::{ReportData, render_page};

fn main() -> anyhow::Result<()> {
    let path = std::env::args()
        .nth(1)
        .context("usage: report_page DATA.json > page.html")?;
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let data: ReportData =
        serde_json::from_str(&text).with_context(|| format!("{path} is no report data"))?;
    std::io::stdout()
        .write_all(render_page(&data).as_bytes())
        .context("cannot write the page")
}
