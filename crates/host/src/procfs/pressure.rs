//! Pressure stall information: `/proc/pressure/*` (Documentation/accounting/psi.rst). For interrupts (since Linux
//! 6.1) there is only the line `full`.

/// Total stall time of all tasks, microseconds since boot: `total=` of the line `full`.
pub(crate) fn parse_full_total(text: &str) -> Result<u64, String> {
    let full = text.lines().find(|line| line.starts_with("full "));
    let full = full.ok_or("no line `full`")?;
    let total = full
        .split_whitespace()
        .find_map(|word| word.strip_prefix("total="));
    let total = total.ok_or("no `total=`")?;
    total.parse().map_err(|error| format!("`{total}`: {error}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_total_is_read() {
        let text = "full avg10=0.00 avg60=0.01 avg300=0.00 total=38724";
        assert_eq!(parse_full_total(text), Ok(38_724));
        assert!(parse_full_total("some avg10=0.00 total=1").is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(full )?(total=)?[0-9]{0,22}|.{0,30}") {
            let _ = parse_full_total(&text);
        }
    }
}
