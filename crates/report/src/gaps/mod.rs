//! The gaps within anything that is serialized: each is recorded with its path and becomes
//! `null` on its way into another serializer. A large host has tens of thousands of them, so no tree is
//! built in between.

use std::cell::RefCell;
use std::fmt::{self, Write as _};
use std::io;

use linerate_model::known::Cause;
use serde::ser::{self, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A gap as the list `gaps` of a document has it.
#[derive(Debug, Serialize)]
pub(super) struct Noted {
    pub(super) path: String,
    pub(super) reason: String,
    pub(super) cause: Cause,
    /// Where it stood, as a JSON pointer (RFC 6901); none for one that belongs to the whole.
    pub(super) field: Option<String>,
}

/// What is noted while a value is serialized.
#[derive(Debug, Default)]
pub(super) struct Notes {
    pub(super) found: Vec<Noted>,
    /// A field of the value itself that is left out.
    pub(super) leave_out: Option<&'static str>,
    /// Gaps of other causes are not noted.
    pub(super) only: Option<Cause>,
    /// The JSON pointer of what is being serialized.
    pub(super) place: String,
}

/// A value whose gaps become null and are noted.
#[derive(Debug)]
pub(super) struct Noting<'a, T: ?Sized> {
    pub(super) value: &'a T,
    pub(super) notes: &'a RefCell<Notes>,
}

impl<T: Serialize + ?Sized> Serialize for Noting<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(Catching {
            inner: serializer,
            notes: self.notes,
        })
    }
}

/// A value with null for every gap.
pub fn nulled<T: Serialize + ?Sized>(value: &T) -> Value {
    let notes = &RefCell::default();
    serde_json::to_value(Noting { value, notes }).unwrap_or(Value::Null)
}

/// A part of a document that has null for every gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nulled<T>(pub T);

impl<T: Serialize> Serialize for Nulled<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (value, notes) = (&self.0, &RefCell::default());
        Noting { value, notes }.serialize(serializer)
    }
}

#[cfg(feature = "schema")]
impl<T: schemars::JsonSchema> schemars::JsonSchema for Nulled<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        T::schema_name()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        T::json_schema(generator)
    }
}

/// The gaps of one cause within a value.
pub(super) fn gaps_of<T: Serialize + ?Sized>(value: &T, cause: Cause) -> Vec<Noted> {
    let notes = RefCell::new(Notes {
        only: Some(cause),
        ..Notes::default()
    });
    let noting = Noting {
        value,
        notes: &notes,
    };
    // What cannot be serialized has no more gaps to report.
    let _ = serde_json::to_writer(io::sink(), &noting);
    notes.into_inner().found
}

/// Passes everything on to `inner` but the gaps.
struct Catching<'n, S> {
    inner: S,
    notes: &'n RefCell<Notes>,
}

macro_rules! pass_on {
    ($($method:ident($($name:ident: $type:ty),*);)*) => {
        $(fn $method(self, $($name: $type),*) -> Result<S::Ok, S::Error> {
            self.inner.$method($($name),*)
        })*
    };
}

impl<'n, S: Serializer> Serializer for Catching<'n, S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Below<'n, S::SerializeSeq>;
    type SerializeTuple = Below<'n, S::SerializeTuple>;
    type SerializeTupleStruct = Below<'n, S::SerializeTupleStruct>;
    type SerializeTupleVariant = Below<'n, S::SerializeTupleVariant>;
    type SerializeMap = Below<'n, S::SerializeMap>;
    type SerializeStruct = StructOrGap<'n, S>;
    type SerializeStructVariant = Below<'n, S::SerializeStructVariant>;

    pass_on! {
        serialize_bool(v: bool);
        serialize_i8(v: i8);
        serialize_i16(v: i16);
        serialize_i32(v: i32);
        serialize_i64(v: i64);
        serialize_i128(v: i128);
        serialize_u8(v: u8);
        serialize_u16(v: u16);
        serialize_u32(v: u32);
        serialize_u64(v: u64);
        serialize_u128(v: u128);
        serialize_f32(v: f32);
        serialize_f64(v: f64);
        serialize_char(v: char);
        serialize_str(v: &str);
        serialize_bytes(v: &[u8]);
        serialize_none();
        serialize_unit();
        serialize_unit_struct(name: &'static str);
        serialize_unit_variant(name: &'static str, index: u32, variant: &'static str);
    }

    fn collect_str<T: fmt::Display + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.inner.collect_str(value)
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        let notes = self.notes;
        self.inner.serialize_some(&Noting { value, notes })
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        let notes = self.notes;
        (self.inner).serialize_newtype_struct(name, &Noting { value, notes })
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        let notes = self.notes;
        let outside = enter_variant(notes, variant);
        let noting = Noting { value, notes };
        let answer = (self.inner).serialize_newtype_variant(name, index, variant, &noting);
        notes.borrow_mut().place.truncate(outside);
        answer
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<Self::SerializeSeq, S::Error> {
        Ok(Below::of(self.inner.serialize_seq(len)?, self.notes))
    }

    fn serialize_tuple(self, len: usize) -> Result<Self::SerializeTuple, S::Error> {
        Ok(Below::of(self.inner.serialize_tuple(len)?, self.notes))
    }

    fn serialize_tuple_struct(
        self,
        name: &'static str,
        len: usize,
    ) -> Result<Self::SerializeTupleStruct, S::Error> {
        let inner = self.inner.serialize_tuple_struct(name, len)?;
        Ok(Below::of(inner, self.notes))
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeTupleVariant, S::Error> {
        let inner = (self.inner).serialize_tuple_variant(name, index, variant, len)?;
        Ok(Below::of_variant(inner, self.notes, variant))
    }

    fn serialize_map(self, len: Option<usize>) -> Result<Self::SerializeMap, S::Error> {
        Ok(Below::of(self.inner.serialize_map(len)?, self.notes))
    }

    fn serialize_struct(
        self,
        name: &'static str,
        len: usize,
    ) -> Result<Self::SerializeStruct, S::Error> {
        if name == "Gap" {
            return Ok(StructOrGap::Gap(CaughtGap {
                inner: self.inner,
                notes: self.notes,
                cause: None,
                path: String::new(),
                reason: String::new(),
            }));
        }
        let inner = self.inner.serialize_struct(name, len)?;
        Ok(StructOrGap::Struct(Below::of(inner, self.notes)))
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeStructVariant, S::Error> {
        let inner = (self.inner).serialize_struct_variant(name, index, variant, len)?;
        Ok(Below::of_variant(inner, self.notes, variant))
    }
}

/// The inside of a list, a map or a structure.
struct Below<'n, C> {
    inner: C,
    notes: &'n RefCell<Notes>,
    /// How long the place is outside, and inside before the name of a part.
    outside: usize,
    inside: usize,
    /// The next part of a list.
    index: usize,
}

impl<'n, C> Below<'n, C> {
    fn of(inner: C, notes: &'n RefCell<Notes>) -> Self {
        let here = notes.borrow().place.len();
        Self {
            inner,
            notes,
            outside: here,
            inside: here,
            index: 0,
        }
    }

    /// The content of an enum's variant is below the variant's name.
    fn of_variant(inner: C, notes: &'n RefCell<Notes>, variant: &str) -> Self {
        let outside = enter_variant(notes, variant);
        Self {
            outside,
            ..Self::of(inner, notes)
        }
    }

    fn enter(&self, key: &str) {
        enter(self.notes, self.inside, key);
    }

    fn noting<'v, T: ?Sized>(&self, value: &'v T) -> Noting<'v, T>
    where
        'n: 'v,
    {
        Noting {
            value,
            notes: self.notes,
        }
    }

    fn next<'v, T: ?Sized>(&mut self, value: &'v T) -> Noting<'v, T>
    where
        'n: 'v,
    {
        let mut notes = self.notes.borrow_mut();
        notes.place.truncate(self.inside);
        // Writing to a text cannot fail.
        let _ = write!(notes.place, "/{}", self.index);
        drop(notes);
        self.index += 1;
        self.noting(value)
    }

    fn leave(self) -> C {
        self.notes.borrow_mut().place.truncate(self.outside);
        self.inner
    }
}

/// Makes the place that of `key` in what has a place of so many bytes.
fn enter(notes: &RefCell<Notes>, inside: usize, key: &str) {
    let mut notes = notes.borrow_mut();
    notes.place.truncate(inside);
    notes.place.push('/');
    for character in key.chars() {
        match character {
            '~' => notes.place.push_str("~0"),
            '/' => notes.place.push_str("~1"),
            other => notes.place.push(other),
        }
    }
}

fn enter_variant(notes: &RefCell<Notes>, variant: &str) -> usize {
    let outside = notes.borrow().place.len();
    enter(notes, outside, variant);
    outside
}

macro_rules! list {
    ($($form:ident::$method:ident;)*) => {
        $(impl<C: ser::$form> ser::$form for Below<'_, C> {
            type Ok = C::Ok;
            type Error = C::Error;
            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), C::Error> {
                let noting = self.next(value);
                self.inner.$method(&noting)
            }
            fn end(self) -> Result<C::Ok, C::Error> {
                self.leave().end()
            }
        })*
    };
}

list! {
    SerializeSeq::serialize_element;
    SerializeTuple::serialize_element;
    SerializeTupleStruct::serialize_field;
    SerializeTupleVariant::serialize_field;
}

impl<C: ser::SerializeMap> ser::SerializeMap for Below<'_, C> {
    type Ok = C::Ok;
    type Error = C::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), C::Error> {
        match serde_json::to_value(key).map_err(ser::Error::custom)? {
            Value::String(text) => self.enter(&text),
            other => self.enter(&other.to_string()),
        }
        self.inner.serialize_key(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), C::Error> {
        let noting = self.noting(value);
        self.inner.serialize_value(&noting)
    }

    fn end(self) -> Result<C::Ok, C::Error> {
        self.leave().end()
    }
}

macro_rules! fields {
    ($($form:ident)*) => {
        $(impl<C: ser::$form> ser::$form for Below<'_, C> {
            type Ok = C::Ok;
            type Error = C::Error;
            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                key: &'static str,
                value: &T,
            ) -> Result<(), C::Error> {
                // Never within a variant: its content is below its name.
                if self.inside == 0 && self.notes.borrow().leave_out == Some(key) {
                    return self.inner.skip_field(key);
                }
                self.enter(key);
                let noting = self.noting(value);
                self.inner.serialize_field(key, &noting)
            }
            fn skip_field(&mut self, key: &'static str) -> Result<(), C::Error> {
                self.inner.skip_field(key)
            }
            fn end(self) -> Result<C::Ok, C::Error> {
                self.leave().end()
            }
        })*
    };
}

fields! {
    SerializeStruct
    SerializeStructVariant
}

enum StructOrGap<'n, S: Serializer> {
    Struct(Below<'n, S::SerializeStruct>),
    Gap(CaughtGap<'n, S>),
}

/// A `linerate_model::known::Gap` that is about to be noted.
struct CaughtGap<'n, S> {
    inner: S,
    notes: &'n RefCell<Notes>,
    cause: Option<Cause>,
    path: String,
    reason: String,
}

impl<S: Serializer> CaughtGap<'_, S> {
    fn take<T: Serialize + ?Sized>(&mut self, key: &str, value: &T) -> serde_json::Result<()> {
        let only = self.notes.borrow().only;
        if self.cause.is_some() && only.is_some() && self.cause != only {
            return Ok(());
        }
        let value = serde_json::to_value(value)?;
        match (key, value) {
            ("unknown", cause) => self.cause = Some(Cause::deserialize(cause)?),
            ("path", Value::String(path)) => self.path = path,
            ("reason", Value::String(reason)) => self.reason = reason,
            _ => {}
        }
        Ok(())
    }

    fn note(self) -> Result<S::Ok, S::Error> {
        let mut notes = self.notes.borrow_mut();
        if let Some(cause) = self.cause
            && notes.only.is_none_or(|only| only == cause)
        {
            let field = Some(notes.place.clone());
            notes.found.push(Noted {
                path: self.path,
                reason: self.reason,
                cause,
                field,
            });
        }
        drop(notes);
        self.inner.serialize_unit()
    }
}

impl<S: Serializer> ser::SerializeStruct for StructOrGap<'_, S> {
    type Ok = S::Ok;
    type Error = S::Error;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        key: &'static str,
        value: &T,
    ) -> Result<(), S::Error> {
        match self {
            Self::Struct(below) => below.serialize_field(key, value),
            Self::Gap(gap) => gap.take(key, value).map_err(ser::Error::custom),
        }
    }

    fn skip_field(&mut self, key: &'static str) -> Result<(), S::Error> {
        match self {
            Self::Struct(below) => below.skip_field(key),
            Self::Gap(_) => Ok(()),
        }
    }

    fn end(self) -> Result<S::Ok, S::Error> {
        match self {
            Self::Struct(below) => below.end(),
            Self::Gap(gap) => gap.note(),
        }
    }
}

#[cfg(test)]
mod tests;
