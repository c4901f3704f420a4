//! The netlink wire format: encodes and decodes messages and attributes without trusting length fields. The layout is
//! that of `<linux/netlink.h>` (`netlink(7)`): every number in host byte order, everything padded to 4 bytes.

use super::error::Failure;

/// `NLM_F_REQUEST`: a request to the kernel.
pub(super) const REQUEST: u16 = 0x1;
/// `NLM_F_ACK`: also acknowledge success.
pub(super) const ACK: u16 = 0x4;
/// `NLM_F_DUMP_INTR`: the table changed while it was dumped.
pub(super) const DUMP_INTERRUPTED: u16 = 0x10;
/// `NLM_F_DUMP`: all objects.
pub(super) const DUMP: u16 = 0x300;
/// `NLM_F_REPLACE`: replace an existing object.
pub(super) const REPLACE: u16 = 0x100;
/// `NLM_F_EXCL`: fail if it exists.
pub(super) const EXCLUSIVE: u16 = 0x200;
/// `NLM_F_CREATE`: create it if it does not exist.
pub(super) const CREATE: u16 = 0x400;
/// `NLM_F_CAPPED`: an error does not repeat the request's payload.
const CAPPED: u16 = 0x100;
/// `NLM_F_ACK_TLVS`: an error carries attributes.
const ACK_TLVS: u16 = 0x200;

/// `NLM_F_APPEND`: add to the end of a list.
pub(super) const APPEND: u16 = 0x800;

/// `NLMSG_ERROR`: an error, or with number 0 the acknowledgement.
pub(super) const ERROR: u16 = 2;
/// `NLMSG_DONE`: the end of a dump.
pub(super) const DONE: u16 = 3;
/// `NLMSG_OVERRUN`: data was lost.
pub(super) const OVERRUN: u16 = 4;

const HEADER_BYTES: usize = 16;
const ATTRIBUTE_HEADER_BYTES: usize = 4;
/// `NLA_F_NESTED`. New families refuse a nest without it, old ones ignore it.
pub(super) const NESTED: u16 = 1 << 15;
/// `NLA_TYPE_MASK`: the type without `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER`.
const TYPE_MASK: u16 = 0x3fff;
/// `NLMSGERR_ATTR_MSG`: the kernel's explanation.
const ERROR_MESSAGE: u16 = 1;

const fn padded(length: usize) -> usize {
    length.next_multiple_of(4)
}

/// A request under construction.
#[derive(Debug, Clone)]
pub(super) struct Request {
    kind: u16,
    flags: u16,
    body: Vec<u8>,
    /// Why it cannot be sent.
    wrong: Option<&'static str>,
}

impl Request {
    /// A request of type `kind` whose family header is `fixed`.
    pub(super) fn new(kind: u16, fixed: &[u8]) -> Self {
        let mut request = Self {
            kind,
            flags: 0,
            body: fixed.to_vec(),
            wrong: None,
        };
        request.pad();
        request
    }

    /// With `flags` in addition to those of every request.
    pub(super) fn with_flags(mut self, flags: u16) -> Self {
        self.flags |= flags;
        self
    }

    fn pad(&mut self) {
        self.body.resize(padded(self.body.len()), 0);
    }

    /// Appends an attribute.
    pub(super) fn put(&mut self, kind: u16, payload: &[u8]) -> &mut Self {
        let start = self.body.len();
        self.body.extend_from_slice(&[0; ATTRIBUTE_HEADER_BYTES]);
        self.body.extend_from_slice(payload);
        self.close(start, kind);
        self
    }

    /// Appends a 32-bit number.
    pub(super) fn put_u32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.put(kind, &value.to_ne_bytes())
    }

    /// Appends a string with the NUL that the kernel expects.
    pub(super) fn put_text(&mut self, kind: u16, text: &str) -> &mut Self {
        // The kernel would read only up to the NUL: another interface, another feature.
        if text.contains('\0') {
            self.wrong = Some("a name contains a NUL byte");
        }
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(0);
        self.put(kind, &bytes)
    }

    /// Appends a nested attribute with the attributes from `fill`.
    pub(super) fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) -> &mut Self {
        let start = self.body.len();
        self.body.extend_from_slice(&[0; ATTRIBUTE_HEADER_BYTES]);
        fill(self);
        self.close(start, kind | NESTED);
        self
    }

    /// Appends `bytes` as they are: some nests begin with a family header.
    pub(super) fn put_fixed(&mut self, bytes: &[u8]) -> &mut Self {
        self.body.extend_from_slice(bytes);
        self.pad();
        self
    }

    /// The attributes alone, for one that is itself a value.
    pub(super) fn into_body(self) -> Vec<u8> {
        self.body
    }

    fn close(&mut self, start: usize, kind: u16) {
        match u16::try_from(self.body.len() - start) {
            Ok(length) => {
                self.body[start..start + 2].copy_from_slice(&length.to_ne_bytes());
                self.body[start + 2..start + 4].copy_from_slice(&kind.to_ne_bytes());
            }
            Err(_) => {
                self.wrong = Some("the value is longer than a netlink attribute can be (64 KiB)");
            }
        }
        self.pad();
    }

    /// The message to send, with `flags` and `sequence`.
    pub(super) fn to_bytes(&self, flags: u16, sequence: u32) -> Result<Vec<u8>, Failure> {
        if let Some(why) = self.wrong {
            return Err(Failure::BadInput(why.to_owned()));
        }
        let length = u32::try_from(HEADER_BYTES + self.body.len())
            .map_err(|_| Failure::BadInput("the request is longer than 4 GiB".to_owned()))?;
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.body.len());
        bytes.extend_from_slice(&length.to_ne_bytes());
        bytes.extend_from_slice(&self.kind.to_ne_bytes());
        bytes.extend_from_slice(&(self.flags | flags).to_ne_bytes());
        bytes.extend_from_slice(&sequence.to_ne_bytes());
        bytes.extend_from_slice(&0u32.to_ne_bytes());
        bytes.extend_from_slice(&self.body);
        Ok(bytes)
    }
}

/// A received message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message<'a> {
    pub(super) kind: u16,
    pub(super) flags: u16,
    pub(super) sequence: u32,
    pub(super) body: &'a [u8],
}

/// The messages of one datagram.
pub(super) fn parse_messages(mut bytes: &[u8]) -> Result<Vec<Message<'_>>, Failure> {
    let mut messages = Vec::new();
    while !bytes.is_empty() {
        let length = u32_at(bytes, 0)? as usize;
        let body = bytes
            .get(HEADER_BYTES..length)
            .ok_or(Failure::Malformed("a message is truncated"))?;
        messages.push(Message {
            kind: u16_at(bytes, 4)?,
            flags: u16_at(bytes, 6)?,
            sequence: u32_at(bytes, 8)?,
            body,
        });
        bytes = bytes.get(padded(length)..).unwrap_or_default();
    }
    Ok(messages)
}

/// The result in an `NLMSG_ERROR` (or the number at the start of `NLMSG_DONE`): success, or an error.
pub(super) fn parse_outcome(message: &Message<'_>) -> Result<(), Failure> {
    if message.kind == DONE && message.body.len() < 4 {
        return Ok(());
    }
    let number = i32::from_ne_bytes(array_at(message.body, 0)?);
    if number == 0 {
        return Ok(());
    }
    Err(Failure::Kernel {
        errno: number.checked_neg().unwrap_or(libc::EIO),
        message: explanation(message),
    })
}

/// The kernel's message, one line; none if it cannot be parsed, since the error number matters more.
fn explanation(message: &Message<'_>) -> Option<String> {
    if message.flags & ACK_TLVS == 0 {
        return None;
    }
    let mut at = 4;
    if message.kind == ERROR {
        // The request's header follows, and its payload unless capped.
        let request = u32_at(message.body, 4).ok()? as usize;
        let capped = message.flags & CAPPED != 0;
        at += if capped {
            HEADER_BYTES
        } else {
            padded(request.min(message.body.len()))
        };
    }
    let attributes = Attributes::parse(message.body.get(at..)?).ok()?;
    let text = attributes.text(ERROR_MESSAGE).ok()??;
    Some(
        text.chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect(),
    )
}

/// The attributes of a message or of a nest, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Attributes<'a>(Vec<(u16, &'a [u8])>);

impl<'a> Attributes<'a> {
    /// Parses `bytes` as attributes. A truncated list is rejected as a whole, so that a truncated attribute is not
    /// taken for a missing one.
    pub(super) fn parse(mut bytes: &'a [u8]) -> Result<Self, Failure> {
        let mut all = Vec::new();
        // Zeros shorter than a header are padding.
        while bytes.len() >= ATTRIBUTE_HEADER_BYTES || bytes.iter().any(|byte| *byte != 0) {
            let length = usize::from(u16_at(bytes, 0)?);
            let payload = bytes
                .get(ATTRIBUTE_HEADER_BYTES..length)
                .ok_or(Failure::Malformed("an attribute is truncated"))?;
            all.push((u16_at(bytes, 2)? & TYPE_MASK, payload));
            bytes = bytes.get(padded(length)..).unwrap_or_default();
        }
        Ok(Self(all))
    }

    /// The attributes after a family header of `fixed` bytes.
    pub(super) fn after(body: &'a [u8], fixed: usize) -> Result<Self, Failure> {
        Self::parse(body.get(padded(fixed)..).unwrap_or_default())
    }

    /// Every attribute with its type.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u16, &'a [u8])> + '_ {
        self.0.iter().copied()
    }

    /// The payload of the first attribute of type `kind`.
    pub(super) fn bytes(&self, kind: u16) -> Option<&'a [u8]> {
        self.iter()
            .find(|(own, _)| *own == kind)
            .map(|(_, payload)| payload)
    }

    /// A 16-bit number.
    pub(super) fn u16(&self, kind: u16) -> Result<Option<u16>, Failure> {
        self.bytes(kind)
            .map(|payload| u16_at(payload, 0))
            .transpose()
    }

    /// A 32-bit number.
    pub(super) fn u32(&self, kind: u16) -> Result<Option<u32>, Failure> {
        self.bytes(kind)
            .map(|payload| u32_at(payload, 0))
            .transpose()
    }

    /// A 64-bit number.
    pub(super) fn u64(&self, kind: u16) -> Result<Option<u64>, Failure> {
        let number = |payload| array_at(payload, 0).map(u64::from_ne_bytes);
        self.bytes(kind).map(number).transpose()
    }

    /// A boolean, sent as one byte.
    pub(super) fn switch(&self, kind: u16) -> Result<Option<bool>, Failure> {
        let byte = |payload| array_at::<1>(payload, 0).map(|[byte]| byte != 0);
        self.bytes(kind).map(byte).transpose()
    }

    /// A string, up to its NUL.
    pub(super) fn text(&self, kind: u16) -> Result<Option<String>, Failure> {
        let text = |payload: &[u8]| {
            let end = payload.iter().position(|byte| *byte == 0);
            let text = &payload[..end.unwrap_or(payload.len())];
            String::from_utf8(text.to_vec())
                .map_err(|_| Failure::Malformed("a string is not UTF-8"))
        };
        self.bytes(kind).map(text).transpose()
    }

    /// The attributes inside an attribute; none if it is missing.
    pub(super) fn nest(&self, kind: u16) -> Result<Attributes<'a>, Failure> {
        self.bytes(kind)
            .map_or_else(|| Ok(Attributes::default()), Attributes::parse)
    }
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], Failure> {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk())
        .copied()
        .ok_or(Failure::Malformed("an integer is truncated"))
}

/// The 16-bit number at byte `at`.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> Result<u16, Failure> {
    array_at(bytes, at).map(u16::from_ne_bytes)
}

/// The 32-bit number at byte `at`.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> Result<u32, Failure> {
    array_at(bytes, at).map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests;
