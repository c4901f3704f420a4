//! Reading untrusted JSON: numbers may be written as integers or not (`1e+15`), flags as `true` or 1, and
//! unknown keys are ignored.

use serde_json::{Map, Value};

use super::TalkError;

/// An object from an untrusted peer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Object<'a> {
    what: &'static str,
    map: &'a Map<String, Value>,
}

/// `bytes` as JSON.
pub(super) fn parse(what: &'static str, bytes: &[u8]) -> Result<Value, TalkError> {
    serde_json::from_slice(bytes).map_err(|error| TalkError::Unreadable {
        what,
        reason: error.to_string(),
    })
}

impl<'a> Object<'a> {
    pub(super) fn of(what: &'static str, value: &'a Value) -> Result<Self, TalkError> {
        match value {
            Value::Object(map) => Ok(Self { what, map }),
            _ => Err(TalkError::Unreadable {
                what,
                reason: "not an object".to_owned(),
            }),
        }
    }

    fn wrong(&self, key: &str, expected: &str) -> TalkError {
        TalkError::Unreadable {
            what: self.what,
            reason: format!("`{key}` is not {expected}"),
        }
    }

    /// A number; nothing when the key is not there.
    pub(super) fn real(&self, key: &str) -> Result<Option<f64>, TalkError> {
        match self.map.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_f64() {
                Some(number) if number.is_finite() => Ok(Some(number)),
                _ => Err(self.wrong(key, "a number")),
            },
        }
    }

    /// A whole number; nothing when the key is not there.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the number has no fraction and is within 2^53"
    )]
    pub(super) fn whole(&self, key: &str) -> Result<Option<i64>, TalkError> {
        const EXACT: f64 = 9_007_199_254_740_992.0;
        const UNSIGNED_MINUS_ONE: f64 = 18_446_744_073_709_551_616.0;
        if let Some(exact) = self.map.get(key).and_then(Value::as_i64) {
            return Ok(Some(exact));
        }
        match self.real(key)? {
            None => Ok(None),
            // iperf3 before 3.13 writes -1 as if it had no sign.
            Some(number) if number == UNSIGNED_MINUS_ONE => Ok(Some(-1)),
            Some(number) if number.fract() == 0.0 && number.abs() <= EXACT => {
                Ok(Some(number as i64))
            }
            Some(_) => Err(self.wrong(key, "a whole number")),
        }
    }

    /// A count; nothing when the key is not there.
    pub(super) fn count(&self, key: &str) -> Result<Option<u64>, TalkError> {
        match self.whole(key)? {
            None => Ok(None),
            Some(number) => u64::try_from(number)
                .map(Some)
                .map_err(|_| self.wrong(key, "a number of 0 and more")),
        }
    }

    /// A count that must be there.
    pub(super) fn needed(&self, key: &str) -> Result<u64, TalkError> {
        self.count(key)?
            .ok_or_else(|| self.wrong(key, "there, and it must be"))
    }

    /// Whether something was requested.
    pub(super) fn flag(&self, key: &str) -> Result<bool, TalkError> {
        match self.map.get(key) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(Value::Number(number)) => Ok(number.as_f64() != Some(0.0)),
            Some(_) => Err(self.wrong(key, "true or false")),
        }
    }

    /// A text; nothing when the key is not there.
    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>, TalkError> {
        match self.map.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.wrong(key, "a text")),
        }
    }

    /// The objects of a list; none when the key is not there.
    pub(super) fn objects(&self, key: &str) -> Result<Vec<Object<'a>>, TalkError> {
        match self.map.get(key) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Array(items)) => items
                .iter()
                .map(|item| Object::of(self.what, item))
                .collect(),
            Some(_) => Err(self.wrong(key, "a list")),
        }
    }
}
