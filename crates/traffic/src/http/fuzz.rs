//! Entry points of the fuzz targets (`fuzz/` at the root of the repository): arbitrary bytes as a client or a
//! server may send them. Only with the feature `fuzz`.

use super::parse::request;
use super::parse::response::Reader;
use super::target;

/// Requests one after the other, as the server reads them; what a request is must not depend on where its
/// bytes were cut.
pub fn http_request(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(Some(one)) = request::parse(rest) {
        assert!(one.length > 0 && one.length <= rest.len());
        for end in [one.length / 2, one.length - 1] {
            assert_eq!(
                request::parse(&rest[..end]),
                Ok(None),
                "whole before its end"
            );
        }
        // Every request has a target, except one whose host is not text.
        if let Ok(asked) = request::read_request(rest) {
            let asked = asked.expect("it is whole");
            assert!(!asked.target.is_empty() && asked.head_only == one.head_only);
        }
        rest = &rest[one.length..];
    }
    if let Ok(url) = std::str::from_utf8(bytes) {
        // Only what asks no network: looking a name up is the resolver's work.
        if let Ok(parts) = target::split(url) {
            assert!(!parts.name.is_empty() && parts.host.contains(parts.name));
            assert!(parts.path.starts_with('/') && parts.path.is_ascii());
        }
    }
}

/// Responses one after the other, at once and byte by byte: both must read the same.
pub fn http_response(bytes: &[u8]) {
    let (mut at_once, mut by_byte) = (Vec::new(), Vec::new());
    let mut reader = Reader::default();
    let mut rest = bytes;
    while !rest.is_empty() {
        match reader.push(rest) {
            Ok(Some(one)) => {
                assert!(one.used > 0 && one.used <= rest.len());
                at_once.push((one.status, one.keep));
                rest = &rest[one.used..];
            }
            // Only whole responses are compared: how far the bytes before an error went may differ.
            Ok(None) | Err(_) => break,
        }
    }
    let mut reader = Reader::default();
    for byte in bytes {
        match reader.push(&[*byte]) {
            Ok(Some(one)) => by_byte.push((one.status, one.keep)),
            Ok(None) => {}
            Err(_) => break,
        }
    }
    assert_eq!(at_once, by_byte);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn requests_of_any_bytes_keep_to_the_targets_rules(
            start in "(\r\n)?((GET|HEAD) /[a-z]{0,3} HTTP/1.[01]\r\nHost: a\r\n(Connection: close\r\n)?\r\n){0,3}",
            bytes in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            super::http_request(&[start.as_bytes(), &bytes].concat());
        }

        #[test]
        fn responses_of_any_bytes_read_alike_at_once_and_by_byte(
            start in "(HTTP/1.1 [1-5]0[0-9]\r\n(Content-Length: [0-9]|Transfer-Encoding: chunked)\r\n\r\n[0-9a-c\r\n]{0,12}){0,3}",
            bytes in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            super::http_response(&[start.as_bytes(), &bytes].concat());
        }
    }
}
