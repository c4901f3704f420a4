//! Settings that are one file each: its path, and the conversion between its text and the setting's value, in both
//! directions. Paths:
//! `/proc/sys` (Documentation/admin-guide/sysctl), `/sys/class/net/*` (Documentation/ABI/testing/sysfs-class-net,
//! sysfs-class-net-queues), `/proc/irq/*/smp_affinity_list` (Documentation/core-api/irq/irq-affinity.rst),
//! `/sys/block/*/queue` (Documentation/ABI/stable/sysfs-block), and those in the catalog for the others.

use super::{Access, SettingKey, Value, fold_blanks, path};
use crate::ids::{CpuId, CpuSet};

/// The file of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingFile {
    /// Relative to the root.
    pub path: String,
    /// Its format.
    pub form: Form,
}

/// The format of a value in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Words separated by white space.
    Words,
    /// A whole number.
    Number,
    /// 0 or 1.
    Switch,
    /// The same inverted: `no_turbo`.
    Opposite,
    /// CPUs as a hexadecimal mask.
    CpuMask,
    /// CPUs in list form.
    CpuList,
    /// Queues as a hexadecimal mask.
    QueueMask,
    /// All choices, the selected one in brackets.
    Chosen,
    /// The same; `none` may appear without brackets.
    Scheduler,
    /// A name followed by its number: `layer3+4 1`.
    Named,
}

impl SettingFile {
    /// The file `path`.
    pub fn new(path: impl Into<String>, form: Form) -> Self {
        let path = path.into();
        Self { path, form }
    }

    /// The text to write for `value`; `None` if the value has another type.
    pub fn text(&self, value: &Value) -> Option<String> {
        match (self.form, value) {
            (Form::Words | Form::Chosen | Form::Scheduler | Form::Named, Value::Text(text)) => {
                (!text.contains(['\n', '\0'])).then(|| text.clone())
            }
            (Form::CpuList, Value::Text(text)) => Some(text.parse::<CpuSet>().ok()?.to_string()),
            (Form::CpuMask, Value::Text(text)) => Some(text.parse::<CpuSet>().ok()?.to_mask()),
            (Form::QueueMask, Value::Text(text)) => {
                let queue = |word: &str| match word.parse() {
                    Ok(queue) if queue <= CpuSet::CPU_MAX => Some(CpuId(queue)),
                    _ => None,
                };
                let queues: Option<CpuSet> = text.split_whitespace().map(queue).collect();
                Some(queues?.to_mask())
            }
            (Form::Number, Value::Integer(number)) => Some(number.to_string()),
            (Form::Switch, Value::Switch(on)) => Some(u8::from(*on).to_string()),
            (Form::Opposite, Value::Switch(on)) => Some(u8::from(!*on).to_string()),
            _ => None,
        }
    }
}

impl Form {
    /// The value of `text`. Text that could not be written back unchanged is not accepted.
    pub fn value(self, text: &str) -> Result<Value, &'static str> {
        let text = text.trim();
        let flag = || match text {
            "0" => Ok(false),
            "1" => Ok(true),
            _ => Err("neither 0 nor 1"),
        };
        let mask = || CpuSet::from_mask(text).map_err(|_| "not a mask");
        Ok(match self {
            Self::Words => Value::Text(fold_blanks(text)),
            Self::Number => Value::Integer(text.parse().map_err(|_| "not a whole number")?),
            Self::Switch => Value::Switch(flag()?),
            Self::Opposite => Value::Switch(!flag()?),
            Self::CpuMask => Value::Text(mask()?.to_string()),
            Self::CpuList => {
                let cpus: CpuSet = text.parse().map_err(|_| "not a list of CPUs")?;
                Value::Text(cpus.to_string())
            }
            Self::QueueMask => {
                let queues: Vec<String> = mask()?.iter().map(|queue| queue.to_string()).collect();
                Value::Text(queues.join(" "))
            }
            Self::Chosen => Value::Text(parse_chosen(text)?),
            Self::Scheduler => Value::Text(parse_scheduler(text)?),
            Self::Named => {
                let name = text.split_whitespace().next();
                Value::Text(name.ok_or("it is empty")?.to_owned())
            }
        })
    }
}

/// The word in brackets: `always [madvise] never`.
pub fn parse_chosen(text: &str) -> Result<String, &'static str> {
    text.split_whitespace()
        .find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))
        .map(str::to_owned)
        .ok_or("no word in brackets")
}

/// `none [mq-deadline] kyber`: the active one is in brackets; a single `none` has no brackets.
pub fn parse_scheduler(text: &str) -> Result<String, &'static str> {
    match text.trim() {
        alone @ "none" => Ok(alone.to_owned()),
        text => parse_chosen(text),
    }
}

impl SettingKey {
    /// The file of a setting that is the same file on every machine.
    pub fn fixed_file(&self) -> Option<SettingFile> {
        match self.spec().access {
            Access::File(path, form) => Some(SettingFile::new(self.at(path), form)),
            _ => None,
        }
    }

    /// The directory whose existence is the setting, relative to the root.
    pub fn folder(&self) -> Option<String> {
        match self.spec().access {
            Access::Folder(path) => Some(self.at(path)),
            _ => None,
        }
    }

    /// A path with the key's words in place of its placeholders.
    fn at(&self, path: &str) -> String {
        path::filled(path, |placeholder| {
            let word = self.word(placeholder)?;
            // The names of ASPM's files have underscores.
            let is_state = placeholder == "STATE";
            Some(if is_state {
                word.replace('-', "_")
            } else {
                word
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_written_back_as_it_was() {
        for (form, text, value) in [
            (
                Form::Words,
                "4096\t131072\t6291456\n",
                Value::Text("4096 131072 6291456".into()),
            ),
            (Form::Number, "20000\n", Value::Integer(20_000)),
            (Form::Switch, "1\n", Value::Switch(true)),
            (Form::Opposite, "1\n", Value::Switch(false)),
            (
                Form::CpuMask,
                "00000001,0000000f\n",
                Value::Text("0-3,32".into()),
            ),
            (Form::CpuList, "0-3,32\n", Value::Text("0-3,32".into())),
            (Form::QueueMask, "5\n", Value::Text("0 2".into())),
            (Form::QueueMask, "0\n", Value::Text(String::new())),
            (
                Form::Chosen,
                "always [madvise] never\n",
                Value::Text("madvise".into()),
            ),
            (Form::Scheduler, "none\n", Value::Text("none".into())),
            (Form::Named, "layer3+4 1\n", Value::Text("layer3+4".into())),
        ] {
            assert_eq!(form.value(text), Ok(value.clone()), "{text:?}");
            let file = SettingFile::new("a/file", form);
            let written = file.text(&value).expect("its own value");
            // The kernel marks the selected word if it shows all of them.
            let shown = match form {
                Form::Chosen => format!("[{written}]"),
                _ => written,
            };
            assert_eq!(form.value(&shown), Ok(value), "{shown:?}");
        }
    }

    #[test]
    fn the_word_in_brackets_is_the_chosen_one() {
        assert_eq!(
            parse_chosen("always [madvise] never").as_deref(),
            Ok("madvise")
        );
        let active = parse_scheduler("none [mq-deadline] bfq");
        assert_eq!(active.as_deref(), Ok("mq-deadline"));
        assert_eq!(parse_scheduler("none").as_deref(), Ok("none"));
        assert!(parse_scheduler("").is_err());
    }

    #[test]
    fn what_could_not_be_put_back_is_not_read_and_what_does_not_fit_is_not_written() {
        // Busy-polling NAPI threads (Linux 6.19) are more than on.
        assert_eq!(Form::Switch.value("2"), Err("neither 0 nor 1"));
        assert!(Form::Chosen.value("a b").is_err());
        assert!(Form::Named.value("").is_err());
        let writes = |form, value: &Value| SettingFile::new("a/file", form).text(value);
        assert_eq!(writes(Form::Switch, &Value::Integer(1)), None);
        assert_eq!(writes(Form::Words, &Value::Text("a\nb".into())), None);
        assert_eq!(writes(Form::QueueMask, &Value::Text("0 x".into())), None);
        assert_eq!(writes(Form::CpuList, &Value::Text("0 x".into())), None);
    }
}
