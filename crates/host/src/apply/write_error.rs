//! Why a setting is not written, and the values that it accepts.

use std::io;

use linerate_model::host::Qdisc;
use linerate_model::setting::{SettingKey, Value};

/// Why a setting could not be written. Nothing was changed, or the kernel reported an error.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// It is a setting of a measurement.
    #[error("cannot set {setting}: it belongs to a measurement, not to a host")]
    Trial {
        /// The setting.
        setting: SettingKey,
    },
    /// linerate cannot write this one.
    #[error("cannot set {setting}: {why}")]
    NotSupported {
        /// The setting.
        setting: SettingKey,
        /// What is missing.
        why: &'static str,
    },
    /// The value is invalid for the setting.
    #[error("cannot set {setting} to `{value}`: expected {expected}")]
    Value {
        /// The setting.
        setting: SettingKey,
        /// The value.
        value: Box<Value>,
        /// The values that the setting accepts.
        expected: &'static str,
    },
    /// The kernel refused.
    #[error("cannot set {setting} to `{value}` ({path}): {source}")]
    Kernel {
        /// The setting.
        setting: SettingKey,
        /// The value.
        value: Box<Value>,
        /// The file or request that was refused.
        path: String,
        /// The kernel's reason.
        source: io::Error,
    },
}

pub(super) fn not_supported(key: &SettingKey, why: &'static str) -> WriteError {
    WriteError::NotSupported {
        setting: key.clone(),
        why,
    }
}

pub(super) fn refused(
    key: &SettingKey,
    value: &Value,
    path: String,
    source: io::Error,
) -> WriteError {
    WriteError::Kernel {
        setting: key.clone(),
        value: Box::new(value.clone()),
        path,
        source,
    }
}

/// The error of a change that could be made but not rolled back.
pub(super) fn not_restorable(key: &SettingKey, value: &Value, why: &str) -> WriteError {
    let why = format!("{why}, which could not be restored; change it by hand first");
    let source = io::Error::new(io::ErrorKind::Unsupported, why);
    refused(key, value, "not written".to_owned(), source)
}

pub(super) fn misfit(key: &SettingKey, value: &Value) -> WriteError {
    WriteError::Value {
        setting: key.clone(),
        value: Box::new(value.clone()),
        expected: key.spec().domain.expected(),
    }
}

fn as_integer(key: &SettingKey, value: &Value) -> Result<u64, WriteError> {
    match value {
        Value::Integer(count) => Ok(*count),
        _ => Err(misfit(key, value)),
    }
}

pub(super) fn as_count(key: &SettingKey, value: &Value) -> Result<u32, WriteError> {
    u32::try_from(as_integer(key, value)?).map_err(|_| misfit(key, value))
}

pub(super) fn as_switch(key: &SettingKey, value: &Value) -> Result<bool, WriteError> {
    match value {
        Value::Switch(on) => Ok(*on),
        _ => Err(misfit(key, value)),
    }
}

pub(super) fn as_text<'v>(key: &SettingKey, value: &'v Value) -> Result<&'v str, WriteError> {
    match value {
        Value::Text(text) => Ok(text),
        _ => Err(misfit(key, value)),
    }
}

pub(super) fn as_qdisc<'v>(key: &SettingKey, value: &'v Value) -> Result<&'v Qdisc, WriteError> {
    match value {
        Value::Qdisc(qdisc) => Ok(qdisc),
        _ => Err(misfit(key, value)),
    }
}
