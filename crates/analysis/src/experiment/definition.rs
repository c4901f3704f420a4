//! The text of an experiment: TOML, read with the line of what is wrong.

use linerate_model::lab::{Experiment, ExperimentError};
use linerate_model::peer_address::PeerAddress;

/// The experiment that a text holds; else the line that is wrong, from 1, and why.
pub fn parse(text: &str) -> Result<Experiment, (usize, String)> {
    let line_at = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
    let experiment: Experiment = toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_at(span.start));
        (line, error.message().trim().replace('\n', "; "))
    })?;
    let peers = || check_peers(&experiment);
    let checked = experiment.check();
    checked
        .and_then(|()| experiment.check_published_levels())
        .and_then(|()| peers())
        .map_err(|error| {
            let at = place_of(text, &error.place);
            (line_at(at), error.to_string())
        })?;
    Ok(experiment)
}

/// Where a name occurs in a text: as a key or a table, else its first occurrence.
fn place_of(text: &str, name: &str) -> usize {
    let mut begin = 0;
    for line in text.split_inclusive('\n') {
        let key = line.trim_start_matches(['[', ' ']);
        let rest = key.strip_prefix(name).map(str::trim_start);
        if rest.is_some_and(|rest| rest.starts_with(['=', ']'])) {
            return begin;
        }
        begin += line.len();
    }
    text.find(name).unwrap_or(0)
}

/// Whether every peer that is named is one as people type them.
fn check_peers(experiment: &Experiment) -> Result<(), ExperimentError> {
    let factors = experiment.factors.iter();
    let levels = factors.flat_map(|factor| {
        (0..factor.levels.len()).filter_map(|level| factor.level(level)?.peer.at)
    });
    for place in experiment.peer.at.iter().cloned().chain(levels) {
        if let Err(why) = place.parse::<PeerAddress>() {
            return Err(ExperimentError { place, why });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Panics unless a file with a head of two lines is refused at that line.
    fn assert_wrong(rest: &str, line: usize, words: &str) {
        let head = "title = \"t\"\nworkload = \"stream\"\n";
        let (at, why) = parse(&format!("{head}{rest}")).expect_err(words);
        assert!(why.contains(words), "{why}");
        assert_eq!(at, line, "{why}");
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line_and_what_is_allowed() {
        for (rest, line, words) in [
            (
                "worklod = 1\n[[factors]]\noption = \"flows\"\nlevels = [1, 2]\n",
                3,
                "unknown field `worklod`",
            ),
            (
                "[[factors]]\noption = \"flows\"\nlevels = [1]\n",
                4,
                "1 levels: a factor has 2",
            ),
            (
                "[[factors]]\noption = \"flows\"\nlevels = [1, { nme = \"x\" }]\n",
                5,
                "`nme`",
            ),
            (
                "[[factors]]\noption = \"flows\"\nlevels = [1, 2]\n[design]\nkind = \"half\"\n",
                7,
                "`fraction`",
            ),
            (
                "[[factors]]\noption = \"flows\"\nlevels = [1, 2]\n[design]\nrepeats = 1\n",
                7,
                "two can agree by chance",
            ),
            (
                "[[factors]]\noption = \"flows\"\nlevels = [1, 2]\n[design]\neffect = \"5\"\n",
                7,
                "\"5%\"",
            ),
        ] {
            assert_wrong(rest, line, words);
        }
    }

    #[test]
    fn what_is_wrong_with_another_host_an_earlier_run_or_a_published_figure_is_told_with_its_line()
    {
        for (rest, line, words) in [
            (
                "[[factors]]\nname = \"host\"\nlevels = [{ name = \"b\" },\n{ name = \"c\", peer.at = \"udp://c\" }]\n",
                6,
                "udp://c",
            ),
            (
                "[[factors]]\nname = \"day\"\nlevels = [{ name = \"now\" },\n{ name = \"then\", run = \"old\" }]\n",
                4,
                "needs another factor",
            ),
            (
                "[[factors]]\noption = \"flows\"\nlevels = [1, 2]\n[[factors]]\nname = \"day\"\nlevels = [{ name = \
                 \"now\" },\n{ name = \"then\", run = \"old\", options = { time = \"1\" } }]\n",
                9,
                "only `name` and `run`",
            ),
            (
                "[[factors]]\noption = \"flows\"\nlevels = [1, 2]\n[[factors]]\nname = \"day\"\nlevels = [{ name = \
                 \"now\" }, { name = \"then\", run = \"old\" }]\n[design]\nkind = \"one-at-a-time\"\n",
                10,
                "takes a full design",
            ),
            (
                "[[factors]]\noption = \"flows\"\nlevels = [1, 2]\n[[published]]\nsource = \"s\"\nresponse = \
                 \"rate\"\nfigures = [\n{ at = { flows = 3 }, figure = \"7 Gb/s\" }]\n",
                10,
                "`flows` has no level `3`; levels: 1, 2",
            ),
            (
                "[[factors]]\noption = \"flows\"\nlevels = [1, 2]\n[[published]]\nsource = \"s\"\nresponse = \
                 \"rate\"\nfigures = [\n{ at = { flows = 1 }, figure = \"7 us\" }]\n",
                10,
                "not a value of `rate`",
            ),
        ] {
            assert_wrong(rest, line, words);
        }
    }

    #[test]
    fn what_is_wrong_with_a_difference_or_its_published_figures_is_told_with_its_line() {
        let factors = "question = \"What is the difference?\"\n[[factors]]\nname = \"work\"\nlevels = [{ name = \"no\" }, { \
                       name = \"yes\", options = { time = \"1\" } }]\n[[factors]]\noption = \"flows\"\nlevels = [1, 2, 4]\n";
        let published = "[[published]]\nsource = \"somebody\"\ndifference = true\nfigures = [\n";
        let asked = "[difference]\nfactor = \"work\"\nof = \"yes\"\nless = \"no\"\n";
        for (rest, line, words) in [
            (
                "difference = { factor = \"wrok\", of = \"yes\", less = \"no\" }\n".to_owned()
                    + factors,
                3,
                "no factor `wrok`; factors: work, flows",
            ),
            (
                "difference = { factor = \"flows\", of = 4, less = 1 }\n".to_owned() + factors,
                3,
                "a factor with two levels, but `flows` has 3: 1, 2, 4",
            ),
            (
                factors.to_owned() + &asked.replace("yes", "much"),
                10,
                "`work` has no level `much`; levels: no, yes",
            ),
            (
                factors.to_owned() + &asked.replace("yes", "no"),
                10,
                "`of` and `less` are both `no`",
            ),
            (
                factors.to_owned() + &asked.replace("less", "minus"),
                13,
                "unknown field `minus`",
            ),
            (
                factors.to_owned() + published + "{ at = { flows = 1 }, figure = \"0.1 s/GB\" }]\n",
                11,
                "the experiment defines none",
            ),
            (
                factors.to_owned()
                    + asked
                    + published
                    + "{ at = { flows = 1 }, figure = \"7 Gb/s\" }]\n",
                18,
                "not a value of `difference`",
            ),
            (
                factors.to_owned()
                    + asked
                    + published
                    + "{ at = { work = \"yes\" }, figure = \"0.1 s/GB\" }]\n",
                18,
                "one of both levels of `work`",
            ),
        ] {
            assert_wrong(&rest, line, words);
        }
    }
}
