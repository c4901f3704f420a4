//! The page of a run: one HTML file that needs no network, no server and no program, and that contains
//! everything essential without JavaScript. With it, the charts are drawn by the bundle that `web/` builds.
//!
//! Nothing from a host is trusted here: every text goes through `html::escape`, the data through
//! `html::json_for_script`, and the page's own policy (CSP level 3) lets only the one bundled script run,
//! by its hash, and nothing be loaded or sent. A `report --serve` page of a running run may ask that server for more.

use serde::Serialize;
use serde_json::Value;

use super::data::ReportData;
use super::html::{escape, json_for_script};
use super::sections;

/// The charts, built by `web/` and committed, so that building linerate needs no Node.
const BUNDLE: &str = include_str!("bundle.js");
/// The bundle's SHA-256 in base64, written by the same build.
const BUNDLE_SHA256: &str = include_str!("bundle.sha256");
const STYLE: &str = include_str!("page.css");

/// Points of each trial in the data of a page; more only make it heavy.
const POINTS_MAX: usize = 600;

/// The data of a page.
#[derive(Serialize)]
struct PageData<'a> {
    report: &'a ReportData,
    /// The charts, in the order of their places.
    drawn: Vec<Value>,
}

/// The page of a run as one HTML document.
pub fn render_page(data: &ReportData) -> String {
    let mut drawn: Vec<Value> = Vec::new();
    let body = sections::body(data, &mut drawn);
    let mut report = data.clone();
    for trial in &mut report.trials {
        *trial = trial.thinned(POINTS_MAX);
    }
    let page_data = PageData {
        report: &report,
        drawn,
    };
    // Plain data of strings, numbers and lists always becomes JSON; were it not so, the page would
    // still contain everything in its tables.
    let json = serde_json::to_string(&page_data).unwrap_or_else(|_| "null".to_owned());
    shell(&data.title, &data.linerate_version, &body, &json)
}

/// What a page may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Nothing at all.
    Nothing,
    /// The server that it came from, by its script.
    OwnServer,
}

/// What a page may do: run its one script, look as it does, and show pictures that it holds (CSP level 3).
pub fn policy(reach: Reach) -> String {
    let hash = BUNDLE_SHA256.trim();
    let connect = match reach {
        Reach::Nothing => "",
        Reach::OwnServer => " connect-src 'self';",
    };
    format!(
        "default-src 'none'; script-src 'sha256-{hash}'; style-src 'unsafe-inline'; img-src data:;{connect} \
         base-uri 'none'; form-action 'none'"
    )
}

/// The page's body with a list of its sections after the first one, which has the result.
fn with_contents(body: &str) -> String {
    /// A shorter page shows where it ends.
    const FEW: usize = 4;
    const HEADING: &str = "<h2 id=\"";
    let headings = body.split(HEADING).skip(1).filter_map(|rest| {
        let (id, rest) = rest.split_once("\">")?;
        let (text, _) = rest.split_once("</h2>")?;
        Some(format!("<li><a href=\"#{id}\">{text}</a></li>"))
    });
    let headings: Vec<String> = headings.collect();
    let end = "</section>";
    let Some((result, rest)) = body.split_once(end).filter(|_| headings.len() >= FEW) else {
        return body.to_owned();
    };
    let list = headings.concat();
    format!(
        "{result}{end}\n<nav class=\"contents\" aria-label=\"Contents\"><ol>{list}</ol></nav>{rest}"
    )
}

/// A page around its body, with the data that its charts are drawn from.
pub(super) fn shell(title: &str, version: &str, body: &str, json: &str) -> String {
    shell_with(Reach::Nothing, title, version, body, json)
}

/// The same for a page that may ask for more.
pub(super) fn shell_with(
    reach: Reach,
    title: &str,
    version: &str,
    body: &str,
    json: &str,
) -> String {
    let policy = policy(reach);
    let body = with_contents(body);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <meta name=\"generator\" content=\"linerate {}\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>{}</title>\n<style>{STYLE}</style>\n<noscript><style>.chart{{display:none}}</style></noscript>\n</head>\n<body>\n{}\
         <script type=\"application/json\" id=\"linerate-data\">{}</script>\n\
         <script>{BUNDLE}</script>\n</body>\n</html>\n",
        escape(version),
        escape(title),
        &body,
        json_for_script(json)
    )
}
