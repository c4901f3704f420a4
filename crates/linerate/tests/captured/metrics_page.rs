//! The tables of metrics in docs/book/guides/metrics.md, against the program's own.

use std::fs;

use linerate_report::metrics::reference;

use super::archives::repository;

/// The line that the tables follow.
const HEAD: &str = "The tables are generated from the program.\n";

/// `LINERATE_BLESS=1` rewrites the tables.
#[test]
fn the_page_has_every_metric_with_its_unit_and_labels() {
    let place = repository("docs/book/guides/metrics.md");
    let page = fs::read_to_string(&place).expect("the page");
    let (text, _) = page.split_once(HEAD).expect("the line before the tables");
    let tables = reference().into_iter();
    let tables: Vec<String> = tables
        .map(|(title, table)| format!("\n### {title}\n\n{table}"))
        .collect();
    let made = format!("{text}{HEAD}{}", tables.concat());
    if std::env::var_os("LINERATE_BLESS").is_some() {
        fs::write(&place, &made).expect("the page is writable");
        return;
    }
    assert_eq!(
        page, made,
        "docs/book/guides/metrics.md is stale; LINERATE_BLESS=1 rewrites it"
    );
}
