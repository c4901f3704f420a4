//! What a program at the remote end writes to standard error. It explains why the program ended; its length is the far
//! end's choice, so only the beginning and the end are kept.

use std::collections::VecDeque;
use std::io::Read;
use std::process::ChildStderr;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::printable;

/// How much is kept of the beginning, and as much of the end.
const KEPT_BYTES: usize = 2 << 10;
/// How long to wait for the rest after the program has ended: one that it has started may hold the pipe open.
const REST: Duration = Duration::from_millis(500);

/// The standard error of a program at the remote end, read by a separate thread.
#[derive(Debug)]
pub struct FarStderr {
    kept: Arc<Mutex<HeadAndTail>>,
    /// Disconnected at the end of the stream.
    end: Receiver<()>,
}

impl FarStderr {
    /// Reads `stream` to its end.
    pub fn read(stream: Option<ChildStderr>) -> Self {
        let kept = Arc::<Mutex<HeadAndTail>>::default();
        let (reading, end) = mpsc::channel();
        if let Some(stream) = stream {
            let kept = Arc::clone(&kept);
            std::thread::spawn(move || {
                let _reading: Sender<()> = reading;
                keep(stream, &kept);
            });
        }
        Self { kept, end }
    }

    /// What was written, without control characters; for a program that has ended.
    pub fn text(&self) -> String {
        let _ = self.end.recv_timeout(REST);
        self.kept
            .lock()
            .map_or_else(|_| String::new(), |kept| kept.text())
    }
}

fn keep(mut stream: impl Read, kept: &Mutex<HeadAndTail>) {
    let mut buffer = [0; 4 << 10];
    loop {
        match stream.read(&mut buffer) {
            Ok(count @ 1..) => {
                let Ok(mut kept) = kept.lock() else { return };
                kept.push(&buffer[..count]);
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => return,
        }
    }
}

/// The beginning and the end of a stream.
#[derive(Debug, Default)]
struct HeadAndTail {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    omitted: u64,
}

impl HeadAndTail {
    fn push(&mut self, bytes: &[u8]) {
        let (head, rest) = bytes.split_at(bytes.len().min(KEPT_BYTES - self.head.len()));
        self.head.extend(head);
        self.tail.extend(rest);
        let excess = self.tail.len().saturating_sub(KEPT_BYTES);
        self.tail.drain(..excess);
        self.omitted = self.omitted.saturating_add(excess as u64);
    }

    fn text(&self) -> String {
        let mut bytes = self.head.clone();
        if self.omitted > 0 {
            bytes.extend(format!("\n[... {} bytes omitted ...]\n", self.omitted).bytes());
        }
        bytes.extend(&self.tail);
        printable(String::from_utf8_lossy(&bytes).trim())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_stream_keeps_its_beginning_and_its_end() {
        let kept = Mutex::default();
        let middle = std::io::repeat(b'x').take(5_000_000);
        keep(b"begin\x1b[2J".chain(middle).chain(&b"end\r\n"[..]), &kept);
        let kept = kept.into_inner().expect("nobody else holds it");
        assert!(kept.tail.capacity() < 16 * KEPT_BYTES);
        let text = kept.text();
        assert!(text.starts_with("begin\u{fffd}[2Jxx"), "{text}");
        assert!(text.ends_with("xxend"), "{text}");
        let omitted = format!("[... {} bytes omitted ...]", 5_000_014 - 2 * KEPT_BYTES);
        assert!(text.contains(&omitted), "{text}");
        assert!(text.len() < 2 * KEPT_BYTES + 64, "{}", text.len());
    }

    #[test]
    fn a_short_stream_is_kept_whole() {
        let kept = Mutex::default();
        let words = "y".repeat(2 * KEPT_BYTES);
        keep(words.as_bytes(), &kept);
        assert_eq!(
            kept.into_inner().expect("nobody else holds it").text(),
            words
        );
    }
}
