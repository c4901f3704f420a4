//! The pages that only a server has: the list of all runs, and a running run. What changes on them is one
//! element with the address of its newer form; the page's script asks for that, and a reload does the same.

use std::collections::BTreeMap;

use linerate_analysis::progress::{Progress, RemedyProgress};
use linerate_analysis::run_list::{Listed, RunsDocument, State};
use linerate_analysis::text::timestamp::utc;
use linerate_analysis::text::words::{count, seconds_in_words};
use linerate_analysis::trial::figure::in_words;
use linerate_model::units::Nanoseconds;

use super::figures::flag;
use super::html::{escape, growing_table, table};
use super::page::{Reach, shell_with};

/// With fewer trials made, no remaining time is shown.
const MADE_MIN: u64 = 3;

/// A page, or only the part of it that changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The whole page.
    Whole,
    /// Its live part.
    Part,
}

/// The list of all runs, and above it those that go on: the name of each with how far it has come.
pub fn front_page(
    runs: Option<&RunsDocument>,
    going: &[(String, &Progress)],
    now_unix_s: u64,
) -> String {
    let live = going_on(going, now_unix_s);
    let Some(document) = runs else {
        return live;
    };
    let body = format!(
        "<a class=\"skip\" href=\"#runs\">To the list of runs</a>\n{}<main>\n<h1>Runs of linerate</h1>{live}{}</main>\n",
        top(&escape(&document.folder)),
        list(document, going),
    );
    page("Runs of linerate", &body)
}

/// A running run.
pub fn progress_page(form: Form, name: &str, progress: &Progress, now_unix_s: u64) -> String {
    let live = live_run(name, progress, now_unix_s);
    if form == Form::Part {
        return live;
    }
    let title = progress.title();
    let header = &progress.header;
    let question = progress.experiment.as_ref().map(|asked| &asked.question);
    let question = question.filter(|question| !question.is_empty());
    let body = format!(
        "<a class=\"skip\" href=\"#progress\">To the \
         progress</a>\n{}<main>\n<section><h1>{}</h1>{}</section>{live}<p><a \
         href=\"{}/report\">Report so far</a></p></main>\n",
        top("<a href=\"/\">All runs</a>"),
        escape(&title),
        question.map_or_else(String::new, |text| format!(
            "<p class=\"lead\">{}</p>",
            escape(text)
        )),
        address(name),
    );
    page(&format!("{title} ({})", header.peer), &body)
}

fn page(title: &str, body: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    shell_with(Reach::OwnServer, title, version, body, "null")
}

fn top(right: &str) -> String {
    format!(
        "<header class=\"top\"><p class=\"brand\">linerate <span>runs</span></p><p>{right}</p></header>\n"
    )
}

/// Where the page of a run is.
fn address(name: &str) -> String {
    let mut out = "/runs/".to_owned();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// The element that its newer form takes the place of. Another `state` is another page.
fn live(at: &str, state: &str, heading: &str, inner: &str) -> String {
    format!(
        "<section data-live=\"{}\" data-state=\"{}\" aria-labelledby=\"progress\"><h2 \
         id=\"progress\">{}</h2>{inner}<p class=\"note\" data-lost role=\"status\" hidden>The \
         server does not respond: this page is out of date.</p><noscript><p class=\"note\">Reload \
         the page to update the progress.</p></noscript></section>\n",
        escape(at),
        escape(state),
        escape(heading)
    )
}

fn going_on(going: &[(String, &Progress)], now_unix_s: u64) -> String {
    let names: Vec<&str> = going.iter().map(|(name, _)| name.as_str()).collect();
    let inner = if going.is_empty() {
        "<p class=\"lead\">No run in progress.</p>".to_owned()
    } else {
        let one = |(place, (name, progress)): (usize, &(String, &Progress))| {
            format!(
                "<h3><a href=\"{}\">{}</a></h3>{}",
                address(name),
                escape(&progress.title()),
                bar(&place.to_string(), progress, now_unix_s)
            )
        };
        going.iter().enumerate().map(one).collect()
    };
    live("/progress", &names.join("\n"), "In progress", &inner)
}

/// How far a run is, in a sentence and as a bar.
fn bar(part: &str, progress: &Progress, now_unix_s: u64) -> String {
    let (words, value) = told(progress, now_unix_s);
    let bar = value.map_or_else(String::new, |(made, of)| {
        format!(
            "<progress data-part=\"bar {part}\" max=\"{of}\" value=\"{made}\" aria-label=\"trials made\"></progress>"
        )
    });
    format!("<p data-part=\"told {part}\">{}</p>{bar}", escape(&words))
}

fn told(progress: &Progress, now_unix_s: u64) -> (String, Option<(u64, u64)>) {
    let began = progress.header.created_unix_s;
    let mut words = Vec::new();
    let mut value = None;
    if let Some((made, fewest, most)) = progress.planned() {
        words.push(if fewest == most {
            format!("{made} of {most} trials")
        } else {
            format!("{made} trials, of {fewest} to {most}")
        });
        let of = if made > fewest { most } else { fewest };
        value = (of > 0).then_some((made.min(of), of));
        // A resumed run made no progress in between.
        let goes_on = !progress.resumed && progress.stopped.is_none();
        if made >= MADE_MIN && made < of && fewest == most && goes_on {
            let each = now_unix_s
                .saturating_sub(began)
                .saturating_mul(1_000_000_000)
                / made;
            let left =
                Nanoseconds::new(each.saturating_mul(of - made) / 1_000_000_000 * 1_000_000_000);
            words.push(format!("about {} left", seconds_in_words(left)));
        }
    } else {
        let trials = usize::try_from(progress.trials).unwrap_or(usize::MAX);
        words.push(format!("{} so far", count(trials, "trial")));
    }
    if let Some(why) = &progress.stopped {
        words.push(format!("stopped: {why}"));
    }
    words.push(format!("started {}", utc(began)));
    (words.join(" · "), value)
}

fn live_run(name: &str, progress: &Progress, now_unix_s: u64) -> String {
    let mut inner = bar("run", progress, now_unix_s);
    if let Some(means) = progress.means() {
        let response = means.response;
        let mut head: Vec<&str> = means.factors.iter().map(String::as_str).collect();
        head.extend(["mean so far", "min to max", "trials"]);
        let words = |value| escape(&in_words(response, value));
        let rows: Vec<Vec<String>> = (means.cells.iter())
            .map(|mean| {
                let mut row: Vec<String> = mean.levels.iter().map(|level| escape(level)).collect();
                row.extend(mean.figures.map_or_else(
                    || ["-".to_owned(), "-".to_owned()],
                    |[mean, least, most]| {
                        [words(mean), format!("{} to {}", words(least), words(most))]
                    },
                ));
                row.push(mean.trials.to_string());
                row
            })
            .collect();
        let caption = format!("All combinations so far: {}", response.word());
        inner.push_str(&growing_table("means", &caption, &head, &rows));
    }
    if progress.experiment.is_none() {
        let fate = |tried: &RemedyProgress| match tried.kept {
            Some(true) => "helped",
            Some(false) => "rolled back",
            None => "in trial",
        };
        let rows: Vec<Vec<String>> = (progress.remedies.iter())
            .map(|tried| vec![escape(&tried.rule), fate(tried).to_owned()])
            .collect();
        inner.push_str(&growing_table(
            "remedies",
            "Fixes",
            &["fix of", "outcome"],
            &rows,
        ));
    }
    let rows: Vec<Vec<String>> = (progress.latest.iter())
        .map(|trial| {
            let flags: Vec<&str> = trial.flags.iter().map(|one| flag(*one).0).collect();
            vec![escape(&trial.what), escape(&trial.told), flags.join(", ")]
        })
        .collect();
    let head = ["trial", "result", "flags"];
    inner.push_str(&growing_table(
        "latest",
        "Latest trials, newest first",
        &head,
        &rows,
    ));
    let at = format!("{}/progress", address(name));
    // The tables have other columns when a level is omitted, or when the first trial determines the figures.
    let state = progress.means().map_or_else(
        || "open".to_owned(),
        |means| {
            format!(
                "open {} {}",
                means.response.word(),
                means.factors.join("\n")
            )
        },
    );
    live(&at, &state, "Progress", &inner)
}

/// What was counted, without the counts.
fn words(counts: &BTreeMap<String, u64>) -> String {
    let words: Vec<&str> = counts.keys().map(String::as_str).collect();
    escape(&words.join(" "))
}

fn list(document: &RunsDocument, going: &[(String, &Progress)]) -> String {
    let row = |run: &Listed| {
        let is_going = going.iter().any(|(name, _)| *name == run.run);
        let state = match run.state {
            _ if is_going => "running",
            // It is not being written, and has no end.
            State::Open => "killed",
            state => state.word(),
        };
        let what = run.title.clone();
        let what = what.unwrap_or_else(|| format!("{} {}", run.kind, run.peer));
        // An experiment's is its title, which stands beside it.
        let result = run.headline.as_ref().filter(|_| run.title.is_none());
        vec![
            format!("<a href=\"{}\">{}</a>", address(&run.run), escape(&run.run)),
            escape(&what),
            result.map_or_else(String::new, |words| escape(words)),
            state.to_owned(),
            run.trials.to_string(),
            words(&run.workloads),
            escape(&run.ways("to")),
            words(&run.flags),
        ]
    };
    let rows: Vec<Vec<String>> = document.runs.iter().map(row).collect();
    let head = [
        "run", "what", "result", "state", "trials", "workload", "path", "flags",
    ];
    let mut out = format!(
        "<section aria-labelledby=\"runs\"><h2 id=\"runs\">{}</h2>",
        count(rows.len(), "stored run")
    );
    if !rows.is_empty() {
        out.push_str(&table("Stored runs, newest first", &head, &rows));
    }
    if !document.unreadable.is_empty() {
        let unreadable = document.unreadable.iter();
        let rows: Vec<Vec<String>> = unreadable
            .map(|run| vec![escape(&run.run), escape(&run.why)])
            .collect();
        out.push_str(&table("Unreadable runs", &["run", "why"], &rows));
    }
    out + "</section>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_run_holds_no_character_that_means_something_in_an_address_or_a_page() {
        assert_eq!(address("2026-11-21-lab-7"), "/runs/2026-11-21-lab-7");
        assert_eq!(
            address("a b/\"<é?#%"),
            "/runs/a%20b%2F%22%3C%C3%A9%3F%23%25"
        );
    }
}
