//! Deserializes a [`Known`] without buffering: serde's untagged enums first store the whole value in a generic form,
//! 16 times as large as a text such as `[0,0,...]` from a peer.
//!
//! An object whose first key is a key of [`Gap`] is a gap. Everything else is the value, and is passed directly to
//! its type.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{BorrowedStrDeserializer, MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{DeserializeSeed, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, forward_to_deserialize_any};

use super::{Gap, Known};

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Known<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Either(PhantomData))
    }
}

/// A value or a gap.
struct Either<T>(PhantomData<T>);

/// Visits a scalar by passing it to the value's type.
macro_rules! scalars {
    ($($visit:ident($type:ty)),*) => {
        $(fn $visit<E: serde::de::Error>(self, value: $type) -> Result<Self::Value, E> {
            T::deserialize(Found(value.into_deserializer())).map(Known::Value)
        })*
    };
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Either<T> {
    type Value = Known<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a fact or why it is not known")
    }

    scalars!(
        visit_bool(bool),
        visit_i64(i64),
        visit_u64(u64),
        visit_f64(f64),
        visit_str(&str),
        visit_string(String)
    );

    fn visit_borrowed_str<E: serde::de::Error>(self, text: &'de str) -> Result<Known<T>, E> {
        T::deserialize(Found(BorrowedStrDeserializer::new(text))).map(Known::Value)
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Known<T>, E> {
        // `null` is a valid value if the type is an `Option`.
        T::deserialize(().into_deserializer()).map(Known::Value)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Known<T>, A::Error> {
        T::deserialize(Found(SeqAccessDeserializer::new(items))).map(Known::Value)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Known<T>, A::Error> {
        let first: Option<String> = fields.next_key()?;
        let is_gap = matches!(first.as_deref(), Some("unknown" | "path" | "reason"));
        let all = MapAccessDeserializer::new(Fields { first, fields });
        if is_gap {
            Gap::deserialize(all).map(Known::Unknown)
        } else {
            T::deserialize(Found(all)).map(Known::Value)
        }
    }
}

/// The fields of an object whose first key was read already.
struct Fields<A> {
    first: Option<String>,
    fields: A,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Fields<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        match self.first.take() {
            Some(key) => seed.deserialize(key.into_deserializer()).map(Some),
            None => self.fields.next_key_seed(seed),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.fields.next_value_seed(seed)
    }
}

/// A value that was read, for a type that may be an `Option`, a newtype or an enum: serde's own value deserializers
/// do not support the first two.
struct Found<D>(D);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Found<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_any(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_enum(name, variants, visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Serialize;
    use serde::de::DeserializeOwned;

    use super::*;
    use crate::known::Cause;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum Kind {
        Plain,
        Numbered(u32),
        Named { name: String },
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Wrapped(f64);

    #[track_caller]
    fn reads_back<T: Serialize + DeserializeOwned + PartialEq + fmt::Debug>(value: T) {
        let known = Known::Value(value);
        let text = serde_json::to_string(&known).expect("it can be written");
        let read: Known<T> = serde_json::from_str(&text).expect("it can be read");
        assert_eq!(read, known, "{text}");
        let tree: Known<T> =
            serde_json::from_value(serde_json::json!(known)).expect("it can be read");
        assert_eq!(tree, known, "{text}");
    }

    #[test]
    fn facts_of_every_shape_read_back() {
        reads_back(true);
        reads_back(-1_i32);
        reads_back(u64::MAX);
        reads_back(2.0_f64);
        reads_back("text \u{1b}".to_owned());
        reads_back(Some(7_u32));
        reads_back(None::<u32>);
        reads_back(vec![(1_u8, 'c')]);
        reads_back(BTreeMap::from([("name".to_owned(), vec![1_u64])]));
        reads_back(BTreeMap::<String, u64>::new());
        reads_back(
            [
                Kind::Plain,
                Kind::Numbered(3),
                Kind::Named {
                    name: "n".to_owned(),
                },
            ]
            .map(Known::Value),
        );
        reads_back(Kind::Plain);
        reads_back(Kind::Numbered(3));
        reads_back(Kind::Named {
            name: "n".to_owned(),
        });
        reads_back(Wrapped(0.5));
        reads_back(Some(Wrapped(3.0)));
    }

    #[test]
    fn a_gap_reads_back_whatever_the_order_of_its_keys() {
        let gap = Gap::new(Cause::Absent, "/sys/x", "no such file");
        for text in [
            r#"{"unknown":"absent","path":"/sys/x","reason":"no such file"}"#,
            r#"{"path":"/sys/x","reason":"no such file","unknown":"absent"}"#,
            r#"{"reason":"no such file","unknown":"absent","path":"/sys/x"}"#,
        ] {
            let read: Known<Vec<u64>> = serde_json::from_str(text).expect("a gap");
            assert_eq!(read, Known::Unknown(gap.clone()));
        }
        let text = r#"{"unknown":"absent"}"#;
        serde_json::from_str::<Known<u64>>(text).expect_err("a gap without a reason");
    }

    #[test]
    fn what_is_no_fact_of_its_type_is_refused_where_it_goes_wrong() {
        let error = serde_json::from_str::<Known<Vec<u8>>>("[1,2,\n[0]]").expect_err("no number");
        assert_eq!((error.line(), error.column()), (2, 0), "{error}");
    }
}
