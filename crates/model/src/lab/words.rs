//! The values in an experiment's file.

use std::fmt;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Level, LevelTable, Response, Responses};

/// Text, a number, true or false, or a list of them: what one would type on the command line.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Word {
    /// `true`, `false`.
    Switch(bool),
    /// A whole number.
    Integer(i64),
    /// Another number.
    Number(f64),
    /// Text.
    Text(String),
    /// Several, in their order.
    List(Vec<Word>),
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch(true) => f.write_str("on"),
            Self::Switch(false) => f.write_str("off"),
            Self::Integer(number) => number.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => f.write_str(text),
            Self::List(words) => {
                for (place, word) in words.iter().enumerate() {
                    let blank = if place == 0 { "" } else { " " };
                    write!(f, "{blank}{word}")?;
                }
                Ok(())
            }
        }
    }
}

/// Deserializes a value, or a table if `tables` are allowed.
struct WordOrTable {
    tables: bool,
}

impl<'de> Visitor<'de> for WordOrTable {
    type Value = Level;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text, a number, true or false, or a list of them")?;
        if self.tables {
            f.write_str(", or a table with a `name`")?;
        }
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Level, E> {
        Ok(Level::Value(Word::Switch(value)))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Level, E> {
        Ok(Level::Value(Word::Integer(value)))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Level, E> {
        let value = i64::try_from(value).map_err(|_| E::custom("the number is too large"))?;
        Ok(Level::Value(Word::Integer(value)))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Level, E> {
        Ok(Level::Value(Word::Number(value)))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Level, E> {
        Ok(Level::Value(Word::Text(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, words: A) -> Result<Level, A::Error> {
        let words = Vec::<Word>::deserialize(SeqAccessDeserializer::new(words))?;
        Ok(Level::Value(Word::List(words)))
    }

    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<Level, A::Error> {
        if !self.tables {
            return Err(A::Error::custom("a table is not a value"));
        }
        let table = LevelTable::deserialize(MapAccessDeserializer::new(table))?;
        Ok(Level::Table(table))
    }
}

impl<'de> Deserialize<'de> for Level {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(WordOrTable { tables: true })
    }
}

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match from.deserialize_any(WordOrTable { tables: false })? {
            Level::Value(word) => Ok(word),
            Level::Table(_) => Err(D::Error::custom("a table is not a value")),
        }
    }
}

/// A share, written in per cent: `"5%"`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Share(pub f64);

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", (self.0 * 1e8).round() / 1e6)
    }
}

impl Serialize for Share {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let percent = text.strip_suffix('%').map(str::trim);
        let percent: Option<f64> = percent.and_then(|percent| percent.parse().ok());
        match percent {
            Some(percent) if percent > 0.0 && percent < 100.0 => Ok(Self(percent / 100.0)),
            _ => Err(D::Error::custom(format!(
                "`{text}` is not a percentage: expected 0 to 100 percent, such as \"5%\""
            ))),
        }
    }
}

/// One value, or a list of them.
#[derive(Debug)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) struct OneOrMore(Vec<String>);

impl<'de> Deserialize<'de> for OneOrMore {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self(match Word::deserialize(from)? {
            Word::List(words) => words.iter().map(Word::to_string).collect(),
            word => vec![word.to_string()],
        }))
    }
}

impl TryFrom<OneOrMore> for Responses {
    type Error = String;

    fn try_from(OneOrMore(words): OneOrMore) -> Result<Self, String> {
        let find = |word: &String| {
            let found = (Response::ALL.iter()).find(|response| response.word() == word);
            found.copied().ok_or_else(|| {
                let all: Vec<&str> = Response::ALL.iter().map(|one| one.word()).collect();
                format!("unknown response `{word}`; available: {}", all.join(", "))
            })
        };
        words.iter().map(find).collect::<Result<_, _>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back_as_they_were_written() {
        for json in ["true", "12", "0.5", "\"near\"", "[4096,131072,6291456]"] {
            let word: Word = serde_json::from_str(json).expect("a word");
            assert_eq!(serde_json::to_string(&word).expect("JSON"), json);
        }
    }

    #[test]
    fn the_text_of_a_word_is_what_a_person_types() {
        let word = |json| {
            serde_json::from_str::<Word>(json)
                .expect("a word")
                .to_string()
        };
        assert_eq!(word("[4096, 131072]"), "4096 131072");
        assert_eq!(word("false"), "off");
        assert_eq!(word("1.5"), "1.5");
    }

    #[test]
    fn a_share_is_given_in_per_cent() {
        let share: Share = serde_json::from_str("\"2.5%\"").expect("a share");
        assert_eq!(share, Share(0.025));
        assert_eq!(share.to_string(), "2.5%");
        for wrong in ["\"5\"", "\"0%\"", "\"100%\"", "\"-1%\"", "\"NaN%\""] {
            assert!(serde_json::from_str::<Share>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn one_response_or_several() {
        let read = |json| serde_json::from_str::<Responses>(json);
        let one = read("\"rate\"").expect("one");
        assert_eq!(one.0, [Response::Rate]);
        let two = read("[\"p99\", \"cpu\"]").expect("two");
        assert_eq!(two.0, [Response::P99, Response::Cpu]);
        let error = read("\"speed\"").expect_err("none of them").to_string();
        assert!(
            error.contains("unknown response `speed`; available: rate,"),
            "{error}"
        );
    }
}
