//! Deserializing the value of a setting.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::Value;
use crate::host::Qdisc;

/// Without buffering: serde's untagged enums first store the value in a generic form, which is many times as large as
/// a peer's text.
impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ByShape;
        impl<'de> Visitor<'de> for ByShape {
            type Value = Value;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a switch, a count, a qdisc or text")
            }

            fn visit_bool<E>(self, on: bool) -> Result<Value, E> {
                Ok(Value::Switch(on))
            }

            fn visit_u64<E>(self, count: u64) -> Result<Value, E> {
                Ok(Value::Integer(count))
            }

            fn visit_i64<E: de::Error>(self, count: i64) -> Result<Value, E> {
                let invalid = || E::invalid_value(de::Unexpected::Signed(count), &self);
                u64::try_from(count)
                    .map(Value::Integer)
                    .map_err(|_| invalid())
            }

            fn visit_str<E>(self, text: &str) -> Result<Value, E> {
                Ok(Value::Text(text.to_owned()))
            }

            fn visit_string<E>(self, text: String) -> Result<Value, E> {
                Ok(Value::Text(text))
            }

            fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Value, A::Error> {
                Qdisc::deserialize(MapAccessDeserializer::new(fields)).map(Value::Qdisc)
            }
        }
        deserializer.deserialize_any(ByShape)
    }
}
