//! Timestamps as they are written and typed, always in UTC.

/// A timestamp as people write it: `2026-11-21 04:02:11 UTC`. Civil date from days by the algorithm of
/// Howard Hinnant (chrono-Compatible Low-Level Date Algorithms, `civil_from_days`).
pub fn utc(unix_s: u64) -> String {
    let (days, second) = (unix_s / 86_400 + 719_468, unix_s % 86_400);
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_shifted + 2) / 5 + 1;
    let month = if month_shifted < 10 {
        month_shifted + 3
    } else {
        month_shifted - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// A timestamp in the form of RFC 3339, `2026-11-21T04:02:11Z`.
pub fn rfc3339(unix_s: u64) -> String {
    let text = utc(unix_s);
    text.trim_end_matches(" UTC").replacen(' ', "T", 1) + "Z"
}

/// Parses a timestamp: a day, `2026-11-21`, or a time, `2026-11-21T04:02[:11][Z]`; in seconds since 1970.
pub fn parse(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("invalid time `{text}`: expected `2026-11-21` or `2026-11-21T04:02Z` (UTC)");
    let words = text.trim().trim_end_matches('Z');
    let (day, time) = words.split_once(['T', ' ']).unwrap_or((words, ""));
    let day: Vec<u64> = numbers(day, '-').ok_or_else(wrong)?;
    let [year @ 1970..=9999, month @ 1..=12, day @ 1..=31] = day[..] else {
        return Err(wrong());
    };
    let time = if time.is_empty() {
        Vec::new()
    } else {
        numbers(time, ':').ok_or_else(wrong)?
    };
    let (hour, minute, second) = match time[..] {
        [] => (0, 0, 0),
        [hour @ 0..=23, minute @ 0..=59] => (hour, minute, 0),
        [hour @ 0..=23, minute @ 0..=59, second @ 0..=59] => (hour, minute, second),
        _ => return Err(wrong()),
    };
    let unix_s = days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second;
    // A 31st of April is a slip of the finger, not the 1st of May.
    if rfc3339(unix_s).starts_with(&format!("{year:04}-{month:02}-{day:02}T")) {
        Ok(unix_s)
    } else {
        Err(wrong())
    }
}

fn numbers(text: &str, between: char) -> Option<Vec<u64>> {
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let parts = text.split(between);
    parts
        .map(|part| part.parse().ok().filter(|_| digits(part)))
        .collect()
}

/// Days since 1970-01-01 of a civil date (Howard Hinnant, chrono-Compatible Low-Level Date Algorithms,
/// `days_from_civil`).
fn days(year: u64, month: u64, day: u64) -> u64 {
    let year = year - u64::from(month <= 2);
    let (era, year_of_era) = (year / 400, year % 400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_reads_as_it_is_written() {
        for unix_s in [0, 951_782_400, 1_800_000_000, 4_102_444_799] {
            assert_eq!(parse(&rfc3339(unix_s)), Ok(unix_s));
        }
        assert_eq!(rfc3339(1_800_000_000), "2027-01-15T08:00:00Z");
        assert_eq!(parse("2027-01-15"), Ok(1_800_000_000 - 8 * 3_600));
        assert_eq!(parse("2027-01-15 08:00"), Ok(1_800_000_000));
    }

    #[test]
    fn what_is_no_day_is_refused() {
        for text in [
            "",
            "yesterday",
            "2026-13-01",
            "2026-04-31",
            "2026-11",
            "2026-11-21T25:00",
            "2026-11-21T04",
            "+2026-11-21",
            "99999-01-01",
            "1969-12-31",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn timestamps_read_as_date_does() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_399), "2000-02-28 23:59:59 UTC");
        assert_eq!(utc(951_868_799), "2000-02-29 23:59:59 UTC");
        assert_eq!(utc(1_795_233_731), "2026-11-21 04:02:11 UTC");
    }
}
