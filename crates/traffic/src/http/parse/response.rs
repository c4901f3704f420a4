//! Responses, as they come: a head, and a body that ends by its length, by its last chunk or with the
//! connection. Bodies are passed over where the kernel has put them; only a head that comes in parts is kept.

use super::{Line, Lines, field, has_word, length};

/// Maximum size of a status line and its fields.
const HEAD_MAX: usize = 16 * 1024;

/// What a connection's bytes are read by.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    stage: Stage,
    /// The part of a head that has come.
    head: Vec<u8>,
    status: u16,
    keep: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Head,
    Length(u64),
    Chunks(Chunks),
    UntilClose,
}

/// Where in a chunked body it is (RFC 9112, 7.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chunks {
    /// In a chunk's size.
    Size { size: u64, digits: u8 },
    /// In a chunk extension, which is ignored.
    Extension { size: u64 },
    /// Before the line feed after it.
    SizeEnd { size: u64 },
    /// In its data.
    Data(u64),
    /// Before the carriage return after it.
    DataReturn,
    /// Before the line feed after that.
    DataEnd,
    /// At the start of a trailer's line, or of the empty line that ends it all.
    Trailer,
    /// In a trailer's line.
    TrailerText,
    /// Before the last line feed.
    End,
}

/// A complete response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// Whether the connection may carry a further request.
    pub(crate) keep: bool,
    /// How many of the bytes handed in belonged to it.
    pub(crate) used: usize,
}

/// What came is no HTTP/1.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BadResponse;

impl Reader {
    /// Takes the next bytes; the response when it is whole, and then the next one may begin.
    pub(crate) fn push(&mut self, data: &[u8]) -> Result<Option<Response>, BadResponse> {
        let mut used = 0;
        loop {
            let rest = &data[used..];
            let whole = match &mut self.stage {
                Stage::Head => match self.take_head(rest)? {
                    Some(length) => {
                        used += length;
                        continue_after_head(&mut self.stage)
                    }
                    None => return Ok(None),
                },
                Stage::Length(left) => {
                    let part = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                    *left -= part as u64;
                    used += part;
                    *left == 0
                }
                Stage::Chunks(chunks) => {
                    let (length, ended) = pass_chunks(chunks, rest)?;
                    used += length;
                    ended
                }
                Stage::UntilClose => return Ok(None),
            };
            if whole {
                return Ok(Some(self.end(used)));
            }
            if used == data.len() {
                return Ok(None);
            }
        }
    }

    /// The connection was closed: the response, when that is how it ends.
    pub(crate) fn close(&mut self) -> Option<Response> {
        (self.stage == Stage::UntilClose).then(|| self.end(0))
    }

    /// Whether nothing of a response has come yet.
    #[cfg(test)]
    fn is_fresh(&self) -> bool {
        self.stage == Stage::Head && self.head.is_empty()
    }

    fn end(&mut self, used: usize) -> Response {
        self.stage = Stage::Head;
        Response {
            status: self.status,
            keep: self.keep,
            used,
        }
    }

    /// Takes a head from `data`, or from what came before and `data`: how much of `data` it had.
    fn take_head(&mut self, data: &[u8]) -> Result<Option<usize>, BadResponse> {
        let before = self.head.len();
        let head = if before == 0 {
            parse_head(data)?
        } else {
            let part = data.len().min(HEAD_MAX + 1 - before);
            self.head.extend_from_slice(&data[..part]);
            parse_head(&self.head)?
        };
        let Some(head) = head else {
            if before == 0 {
                self.head
                    .extend_from_slice(&data[..data.len().min(HEAD_MAX + 1)]);
            }
            return if self.head.len() > HEAD_MAX {
                Err(BadResponse)
            } else {
                Ok(None)
            };
        };
        if head.length > HEAD_MAX {
            return Err(BadResponse);
        }
        self.head.clear();
        self.status = head.status;
        self.keep = head.keep;
        self.stage = head.body;
        Ok(Some(head.length - before))
    }
}

/// Whether the response ended with its head.
fn continue_after_head(stage: &mut Stage) -> bool {
    *stage == Stage::Length(0)
}

#[derive(Debug)]
struct Head {
    length: usize,
    status: u16,
    keep: bool,
    body: Stage,
}

fn parse_head(data: &[u8]) -> Result<Option<Head>, BadResponse> {
    let mut lines = Lines {
        data,
        at: 0,
        strict: false,
    };
    let first = match lines.next() {
        Line::Whole(line) => line,
        Line::Partial(begun) if begins_like_http(begun) => return Ok(None),
        Line::Partial(_) | Line::Bad => return Err(BadResponse),
    };
    let (status, mut keep) = status_line(first)?;
    let mut body_length = None;
    let mut chunked = false;
    let mut coded = false;
    loop {
        let line = match lines.next() {
            Line::Whole([]) => break,
            Line::Whole(line) => line,
            Line::Partial(_) => return Ok(None),
            Line::Bad => return Err(BadResponse),
        };
        let Some((name, value)) = field(line) else {
            // A folded value belongs to a field that is ignored here.
            if line[0] == b' ' || line[0] == b'\t' {
                continue;
            }
            return Err(BadResponse);
        };
        match name.len() {
            10 if name.eq_ignore_ascii_case(b"connection") => {
                if has_word(value, b"close") {
                    keep = false;
                } else if has_word(value, b"keep-alive") {
                    keep = true;
                }
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                let length = length(value).ok_or(BadResponse)?;
                if body_length.is_some_and(|before| before != length) {
                    return Err(BadResponse);
                }
                body_length = Some(length);
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                coded = true;
                // Only the last coding determines how the body ends (RFC 9112, 6.3).
                let last = value.rsplit(|&byte| byte == b',').next().unwrap_or(value);
                chunked = has_word(last, b"chunked");
            }
            _ => {}
        }
    }
    let body = match (status, body_length) {
        (100..=199, _) => Stage::Head,
        (204 | 304, _) => Stage::Length(0),
        _ if chunked => Stage::Chunks(Chunks::START),
        (_, Some(length)) if !coded => Stage::Length(length),
        _ => Stage::UntilClose,
    };
    keep &= body != Stage::UntilClose;
    Ok(Some(Head {
        length: lines.at,
        status,
        keep,
        body,
    }))
}

fn begins_like_http(begun: &[u8]) -> bool {
    let known = begun.len().min(5);
    begun[..known] == b"HTTP/"[..known]
}

/// The status, and whether the version keeps connections.
fn status_line(line: &[u8]) -> Result<(u16, bool), BadResponse> {
    let [
        b'H',
        b'T',
        b'T',
        b'P',
        b'/',
        b'1',
        b'.',
        minor,
        b' ',
        a,
        b,
        c,
        rest @ ..,
    ] = line
    else {
        return Err(BadResponse);
    };
    let digits = [minor, a, b, c].iter().all(|digit| digit.is_ascii_digit());
    if !digits || !matches!(rest, [] | [b' ', ..]) {
        return Err(BadResponse);
    }
    let value = |digit: &u8| u16::from(digit - b'0');
    let status = value(a) * 100 + value(b) * 10 + value(c);
    // 101 would switch to another protocol, which was not requested.
    if status < 100 || status == 101 {
        return Err(BadResponse);
    }
    Ok((status, *minor != b'0'))
}

impl Chunks {
    const START: Self = Self::Size { size: 0, digits: 0 };
}

/// Passes over chunks: how far, and whether the last one has ended.
fn pass_chunks(chunks: &mut Chunks, data: &[u8]) -> Result<(usize, bool), BadResponse> {
    let mut at = 0;
    while let Some(&byte) = data.get(at) {
        if let Chunks::Data(left) = chunks {
            let rest = data.len() - at;
            let part = usize::try_from(*left).unwrap_or(usize::MAX).min(rest);
            *left -= part as u64;
            at += part;
            if *left == 0 {
                *chunks = Chunks::DataReturn;
            }
            continue;
        }
        at += 1;
        *chunks = match (*chunks, byte) {
            (Chunks::Size { size, digits }, _) if byte.is_ascii_hexdigit() && digits < 16 => {
                let digit = (byte as char).to_digit(16).unwrap_or(0);
                Chunks::Size {
                    size: size << 4 | u64::from(digit),
                    digits: digits + 1,
                }
            }
            (Chunks::Size { size, digits: 1.. } | Chunks::Extension { size }, b'\r') => {
                Chunks::SizeEnd { size }
            }
            (
                Chunks::Size { size, digits: 1.. }
                | Chunks::Extension { size }
                | Chunks::SizeEnd { size },
                b'\n',
            ) => match size {
                0 => Chunks::Trailer,
                _ => Chunks::Data(size),
            },
            (Chunks::Size { size, digits: 1.. }, b';' | b' ' | b'\t')
            | (Chunks::Extension { size }, _) => Chunks::Extension { size },
            (Chunks::DataReturn, b'\r') => Chunks::DataEnd,
            (Chunks::DataReturn | Chunks::DataEnd, b'\n') => Chunks::START,
            (Chunks::Trailer, b'\r') => Chunks::End,
            (Chunks::Trailer | Chunks::End, b'\n') => return Ok((at, true)),
            (Chunks::TrailerText, b'\n') => Chunks::Trailer,
            (Chunks::Trailer | Chunks::TrailerText, _) => Chunks::TrailerText,
            _ => return Err(BadResponse),
        };
    }
    Ok((at, false))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use proptest::prelude::*;

    use super::*;

    /// The responses of `data`, handed over in pieces that end at `cuts`.
    fn read(data: &[u8], cuts: &[usize]) -> Result<Vec<(u16, bool)>, BadResponse> {
        let mut reader = Reader::default();
        let mut found = Vec::new();
        let mut from = 0;
        for &to in cuts.iter().chain([&data.len()]) {
            let to = to.clamp(from, data.len());
            let mut piece = &data[from..to];
            from = to;
            while !piece.is_empty() {
                let Some(response) = reader.push(piece)? else {
                    break;
                };
                found.push((response.status, response.keep));
                piece = &piece[response.used..];
            }
        }
        found.extend(
            reader
                .close()
                .map(|response| (response.status, response.keep)),
        );
        Ok(found)
    }

    fn response(status: u16, body: &str, chunk: Option<usize>, version: u8) -> String {
        let head = format!("HTTP/1.{version} {status} Some Thing\r\nServer: x\r\n");
        let Some(size) = chunk else {
            return format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
        };
        let mut text = format!("{head}Transfer-Encoding: chunked\r\n\r\n");
        for part in body.as_bytes().chunks(size) {
            let part = std::str::from_utf8(part).expect("ASCII");
            let _ = write!(text, "{:x};why=not\r\n{part}\r\n", part.len());
        }
        text + "0\r\nTrailer: yes\r\n\r\n"
    }

    #[test]
    fn a_chunked_response_is_whole_wherever_it_is_split() {
        let text = response(200, "hello, wide world", Some(5), 1);
        for cut in 0..text.len() {
            assert_eq!(
                read(text.as_bytes(), &[cut]),
                Ok(vec![(200, true)]),
                "{cut}"
            );
        }
        let every: Vec<usize> = (0..text.len()).collect();
        assert_eq!(read(text.as_bytes(), &every), Ok(vec![(200, true)]));
    }

    #[test]
    fn how_a_body_ends_follows_its_head() {
        for (text, found) in [
            (
                "HTTP/1.1 204 No\r\nContent-Length: 5\r\n\r\n",
                vec![(204, true)],
            ),
            (
                "HTTP/1.1 304 No\r\nTransfer-Encoding: chunked\r\n\r\n",
                vec![(304, true)],
            ),
            (
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200\r\nContent-Length: 1\r\n\r\nx",
                vec![(200, true)],
            ),
            (
                "HTTP/1.1 200 OK\nContent-Length: 2\n\nhi",
                vec![(200, true)],
            ),
            ("HTTP/1.1 200 OK\r\n\r\nuntil the end", vec![(200, false)]),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\nContent-Length: 3\r\n\r\nend",
                vec![(200, false)],
            ),
            (
                "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
                vec![(200, false)],
            ),
            (
                "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
                vec![(200, false)],
            ),
            (
                "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n",
                vec![(200, true)],
            ),
            ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut", vec![]),
        ] {
            assert_eq!(read(text.as_bytes(), &[]), Ok(found), "{text}");
        }
    }

    #[test]
    fn what_is_no_response_is_told_at_once() {
        for text in [
            "SSH-2.0-OpenSSH",
            "HTTP/2 200\r\n",
            "HTTP/1.1 20 OK\r\n",
            "HTTP/1.1 2000 OK\r\n",
            "HTTP/1.1 101 Switching\r\n\r\n",
            "HTTP/1.1 200 OK\r\nno field\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n11111111111111111\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxx",
        ] {
            assert_eq!(read(text.as_bytes(), &[]), Err(BadResponse), "{text}");
        }
    }

    #[test]
    fn a_head_beyond_the_limit_is_given_up_and_takes_no_more_memory() {
        let mut reader = Reader::default();
        assert_eq!(reader.push(b"HTTP/1.1 200 OK\r\nX: "), Ok(None));
        let flood = vec![b'a'; 1 << 20];
        assert_eq!(reader.push(&flood), Err(BadResponse));
        assert!(reader.head.len() <= HEAD_MAX + 1);
        assert_eq!(
            Reader::default().push(&[b"HTTP/1.1 200 ", &flood[..]].concat()),
            Err(BadResponse)
        );
    }

    proptest! {
        #[test]
        fn responses_read_alike_however_they_are_cut(
            all in proptest::collection::vec(
                (prop_oneof![Just(200u16), Just(404)], "[a-z]{0,60}", proptest::option::of(1usize..9)),
                1..5,
            ),
            mut cuts in proptest::collection::vec(0usize..600, 0..12),
        ) {
            let text: String = all.iter().map(|(status, body, chunk)| response(*status, body, *chunk, 1)).collect();
            cuts.sort_unstable();
            let expected: Vec<_> = all.iter().map(|(status, ..)| (*status, true)).collect();
            prop_assert_eq!(read(text.as_bytes(), &cuts), Ok(expected));
        }

        #[test]
        fn no_bytes_panic_and_none_are_used_twice(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            head in "(HTTP/1\\.[01] [0-9]{3} \r\n)?((Content-Length|Transfer-Encoding|X): ?(chunked|[0-9]{1,3})?\r\n){0,3}(\r\n)?",
        ) {
            let data = [head.as_bytes(), &bytes].concat();
            let mut reader = Reader::default();
            let mut rest = &data[..];
            while let Ok(Some(response)) = reader.push(rest) {
                prop_assert!(response.used <= rest.len());
                prop_assert!(reader.is_fresh());
                if response.used == 0 { break; }
                rest = &rest[response.used..];
            }
        }
    }
}
