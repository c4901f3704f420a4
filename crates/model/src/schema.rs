//! JSON Schemas of the values that are written as a number or as text. Those of structures and enumerations are derived.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::ids::{CpuId, CpuSet, IrqNumber, NicName, NodeId, PciAddress};
use crate::known::Known;
use crate::lab::{Response, Responses, Share};
use crate::sample::{Checksum, Flag};
use crate::setting::SettingKey;
use crate::units::{BitRate, Bytes, Nanoseconds, Ratio, TransferRate};

macro_rules! written_as {
    ($($type:ty: $other:ty;)*) => {
        $(impl JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> Cow<'static, str> {
                <$other>::schema_name()
            }
            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                <$other>::json_schema(generator)
            }
        })*
    };
}

written_as! {
    CpuId: u32;
    NodeId: u32;
    IrqNumber: u32;
    NicName: String;
    Bytes: u64;
    BitRate: u64;
    Nanoseconds: u64;
    TransferRate: u32;
    Ratio: f64;
    Flag: String;
    Share: String;
}

/// A word or a list of words.
impl JsonSchema for Responses {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Responses".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<Response>();
        json_schema!({"anyOf": [one, {"type": "array", "items": one}]})
    }
}

/// Documents have null for every gap, which `crates/linerate/src/schemas.rs` distinguishes from a key that is left out.
impl<T: JsonSchema> JsonSchema for Known<T> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        Option::<T>::schema_name()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = Option::<T>::json_schema(generator);
        schema.insert("nullable".to_owned(), true.into());
        schema
    }
}

macro_rules! text {
    ($($type:ty, $name:literal, $pattern:literal, $description:literal;)*) => {
        $(impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({"type": "string", "pattern": $pattern, "description": $description})
            }
        })*
    };
}

text! {
    CpuSet, "CpuSet", "^([0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)?$",
        "A CPU set in the kernel's list form: 0-5,12; empty for none.";
    PciAddress, "PciAddress", "^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\\.[0-7]$",
        "A PCI function: 0000:41:00.0.";
    Checksum, "Checksum", "^[0-9a-f]{16}$", "A 64-bit hash.";
    SettingKey, "SettingKey", "^[a-z]+/.+$", "A setting's key.";
}
