//! Settings with a common subject, as a type: the macro turns a table of rows into an enum with one variant for each
//! row, in the same order, which is the order in which a plan changes them.

use crate::host::QueueKind;

/// The variable part of a setting's path below its subject: `rx-0`, `tx-tcp-segmentation`.
pub(super) trait Part: Sized {
    /// As in the key.
    fn word(&self) -> String;
    /// From the key.
    fn parse(word: &str) -> Option<Self>;
}

impl Part for String {
    fn word(&self) -> String {
        self.clone()
    }
    fn parse(word: &str) -> Option<Self> {
        (!word.is_empty()).then(|| word.to_owned())
    }
}

impl Part for u32 {
    fn word(&self) -> String {
        self.to_string()
    }
    fn parse(word: &str) -> Option<Self> {
        word.parse().ok()
    }
}

impl Part for (QueueKind, u32) {
    fn word(&self) -> String {
        match self.0 {
            QueueKind::Rx => format!("rx-{}", self.1),
            QueueKind::Tx => format!("tx-{}", self.1),
        }
    }
    fn parse(word: &str) -> Option<Self> {
        let (kind, index) = word.split_once('-')?;
        let kind = match kind {
            "rx" => QueueKind::Rx,
            "tx" => QueueKind::Tx,
            _ => return None,
        };
        Some((kind, index.parse().ok()?))
    }
}

/// `knobs!(Name, SUBJECT, Variant(TYPE) = ROW, ...)`: the first SUBJECT segments of the rows' patterns name the
/// subject, the others are the path of the knob. A variant has the type of the variable part of its path, if it has
/// one.
macro_rules! knobs {
    ($(#[$meta:meta])* $name:ident, $subject:literal, $($variant:ident $(($($part:ty),+))? = $row:expr),+ $(,)?) => {
        /// Settings with a common subject; the row of each says what it is.
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $(#[$meta])*
        #[expect(missing_docs, reason = "the row of each says what it is")]
        pub enum $name {
            $($variant $(($($part),+))?,)+
        }

        impl $name {
            /// Their rows.
            pub(in crate::setting) const ROWS: &'static [SettingSpec] = &[$($row),+];

            fn index(&self) -> usize {
                enum Index { $($variant),+ }
                match self {
                    $(Self::$variant { .. } => Index::$variant as usize,)+
                }
            }

            /// The row of this one.
            pub fn spec(&self) -> &'static SettingSpec {
                &Self::ROWS[self.index()]
            }

            /// The knob of that row, with the variable part of its path.
            pub(in crate::setting) fn at(row: usize, word: &str) -> Option<Self> {
                let mut rows = 0_usize..;
                $(
                    if rows.next() == Some(row) {
                        return $crate::setting::knobs::made!(word, $name $variant $($($part),+)?);
                    }
                )+
                None
            }

            /// The knob with that path below its subject.
            pub(in crate::setting) fn parse(path: &str) -> Option<Self> {
                let mut rows = Self::ROWS.iter().enumerate();
                rows.find_map(|(row, spec)| {
                    let pattern = $crate::setting::path::below(spec.pattern, $subject);
                    let word = $crate::setting::path::capture(pattern, path)?;
                    Self::at(row, word)
                })
            }

            /// The variable part of its path.
            pub fn word(&self) -> Option<String> {
                $($crate::setting::knobs::word_of!(self, $name $variant $($($part),+)?);)+
                None
            }
        }

        /// Its path below its subject.
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let pattern = $crate::setting::path::below(self.spec().pattern, $subject);
                f.write_str(&$crate::setting::path::filled(pattern, |_| self.word()))
            }
        }
    };
}

/// The variant for the variable part of a path.
macro_rules! made {
    ($word:ident, $name:ident $variant:ident) => {
        $word.is_empty().then_some($name::$variant)
    };
    ($word:ident, $name:ident $variant:ident $part:ty) => {
        <$part as $crate::setting::knobs::Part>::parse($word).map($name::$variant)
    };
    ($word:ident, $name:ident $variant:ident $first:ty, $second:ty) => {
        <($first, $second) as $crate::setting::knobs::Part>::parse($word)
            .map(|(first, second)| $name::$variant(first, second))
    };
}

/// Returns the variable part of `$knob`, if it is that variant.
macro_rules! word_of {
    ($knob:ident, $name:ident $variant:ident) => {};
    ($knob:ident, $name:ident $variant:ident $part:ty) => {
        if let $name::$variant(part) = $knob {
            return Some($crate::setting::knobs::Part::word(part));
        }
    };
    ($knob:ident, $name:ident $variant:ident $first:ty, $second:ty) => {
        if let $name::$variant(first, second) = $knob {
            return Some($crate::setting::knobs::Part::word(&(*first, *second)));
        }
    };
}

pub(super) use {knobs, made, word_of};
