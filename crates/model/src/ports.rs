//! Ranges of ports, as firewalls know them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A range of ports, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    /// All its ports.
    pub fn all(self) -> std::ops::RangeInclusive<u16> {
        self.first..=self.last
    }

    /// Whether a port is in the range.
    pub fn contains(self, port: u16) -> bool {
        self.all().contains(&port)
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

impl FromStr for PortRange {
    type Err = String;
    /// Reads `PORT` or `FIRST-LAST`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
        match (port(first), port(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Self { first, last }),
            _ => Err("a port range is `FIRST-LAST`, from 1 to 65535".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_reads_back_as_it_was_written_and_its_ends_belong_to_it() {
        for text in ["5211-5220", "7", "1-65535"] {
            let range: PortRange = text.parse().expect(text);
            assert_eq!(range.to_string(), text);
        }
        let range: PortRange = "5211-5220".parse().expect("a range");
        assert!(range.contains(5_211) && range.contains(5_220) && !range.contains(5_221));
        assert_eq!(range.all().count(), 10);
        for text in ["", "0", "5-4", "-1", "1-", "65536", "a-b"] {
            assert!(text.parse::<PortRange>().is_err(), "{text}");
        }
    }
}
