//! JUnit's XML, which CI systems read: a suite with its cases.

/// How a case ended.
#[derive(Debug)]
pub enum CaseResult {
    /// It passed; a text for whoever looks at it, if there is one.
    Passed(Option<String>),
    /// It failed.
    Failed {
        /// A word for the kind of failure.
        kind: String,
        /// What is wrong.
        message: String,
        /// The details, line by line.
        text: String,
    },
    /// Nothing shows whether it passes or fails, which a CI system must not take for a pass.
    Inconclusive(String),
    /// It was not checked: why.
    Skipped(String),
}

/// A case.
#[derive(Debug)]
pub struct Case {
    /// What it belongs to.
    pub class: String,
    /// Its name within that.
    pub name: String,
    /// How it ended.
    pub result: CaseResult,
}

/// A suite as one XML document.
pub fn suite(name: &str, cases: &[Case]) -> String {
    let count = |is: fn(&CaseResult) -> bool| cases.iter().filter(|case| is(&case.result)).count();
    let lines: Vec<String> = cases.iter().map(Case::xml).collect();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <testsuites>\n\
         <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\">\n\
         {}\n</testsuite>\n</testsuites>",
        xml(name),
        cases.len(),
        count(|result| matches!(result, CaseResult::Failed { .. })),
        count(|result| matches!(result, CaseResult::Inconclusive(_))),
        count(|result| matches!(result, CaseResult::Skipped(_))),
        lines.join("\n")
    )
}

impl Case {
    fn xml(&self) -> String {
        let body = match &self.result {
            CaseResult::Passed(None) => String::new(),
            CaseResult::Passed(Some(text)) => format!("<system-out>{}</system-out>", xml(text)),
            CaseResult::Failed {
                kind,
                message,
                text,
            } => format!(
                "<failure type=\"{}\" message=\"{}\">{}</failure>",
                xml(kind),
                xml(message),
                xml(text)
            ),
            CaseResult::Inconclusive(message) => {
                format!(
                    "<error type=\"inconclusive\" message=\"{}\"/>",
                    xml(message)
                )
            }
            CaseResult::Skipped(why) => format!("<skipped message=\"{}\"/>", xml(why)),
        };
        format!(
            "<testcase classname=\"{}\" name=\"{}\">{body}</testcase>",
            xml(&self.class),
            xml(&self.name)
        )
    }
}

/// Text for XML 1.0: its five characters escaped, those it does not allow replaced.
fn xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            '\t' | '\n' => out.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
