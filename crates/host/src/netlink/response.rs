//! Values from a netlink response, each with its own reason if it is missing: not sent, or malformed. A malformed
//! value does not affect the others.

use linerate_model::known::{Cause, Known};

use super::error::Failure;
use super::message::{Attributes, u32_at};

/// The attributes of a response or of a nest in it, and the source for gaps.
#[derive(Debug, Clone)]
pub(super) struct ResponseAttributes<'a> {
    attributes: Result<Attributes<'a>, String>,
    path: String,
    absent: &'static str,
}

impl<'a> ResponseAttributes<'a> {
    /// The attributes after a family header of `fixed` bytes, requested at `path`; `absent` is the text for a missing
    /// attribute.
    pub(super) fn after(body: &'a [u8], fixed: usize, path: &str, absent: &'static str) -> Self {
        Self {
            attributes: Attributes::after(body, fixed).map_err(|failure| failure.to_string()),
            path: path.to_owned(),
            absent,
        }
    }

    /// The attributes inside the attribute `kind`; none if it is missing.
    pub(super) fn nest(&self, kind: u16, what: &str) -> Self {
        let attributes = match &self.attributes {
            Ok(own) => own.nest(kind).map_err(|failure| failure.to_string()),
            Err(why) => Err(why.clone()),
        };
        Self {
            attributes,
            path: format!("{}/{what}", self.path),
            absent: self.absent,
        }
    }

    /// Every attribute with its type; none for a malformed list.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u16, &'a [u8])> + '_ {
        self.attributes
            .as_ref()
            .ok()
            .into_iter()
            .flat_map(Attributes::iter)
    }

    /// The payload of the attribute `kind`.
    pub(super) fn bytes(&self, kind: u16) -> Option<&'a [u8]> {
        self.attributes.as_ref().ok()?.bytes(kind)
    }

    /// Whether the attribute `kind` is there.
    pub(super) fn has(&self, kind: u16) -> bool {
        self.bytes(kind).is_some()
    }

    /// Applies `read` to the attributes.
    pub(super) fn fact<T>(
        &self,
        what: &str,
        read: impl FnOnce(&Attributes<'a>) -> Result<Option<T>, Failure>,
    ) -> Known<T> {
        let answer = match &self.attributes {
            Ok(attributes) => read(attributes).map_err(|failure| failure.to_string()),
            Err(why) => Err(why.clone()),
        };
        match answer {
            Ok(Some(value)) => Known::Value(value),
            Ok(None) => self.missing(Cause::Absent, what, self.absent),
            Err(why) => self.missing(Cause::Unreadable, what, &why),
        }
    }

    /// A gap for the value `what`.
    pub(super) fn missing<T>(&self, cause: Cause, what: &str, why: &str) -> Known<T> {
        Known::unknown(cause, format!("{}/{what}", self.path), why)
    }

    /// An 8-bit number.
    pub(super) fn u8(&self, kind: u16, what: &str) -> Known<u8> {
        self.fact(what, |attributes| byte(attributes, kind))
    }

    /// A 16-bit number.
    pub(super) fn u16(&self, kind: u16, what: &str) -> Known<u16> {
        self.fact(what, |attributes| attributes.u16(kind))
    }

    /// A 16-bit number in the network's byte order.
    pub(super) fn u16_of_network(&self, kind: u16, what: &str) -> Known<u16> {
        self.u16(kind, what).map(u16::from_be)
    }

    /// A 32-bit number.
    pub(super) fn u32(&self, kind: u16, what: &str) -> Known<u32> {
        self.fact(what, |attributes| attributes.u32(kind))
    }

    /// A number that is sent as 32 or 64 bits.
    pub(super) fn uint(&self, kind: u16, what: &str) -> Known<u64> {
        self.fact(what, |attributes| uint(attributes, kind))
    }

    /// A text.
    pub(super) fn text(&self, kind: u16, what: &str) -> Known<String> {
        self.fact(what, |attributes| attributes.text(kind))
    }

    /// The name of a number that indexes a list.
    pub(super) fn word(&self, number: Known<u8>, what: &str, words: &[&str]) -> Known<String> {
        number.and_then(|number| {
            if let Some(word) = words.get(usize::from(number)) {
                return Known::Value((*word).to_owned());
            }
            let why = format!("unknown value {number}");
            self.missing(Cause::Unreadable, what, &why)
        })
    }
}

/// An 8-bit number.
pub(super) fn byte(attributes: &Attributes<'_>, kind: u16) -> Result<Option<u8>, Failure> {
    let first = |payload: &[u8]| {
        let first = payload.first().copied();
        first.ok_or(Failure::Malformed("an integer is truncated"))
    };
    attributes.bytes(kind).map(first).transpose()
}

/// A number that is sent as 32 or 64 bits, as needed (`NLA_UINT`).
pub(super) fn uint(attributes: &Attributes<'_>, kind: u16) -> Result<Option<u64>, Failure> {
    match attributes.bytes(kind).map(<[u8]>::len) {
        Some(8..) => attributes.u64(kind),
        Some(_) => Ok(attributes.u32(kind)?.map(u64::from)),
        None => Ok(None),
    }
}

/// An array of `N` 32-bit numbers at the start of `bytes`.
pub(super) fn numbers<const N: usize>(bytes: &[u8]) -> Result<[u32; N], Failure> {
    let mut all = [0; N];
    for (index, number) in all.iter_mut().enumerate() {
        *number = u32_at(bytes, index * 4)?;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::message::Request;
    use super::*;

    #[test]
    fn a_fact_knows_whether_it_was_not_sent_or_not_understood() {
        let mut request = Request::new(0, &[]);
        request
            .put(1, &[7])
            .put(2, &[])
            .put(3, &[1, 2, 3, 4, 5, 6, 7, 8]);
        let body = request.into_body();
        let said = ResponseAttributes::after(&body, 0, "netlink/x", "not offered");
        assert_eq!(said.u8(1, "one"), Known::Value(7));
        let cause = |known: Known<u8>| known.gap().map(|gap| (gap.cause, gap.path.clone()));
        let at = |what: &str| format!("netlink/x/{what}");
        assert_eq!(
            cause(said.u8(2, "two")),
            Some((Cause::Unreadable, at("two")))
        );
        assert_eq!(cause(said.u8(9, "nine")), Some((Cause::Absent, at("nine"))));
        assert!(said.uint(3, "three").value().is_some());
        assert!(said.word(Known::Value(7), "one", &["a"]).value().is_none());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(body in vec(any::<u8>(), 0..120)) {
            let said = ResponseAttributes::after(&body, 4, "p", "absent");
            for kind in 0..8 {
                let _ = (said.u8(kind, "w"), said.u16(kind, "w"), said.u32(kind, "w"));
                let _ = (said.uint(kind, "w"), said.text(kind, "w"), said.nest(kind, "w"));
            }
            let _ = numbers::<4>(&body);
        }
    }
}
