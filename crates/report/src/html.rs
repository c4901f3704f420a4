//! The few pieces of HTML that every section of the page is made of. Text from a host is escaped here
//! and nowhere else.

use linerate_analysis::text::visible::visible;

/// Text for HTML or SVG content and double-quoted attributes.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in visible(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// JSON for a `<script>` data block. Inside a script element HTML knows no entities, so the characters
/// that could end it, or open a comment in it, are written as JSON escapes; U+2028 and U+2029 too, which
/// older JavaScript takes for line ends (ECMA-404 allows them raw).
pub(super) fn json_for_script(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out
}

/// Text as code.
pub(super) fn code(text: &str) -> String {
    format!("<code>{}</code>", escape(text))
}

/// A table of HTML cells; the first cell of each row is its heading. The roles are written out because
/// the phone layout turns rows into blocks, and browsers then forget what they were.
pub(super) fn table(caption: &str, head: &[&str], rows: &[Vec<String>]) -> String {
    table_of("", "", caption, head, rows)
}

/// A table whose rows the page's script takes from a newer form of the page, where they are the part called `part`.
pub(super) fn growing_table(
    part: &str,
    caption: &str,
    head: &[&str],
    rows: &[Vec<String>],
) -> String {
    let part = format!(" data-part=\"{}\"", escape(part));
    table_of(" data-grows", &part, caption, head, rows)
}

fn table_of(
    attributes: &str,
    attributes_of_body: &str,
    caption: &str,
    head: &[&str],
    rows: &[Vec<String>],
) -> String {
    let mut out = format!(
        "<table role=\"table\"{attributes}><caption>{}</caption><thead role=\"rowgroup\"><tr role=\"row\">",
        escape(caption)
    );
    for name in head {
        out.push_str(&format!(
            "<th scope=\"col\" role=\"columnheader\">{}</th>",
            escape(name)
        ));
    }
    out.push_str(&format!(
        "</tr></thead><tbody role=\"rowgroup\"{attributes_of_body}>"
    ));
    for row in rows {
        out.push_str("<tr role=\"row\">");
        for (index, cell) in row.iter().enumerate() {
            let label = head.get(index).map_or("", |name| name);
            if index == 0 {
                out.push_str(&format!("<th scope=\"row\" role=\"rowheader\">{cell}</th>"));
            } else {
                let class = if is_figure(cell) {
                    " class=\"figure\""
                } else {
                    ""
                };
                out.push_str(&format!(
                    "<td role=\"cell\"{class} data-label=\"{}\"><div>{cell}</div></td>",
                    escape(label)
                ));
            }
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table>");
    out
}

/// Whether a cell is a short text, such as a number with its unit, which is not broken over lines.
fn is_figure(cell: &str) -> bool {
    const SHORT: usize = 14;
    cell.chars().count() <= SHORT && !cell.contains('<')
}

/// A section with its heading and a line under it that explains how to read it.
pub(super) fn section(id: &str, heading: &str, lead: &str, body: &str) -> String {
    format!(
        "<section aria-labelledby=\"{id}\"><h2 id=\"{id}\">{}</h2><p class=\"lead\">{}</p>{body}</section>\n",
        escape(heading),
        escape(lead)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_text_holds_no_markup() {
        let text = escape("<script>alert('1')</script>\"&\0\u{202e}");
        assert!(!text.contains(['<', '>', '"', '\'', '\0', '\u{202e}']));
    }

    #[test]
    fn json_in_a_script_cannot_end_it_and_stays_the_same_json() {
        let value = serde_json::json!({"x": "</script><!--<script>\u{2028}&"});
        let text = json_for_script(&value.to_string());
        assert!(!text.contains(['<', '>', '&', '\u{2028}']));
        let back: serde_json::Value = serde_json::from_str(&text).expect("still JSON");
        assert_eq!(back, value);
    }
}
