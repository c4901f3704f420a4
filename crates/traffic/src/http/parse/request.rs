//! Requests: GET and HEAD without a body. Everything else is refused with the matching status.

use super::{Line, Lines, field, has_word, is_token, length};

/// Maximum size of a request line and its fields.
pub const HEAD_MAX: usize = 8 * 1024;

/// A whole request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    /// Its bytes; the next request begins after them.
    pub(crate) length: usize,
    /// HEAD: the answer has no body.
    pub(crate) head_only: bool,
    pub(crate) after: After,
}

/// What becomes of the connection after the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    /// It is kept, as is the default in HTTP/1.1.
    Stay,
    /// The connection is kept because an HTTP/1.0 client requested it, and the answer must confirm it.
    StayAsAsked,
    /// It is closed.
    Close,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// 400: it is no HTTP.
    Bad,
    /// 405: neither GET nor HEAD.
    Method,
    /// 408: it did not arrive completely in time.
    Late,
    /// 413: it has a body.
    Body,
    /// 431: its head is too large.
    Head,
    /// 505: it is of another version.
    Version,
}

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestTarget<'a> {
    /// The request's target, as it was sent: a path, or a whole URL as a proxy would get it.
    pub target: &'a str,
    /// The `Host` field as sent; none if an HTTP/1.0 client sent none.
    pub host: Option<&'a str>,
    /// HEAD: the answer has no body.
    pub head_only: bool,
}

/// The request at the start of `data`; `None` if it is not complete yet.
pub fn read_request(data: &[u8]) -> Result<Option<RequestTarget<'_>>, Refusal> {
    let Some(request) = parse(data)? else {
        return Ok(None);
    };
    let lines = data[..request.length].split(|&byte| byte == b'\n');
    let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let mut lines = lines.skip_while(|line| line.is_empty());
    let first = lines.next().unwrap_or_default();
    let text = |bytes| std::str::from_utf8(bytes).map_err(|_| Refusal::Bad);
    let target = text(first.split(|&byte| byte == b' ').nth(1).unwrap_or_default())?;
    let host = lines
        .filter_map(field)
        .find(|(name, _)| name.eq_ignore_ascii_case(b"host"));
    Ok(Some(RequestTarget {
        target,
        host: host.map(|(_, host)| text(host)).transpose()?,
        head_only: request.head_only,
    }))
}

/// The request at the start of `data`; `None` if it is not complete yet.
pub(crate) fn parse(data: &[u8]) -> Result<Option<Request>, Refusal> {
    match parse_any_size(data) {
        Ok(None) if data.len() >= HEAD_MAX => Err(Refusal::Head),
        Ok(Some(request)) if request.length > HEAD_MAX => Err(Refusal::Head),
        other => other,
    }
}

fn parse_any_size(data: &[u8]) -> Result<Option<Request>, Refusal> {
    let mut lines = Lines {
        data,
        at: 0,
        strict: true,
    };
    // Empty lines before a request are passed over (RFC 9112, 2.2).
    let first = loop {
        match lines.next() {
            Line::Whole([]) => {}
            Line::Whole(line) => break line,
            Line::Partial(b"" | b"\r") => return Ok(None),
            // Garbage is rejected at once, not only when a line end arrives.
            Line::Partial(begun) if begun.iter().all(|&byte| is_text(byte) || byte == b'\r') => {
                return Ok(None);
            }
            Line::Partial(_) | Line::Bad => return Err(Refusal::Bad),
        }
    };
    let (head_only, old) = request_line(first)?;
    let mut hosts = 0;
    let mut after = if old { After::Close } else { After::Stay };
    loop {
        let line = match lines.next() {
            Line::Whole([]) => break,
            Line::Whole(line) => line,
            Line::Partial(_) => return Ok(None),
            Line::Bad => return Err(Refusal::Bad),
        };
        let (name, value) = field(line).ok_or(Refusal::Bad)?;
        if !value.iter().all(|&byte| is_text(byte) || byte == b'\t') {
            return Err(Refusal::Bad);
        }
        if name.eq_ignore_ascii_case(b"host") {
            hosts += 1;
        } else if name.eq_ignore_ascii_case(b"connection") {
            if has_word(value, b"close") {
                after = After::Close;
            } else if old && has_word(value, b"keep-alive") {
                after = After::StayAsAsked;
            }
        } else if name.eq_ignore_ascii_case(b"content-length") {
            match length(value) {
                Some(0) => {}
                Some(_) => return Err(Refusal::Body),
                None => return Err(Refusal::Bad),
            }
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            return Err(Refusal::Body);
        }
    }
    if hosts > 1 || (hosts == 0 && !old) {
        return Err(Refusal::Bad); // RFC 9112, 3.2
    }
    Ok(Some(Request {
        length: lines.at,
        head_only,
        after,
    }))
}

/// Visible characters, spaces, and what is beyond ASCII.
fn is_text(byte: u8) -> bool {
    byte >= b' ' && byte != 0x7F
}

/// Whether it is a HEAD, and whether it is of HTTP/1.0.
fn request_line(line: &[u8]) -> Result<(bool, bool), Refusal> {
    let mut words = line.split(|&byte| byte == b' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(Refusal::Bad);
    };
    if !is_token(method) || target.is_empty() || !target.iter().all(u8::is_ascii_graphic) {
        return Err(Refusal::Bad);
    }
    let old = match version {
        b"HTTP/1.0" => true,
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor] if minor.is_ascii_digit() => false,
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            return Err(Refusal::Version);
        }
        _ => return Err(Refusal::Bad),
    };
    let head_only = match method {
        b"GET" => false,
        b"HEAD" => true,
        _ => return Err(Refusal::Method),
    };
    // Our own path, or a whole URL as a proxy would get it (RFC 9112, 3.2.2).
    if target[0] == b'/' || target.starts_with(b"http://") {
        Ok((head_only, old))
    } else {
        Err(Refusal::Bad)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PLAIN: &[u8] = b"GET / HTTP/1.1\r\nHost: linerate.localhost\r\n\r\n";

    fn plain(length: usize) -> Request {
        Request {
            length,
            head_only: false,
            after: After::Stay,
        }
    }

    #[test]
    fn the_sources_request_of_44_bytes_is_whole() {
        assert_eq!(PLAIN.len(), 44);
        assert_eq!(parse(PLAIN), Ok(Some(plain(44))));
    }

    #[test]
    fn what_follows_is_the_next_request() {
        assert_eq!(parse(&PLAIN.repeat(3)), Ok(Some(plain(44))));
        let after_empty_lines = [b"\r\n\r\n", PLAIN].concat();
        assert_eq!(parse(&after_empty_lines), Ok(Some(plain(48))));
    }

    #[test]
    fn the_connections_future_follows_version_and_field() {
        for (text, after) in [
            (
                "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
                After::Close,
            ),
            ("GET / HTTP/1.0\r\n\r\n", After::Close),
            (
                "GET / HTTP/1.0\r\nconnection: Keep-Alive\r\n\r\n",
                After::StayAsAsked,
            ),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\n\r\n",
                After::Stay,
            ),
        ] {
            let request = parse(text.as_bytes()).expect("good").expect("whole");
            assert_eq!(
                (request.after, request.length),
                (after, text.len()),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_asked_for_and_of_whom_is_told_as_it_was_sent() {
        let text = "\r\nHEAD /runs/a%20b?x HTTP/1.1\r\nX: Host: no\r\nhost: \t[::1]:80 \r\n\r\nGET";
        let asked = RequestTarget {
            target: "/runs/a%20b?x",
            host: Some("[::1]:80"),
            head_only: true,
        };
        assert_eq!(read_request(text.as_bytes()), Ok(Some(asked)));
        let old = read_request(b"GET / HTTP/1.0\r\n\r\n");
        assert_eq!(
            old.map(|asked| asked.and_then(|asked| asked.host)),
            Ok(None)
        );
        assert_eq!(read_request(&PLAIN[..20]), Ok(None));
        let beyond = b"GET / HTTP/1.1\r\nHost: \xff\r\n\r\n";
        assert_eq!(read_request(beyond), Err(Refusal::Bad));
    }

    #[test]
    fn every_refusal_has_its_reason() {
        for (text, refusal) in [
            ("\x16\x03\x01", Refusal::Bad),
            ("GET /\r\n", Refusal::Bad),
            ("GET / HTTP/1.1\n", Refusal::Bad),
            ("GET / HTTP/1.1\r\n\r\n", Refusal::Bad),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", Refusal::Bad),
            ("GET / HTTP/1.1\r\nHost : a\r\n", Refusal::Bad),
            ("GET / HTTP/1.1\r\nHost: a\r\n folded\r\n", Refusal::Bad),
            ("GET / HTTP/1.1\r\nHost: a\0b\r\n", Refusal::Bad),
            ("GET  / HTTP/1.1\r\n", Refusal::Bad),
            ("GET x HTTP/1.1\r\n", Refusal::Bad),
            ("GET / HTTP/1.1\r\nContent-Length: 1, 1\r\n", Refusal::Bad),
            ("GET / HTTP/1.1\r\nContent-Length: 1\r\n", Refusal::Body),
            (
                "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n",
                Refusal::Body,
            ),
            ("POST / HTTP/1.1\r\n", Refusal::Method),
            ("GET / HTTP/2.0\r\n", Refusal::Version),
        ] {
            assert_eq!(parse(text.as_bytes()), Err(refusal), "{text:?}");
        }
    }

    #[test]
    fn a_head_beyond_the_limit_is_refused_whole_or_not() {
        let endless = [b"GET /".to_vec(), vec![b'a'; HEAD_MAX]].concat();
        assert_eq!(parse(&endless), Err(Refusal::Head));
        assert_eq!(parse(&endless[..HEAD_MAX - 1]), Ok(None));
        let long = format!(
            "GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n",
            "b".repeat(HEAD_MAX)
        );
        assert_eq!(parse(long.as_bytes()), Err(Refusal::Head));
    }

    proptest! {
        #[test]
        fn a_request_is_whole_at_its_last_byte_and_not_before(
            path in "/[!-~]{0,40}",
            fields in proptest::collection::vec(("X-[a-z]{1,8}", "[ -~]{0,30}"), 0..6),
            more in proptest::collection::vec(any::<u8>(), 0..20),
        ) {
            let fields: Vec<String> =
                fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
            let fields = fields.concat();
            let text = format!("GET {path} HTTP/1.1\r\nHost: far\r\n{fields}\r\n");
            for end in 0..text.len() {
                prop_assert_eq!(parse(&text.as_bytes()[..end]), Ok(None), "{}", end);
            }
            let with_more = [text.as_bytes(), &more].concat();
            prop_assert_eq!(parse(&with_more), Ok(Some(plain(text.len()))));
        }

        #[test]
        fn no_bytes_panic_and_a_request_lies_within_its_bytes(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            if let Ok(Some(request)) = parse(&bytes) {
                prop_assert!(request.length <= bytes.len());
            }
        }

        #[test]
        fn a_refusal_stands_whatever_follows(
            text in "(GET|POST|X) /? ?HTTP/[012].[01]\r?\n(Host ?: a\r\n)?\r\n",
            more in proptest::collection::vec(any::<u8>(), 0..20),
        ) {
            if let Err(refusal) = parse(text.as_bytes()) {
                prop_assert_eq!(parse(&[text.as_bytes(), &more].concat()), Err(refusal));
            }
        }
    }
}
