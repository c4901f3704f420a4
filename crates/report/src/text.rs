//! The verdict for a terminal: before, after, ceiling, every remedy with its interval drawn as a bar,
//! injected against found, and the path of the run. Words and marks carry the meaning; color only helps
//! to find them.

use linerate_analysis::text::visible::{BOLD, DIM, GREEN, PLAIN, RED, visible};
use linerate_analysis::text::words::{change, effect_in_figures, is_too_noisy, wrap};
use linerate_analysis::trial::operations::real;
use linerate_model::prove::{
    EffectDocument, FactorDocument, ProveDocument, Rate, RemedyResult, SearchDocument,
};

use super::figures::{
    Fate, cost, doubt, effect_interval, effect_meaning, end_state, fix_name, gain, gain_words,
    rate, rate_interval, remedy_changes, scores, share, tried,
};

/// Narrower terminals get lines of this length.
const NARROWEST: usize = 40;
/// Where what belongs to a remedy begins: under its name, right of its fate.
const MARGIN: usize = 14;
/// Where the values of the verdict begin: right of the longest name, `bottleneck`.
const COLUMN: usize = 12;
/// Longer lines are hard to read.
const WIDEST: usize = 100;

struct Page {
    width: usize,
    colour: bool,
    out: String,
}

impl Page {
    /// A wrapped paragraph: the first line is indented by `indent`, the others by `hang`.
    fn say(&mut self, style: &str, (indent, hang): (usize, usize), text: &str) {
        let room = self.width.saturating_sub(indent.max(hang));
        for (index, line) in wrap(&visible(text), room).iter().enumerate() {
            self.line(style, if index == 0 { indent } else { hang }, line);
        }
    }

    /// One line as it is.
    fn line(&mut self, style: &str, indent: usize, line: &str) {
        self.out.push_str(&" ".repeat(indent));
        if self.colour && !style.is_empty() && !line.is_empty() {
            self.out.push_str(&format!("{style}{line}{PLAIN}"));
        } else {
            self.out.push_str(line);
        }
        self.out.push('\n');
    }

    /// A name and its value in two columns.
    fn pair(&mut self, style: &str, name: &str, text: &str) {
        let room = self.width.saturating_sub(COLUMN);
        for (index, line) in wrap(&visible(text), room).iter().enumerate() {
            let name = if index == 0 { name } else { "" };
            self.line(style, 0, &format!("{name:<COLUMN$}{line}"));
        }
    }

    fn gap(&mut self) {
        self.out.push('\n');
    }
}

/// The verdict of a run in lines of at most `width` characters (40 to 100), with ANSI colors when
/// `colour` reports it.
pub fn render_text(prove: &ProveDocument, width: usize, colour: bool) -> String {
    let mut page = Page {
        width: width.clamp(NARROWEST, WIDEST),
        colour,
        out: String::new(),
    };
    verdict(prove, &mut page);
    if let Some(search) = &prove.search {
        searched(search, &mut page);
    }
    remedies(prove, &mut page);
    planted(prove, &mut page);
    ending(prove, &mut page);
    page.out
}

/// The first line of every report: what it was, what it is, how many times that is.
fn headline(prove: &ProveDocument) -> String {
    let (before, after) = (&prove.before, &prove.after);
    let rates = format!(
        "{} -> {}",
        rate(before.rate_bit_per_s),
        rate(after.rate_bit_per_s)
    );
    match gain_words(prove) {
        Some(words) => match doubt(prove) {
            Some(doubt) => format!("{rates}, {words}: {doubt}"),
            None => format!("{rates}, {words}"),
        },
        None => rates,
    }
}

/// What share of the ceiling was reached, and its arithmetic.
pub(super) fn ceiling_words(prove: &ProveDocument) -> String {
    let ceiling = &prove.ceiling;
    match (ceiling.bit_per_s, ceiling.share) {
        // A share above the whole accuses the ceiling, not the path.
        (Some(_), Some(part)) if ceiling.is_wrong() => format!(
            "{} of it was measured: this ceiling is wrong ({})",
            share(part),
            ceiling.reason
        ),
        (Some(_), Some(part)) => {
            format!("after: {} of it ({})", share(part), ceiling.reason)
        }
        _ => ceiling.reason.clone(),
    }
}

fn verdict(prove: &ProveDocument, page: &mut Page) {
    page.say(BOLD, (0, 0), &headline(prove));
    page.gap();
    for (name, measured) in [("before", &prove.before), ("after", &prove.after)] {
        let cost = measured
            .cpu_s_per_gb
            .map_or_else(String::new, |figure| format!("; CPU {}", cost(figure)));
        let text = format!(
            "{} median, {}{cost}",
            rate(measured.rate_bit_per_s),
            rate_interval(measured)
        );
        page.pair("", name, &text);
    }
    if let Some(text) = iops(prove) {
        page.pair("", "IOPS", &text);
    }
    if let Some(ratio) = gain(prove) {
        let text = format!(
            "{} [{}, {}] (bounds from the two CIs)",
            change(ratio.value),
            change(ratio.low),
            change(ratio.high)
        );
        page.pair("", "change", &text);
    }
    let bound = prove.ceiling.bit_per_s.map_or("unknown".to_owned(), rate);
    page.pair("", "ceiling", &format!("{bound}; {}", ceiling_words(prove)));
    page.pair(
        "",
        "bottleneck",
        &format!("before any change: {}", prove.limit.in_words()),
    );
    for evidence in &prove.limit.evidence {
        let text = format!("{}: {} [{}]", evidence.what, evidence.value, evidence.path);
        page.say(DIM, (COLUMN, COLUMN + 2), &text);
    }
}

/// The rates of a block device as operations a second.
fn iops(prove: &ProveDocument) -> Option<String> {
    let bits = prove.operation_bytes.map(real)? * 8.0;
    let of = |measured: &Rate| format!("{:.0}", measured.rate_bit_per_s / bits);
    Some(format!(
        "before {}, after {}",
        of(&prove.before),
        of(&prove.after)
    ))
}

/// What a search saw of its factors, those first that matter most.
fn searched(search: &SearchDocument, page: &mut Page) {
    const MOST: usize = 8;
    page.gap();
    let heading = format!(
        "{} factors explored in {} trials, {} of them for screening",
        search.factors.len(),
        search.trials,
        search.screening_trials
    );
    page.say(BOLD, (0, 0), &heading);
    let mut told: Vec<(f64, &FactorDocument)> = (search.factors.iter())
        .filter_map(|factor| Some((factor.effect?, factor)))
        .collect();
    told.sort_by(|one, other| other.0.abs().total_cmp(&one.0.abs()));
    for (effect, factor) in told.iter().take(MOST) {
        let (style, sure) = if factor.shows {
            ("", "")
        } else {
            (DIM, " (within noise)")
        };
        let text = format!("{:>9}  {}{sure}", change(1.0 + effect), factor.name);
        page.say(style, (0, MARGIN), &text);
    }
}

fn remedies(prove: &ProveDocument, page: &mut Page) {
    page.gap();
    if prove.remedies.is_empty() {
        page.say("", (0, 0), "No finding had a fix to try.");
        return;
    }
    page.say(BOLD, (0, 0), &tried(prove));
    if prove.remedies.iter().any(|remedy| remedy.effect.is_some()) {
        page.say(DIM, (MARGIN, MARGIN), "[ ] CI, o effect, | no effect");
    }
    let scale = Scale::of(&prove.remedies);
    for remedy in &prove.remedies {
        remedy_lines(remedy, &scale, page);
    }
}

fn remedy_lines(remedy: &RemedyResult, scale: &Scale, page: &mut Page) {
    let fate = Fate::of(remedy);
    let style = if fate == Fate::Helped { GREEN } else { "" };
    let name = format!("{} {:<11} {}", fate.mark(), fate.word(), fix_name(remedy));
    page.say(style, (0, MARGIN), &name);
    for change in remedy_changes(remedy) {
        page.say(DIM, (MARGIN, MARGIN + 2), &change);
    }
    if let Some(effect) = &remedy.effect {
        let room = page.width.saturating_sub(MARGIN).min(64);
        if !is_too_noisy(effect) {
            page.line(style, MARGIN, &scale.bar(effect, room));
        }
        let text = format!(
            "{}, {}; {}",
            effect_in_figures(effect),
            effect_interval(effect),
            effect_meaning(effect)
        );
        page.say(style, (MARGIN, MARGIN), &text);
    }
    if let Some(note) = &remedy.note {
        page.say("", (MARGIN, MARGIN), note);
    }
}

fn planted(prove: &ProveDocument, page: &mut Page) {
    if prove.planted.is_empty() {
        return;
    }
    let scores = scores(prove);
    let hits = scores
        .iter()
        .filter(|score| score.planted && score.found)
        .count();
    page.gap();
    let heading = format!("{hits} of {} injected faults found", prove.planted.len());
    page.say(BOLD, (0, 0), &heading);
    for score in &scores {
        let (mark, style) = match (score.planted, score.found) {
            (true, true) => ("●", GREEN),
            (true, false) => ("○", RED),
            _ => ("+", ""),
        };
        page.say(
            style,
            (0, 2),
            &format!("{mark} {}: {}", score.rule, score.word()),
        );
    }
}

fn ending(prove: &ProveDocument, page: &mut Page) {
    page.gap();
    match end_state(prove) {
        Ok(words) => page.pair("", "settings", &words),
        Err(hint) => page.pair(RED, "settings", &format!("NOT RESTORED: {hint}")),
    }
    page.pair("", "seed", &prove.seed.to_string());
    for (name, path) in [("run", &prove.run), ("report", &prove.report)] {
        if let Some(path) = path {
            // Not wrapped: a path in two lines cannot be clicked or copied.
            page.out
                .push_str(&format!("{name:<COLUMN$}{}\n", visible(path)));
        }
    }
}

/// One scale for all effects, zero always on it, so that bars can be compared by eye.
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    fn of(remedies: &[RemedyResult]) -> Self {
        let mut scale = Self {
            low: -0.02,
            high: 0.05,
        };
        for effect in remedies.iter().filter_map(|remedy| remedy.effect.as_ref()) {
            // `min` and `max` pass over what is not a number.
            scale.low = scale.low.min(effect.low.max(-1.0));
            scale.high = scale.high.max(effect.high.min(1e6));
        }
        scale
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "the value is clamped to the columns of a terminal line first"
    )]
    fn column(&self, value: f64, room: usize) -> usize {
        let last = room.saturating_sub(1) as f64;
        let place = (value - self.low) / (self.high - self.low) * last;
        place.clamp(0.0, last).round() as usize
    }

    /// `|` is zero, `[` and `]` the interval, `o` the effect.
    fn bar(&self, effect: &EffectDocument, room: usize) -> String {
        let mut cells = vec![' '; room];
        let (low, high) = (
            self.column(effect.low, room),
            self.column(effect.high, room),
        );
        for cell in cells.iter_mut().take(high).skip(low) {
            *cell = '-';
        }
        for (value, mark) in [
            (0.0, '|'),
            (effect.low, '['),
            (effect.high, ']'),
            (effect.relative, 'o'),
        ] {
            if let Some(cell) = cells.get_mut(self.column(value, room)) {
                *cell = mark;
            }
        }
        cells.into_iter().collect::<String>().trim_end().to_owned()
    }
}
