//! FEC modes and RSS indirection tables as text.

use crate::host::Fec;

/// The FEC mode `auto`.
pub const FEC_AUTO: &str = "auto";

/// The configured FEC modes, or `auto`.
pub fn fec_words(fec: &Fec) -> String {
    match fec.auto.get() {
        Some(true) => FEC_AUTO.to_owned(),
        _ => fec.configured.join(" "),
    }
}

/// An indirection table in short form: `equal 8` for eight queues in turn, otherwise queue by queue, with a repeat
/// count, `0x32 1x32`.
pub fn table_words(table: &[u32]) -> String {
    round_words(round_of(table))
}

/// The same for a table to be set.
pub(super) fn round_words(table: &[u32]) -> String {
    let mut words: Vec<String> = Vec::new();
    if (0u32..).zip(table).all(|(at, queue)| at == *queue) {
        return format!("equal {}", table.len());
    }
    for run in table.chunk_by(|one, next| one == next) {
        words.push(match run {
            [queue] => queue.to_string(),
            several => format!("{}x{}", several[0], several.len()),
        });
    }
    words.join(" ")
}

/// The shortest prefix whose repetition is the whole table.
fn round_of(table: &[u32]) -> &[u32] {
    let goes_round = |round: &usize| {
        table
            .iter()
            .zip(&table[*round..])
            .all(|(one, next)| one == next)
    };
    let round = (1..table.len()).find(goes_round).unwrap_or(table.len());
    &table[..round]
}

/// Parses the text of [`table_words`]: the queues of one repetition.
pub fn parse_table(words: &str) -> Option<Vec<u32>> {
    /// More entries than any NIC's table has.
    const ENTRIES_MAX: usize = 65_536;
    if let Some(count) = words.strip_prefix("equal ") {
        let count: u32 = count.trim().parse().ok()?;
        let is_table = count > 0 && count as usize <= ENTRIES_MAX;
        return is_table.then(|| (0..count).collect());
    }
    let mut table = Vec::new();
    for word in words.split_whitespace() {
        let (queue, count) = word.split_once('x').unwrap_or((word, "1"));
        let count: usize = count.parse().ok()?;
        if count == 0 || count > ENTRIES_MAX - table.len() {
            return None;
        }
        table.resize(table.len() + count, queue.parse().ok()?);
    }
    let is_whole = |round: &usize| {
        let (first, rest) = table.split_at(*round);
        table.len() % round == 0 && rest.chunks(*round).all(|next| next == first)
    };
    let round = (1..=table.len()).find(is_whole)?;
    table.truncate(round);
    Some(table)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_table_is_told_shortly() {
        let blocks: Vec<u32> = (0..128).map(|entry| entry / 32).collect();
        assert_eq!(table_words(&blocks), "0x32 1x32 2x32 3x32");
        let in_turn: Vec<u32> = (0..128).map(|entry| entry % 3).collect();
        assert_eq!(table_words(&in_turn), "equal 3");
        assert_eq!(table_words(&[0; 128]), "equal 1");
        assert_eq!(table_words(&[0, 3, 0, 3, 0]), "0 3");
        assert_eq!(table_words(&[2, 2]), "2");
        for wrong in ["", "equal 0", "equal x", "0 y", "0x0", "1x99999999", "-1"] {
            assert_eq!(parse_table(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_table_is_what_its_words_go_round(table in prop::collection::vec(0u32..4, 1..40)) {
            let round = parse_table(&table_words(&table)).expect("our own words");
            let again: Vec<u32> = round.iter().copied().cycle().take(table.len()).collect();
            prop_assert_eq!(&again, &table);
            // A requested value has the same text once the NIC has it.
            let asked = parse_table(&round_words(&table)).expect("our own words");
            let card: Vec<u32> = asked.iter().copied().cycle().take(128).collect();
            prop_assert_eq!(table_words(&card), round_words(&asked));
        }

        #[test]
        fn no_words_panic(words in "[0-9x a-z-]{0,20}") {
            let _ = parse_table(&words);
        }
    }
}
