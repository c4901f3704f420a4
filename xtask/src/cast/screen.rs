//! A terminal's screen: characters, colors, and the control sequences that the session uses (ECMA-48; xterm's
//! ctlseqs). What it does not know it leaves out.

/// How a character looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Style {
    pub(super) is_bold: bool,
    pub(super) is_dim: bool,
    /// 0 to 7, as in SGR 30 to 37.
    pub(super) color: Option<u8>,
}

/// The characters of a line.
pub(super) type Line = Vec<(char, Style)>;

/// The screen and its cursor.
#[derive(Debug)]
pub(super) struct Screen {
    columns: usize,
    lines: Vec<Line>,
    row: usize,
    column: usize,
    style: Style,
    /// What is left of a character or sequence that the last output broke off.
    rest: Vec<u8>,
}

impl Screen {
    pub(super) fn new(columns: usize, rows: usize) -> Self {
        Self {
            columns,
            lines: vec![vec![(' ', Style::default()); columns]; rows],
            row: 0,
            column: 0,
            style: Style::default(),
            rest: Vec::new(),
        }
    }

    pub(super) fn lines(&self) -> Vec<Line> {
        self.lines.clone()
    }

    /// Prints output of a program.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        let bytes = std::mem::take(&mut self.rest);
        let (text, whole) = match std::str::from_utf8(&bytes) {
            Ok(text) => (text, bytes.len()),
            Err(error) => {
                let whole = error.valid_up_to();
                let text = std::str::from_utf8(&bytes[..whole]).unwrap_or_default();
                // A byte that is no text at all is passed over.
                (text, whole + error.error_len().unwrap_or(0))
            }
        };
        let mut left = text;
        while let Some(letter) = left.chars().next() {
            if letter != '\x1b' {
                self.put(letter);
                left = &left[letter.len_utf8()..];
                continue;
            }
            match sequence(left) {
                Some((parameters, action, length)) => {
                    self.act(parameters, action);
                    left = &left[length..];
                }
                None => break,
            }
        }
        self.rest.extend_from_slice(left.as_bytes());
        self.rest.extend_from_slice(&bytes[whole..]);
    }

    fn put(&mut self, letter: char) {
        match letter {
            '\n' => self.down(),
            '\r' => self.column = 0,
            '\x08' => self.column = self.column.saturating_sub(1),
            '\t' => self.column = (self.column / 8 * 8 + 8).min(self.columns - 1),
            letter if letter.is_control() => {}
            letter => {
                if self.column == self.columns {
                    self.column = 0;
                    self.down();
                }
                self.lines[self.row][self.column] = (letter, self.style);
                self.column += 1;
            }
        }
    }

    fn down(&mut self) {
        if self.row + 1 < self.lines.len() {
            self.row += 1;
        } else {
            self.lines.remove(0);
            self.lines.push(vec![(' ', Style::default()); self.columns]);
        }
    }

    fn act(&mut self, parameters: &str, action: char) {
        let numbers = || {
            parameters
                .split(';')
                .map(|number| number.parse::<usize>().unwrap_or(0))
        };
        let first = numbers().next().unwrap_or(0);
        let count = first.max(1);
        let (last_row, last_column) = (self.lines.len() - 1, self.columns - 1);
        match action {
            'A' => self.row = self.row.saturating_sub(count),
            'B' => self.row = (self.row + count).min(last_row),
            'C' => self.column = (self.column + count).min(last_column),
            'D' => self.column = self.column.saturating_sub(count),
            'G' => self.column = (count - 1).min(last_column),
            'H' => {
                let column = numbers().nth(1).unwrap_or(0).max(1);
                (self.row, self.column) =
                    ((count - 1).min(last_row), (column - 1).min(last_column));
            }
            'J' => {
                self.erase(first, self.row);
                let rows = match first {
                    0 => self.row + 1..last_row + 1,
                    1 => 0..self.row,
                    _ => 0..last_row + 1,
                };
                rows.for_each(|row| self.erase(2, row));
            }
            'K' => self.erase(first, self.row),
            'm' => {
                let mut numbers = numbers();
                while let Some(number) = numbers.next() {
                    match number {
                        0 => self.style = Style::default(),
                        1 => self.style.is_bold = true,
                        2 => self.style.is_dim = true,
                        22 => (self.style.is_bold, self.style.is_dim) = (false, false),
                        30..=37 => self.style.color = u8::try_from(number - 30).ok(),
                        90..=97 => self.style.color = u8::try_from(number - 90).ok(),
                        39 => self.style.color = None,
                        // The numbers after these belong to them: of 256 colors only the first 8 are drawn.
                        38 => match numbers.next() {
                            Some(5) => {
                                let color =
                                    numbers.next().and_then(|color| u8::try_from(color).ok());
                                self.style.color = color.filter(|color| *color < 8);
                            }
                            _ => return,
                        },
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }

    /// Clears a row from the cursor on (0), up to it (1) or all of it (2).
    fn erase(&mut self, part: usize, row: usize) {
        let column = self.column.min(self.columns);
        let part = match part {
            0 => column..self.columns,
            1 => 0..(column + 1).min(self.columns),
            _ => 0..self.columns,
        };
        self.lines[row][part].fill((' ', Style::default()));
    }
}

/// The parameters, the final character and the length of a control sequence at the start of the text, if it is whole.
/// Sequences of other kinds have no parameters.
fn sequence(text: &str) -> Option<(&str, char, usize)> {
    match text.as_bytes().get(1)? {
        b'[' => {
            let end = text[2..].find(|letter| ('@'..='~').contains(&letter))? + 2;
            Some((&text[2..end], text[end..].chars().next()?, end + 1))
        }
        // Title and links: up to BEL or ST.
        b']' => {
            let bell = text.find('\x07').map(|at| at + 1);
            let end = bell.or_else(|| text.find("\x1b\\").map(|at| at + 2))?;
            Some(("", ' ', end))
        }
        _ => {
            let next = text[1..].chars().next()?;
            Some(("", ' ', 1 + next.len_utf8()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(output: &[&[u8]]) -> Vec<String> {
        let mut screen = Screen::new(8, 3);
        for part in output {
            screen.write(part);
        }
        let text = |line: &Line| line.iter().map(|(letter, _)| *letter).collect::<String>();
        screen
            .lines()
            .iter()
            .map(|line| text(line).trim_end().to_owned())
            .collect()
    }

    #[test]
    fn a_line_that_is_drawn_again_replaces_the_one_before() {
        assert_eq!(shown(&[b"one two\r\x1b[Kthree\r\nx"]), ["three", "x", ""]);
        assert_eq!(
            shown(&[b"one\r\ntwo\x1b[1A\x1b[2K\rzero"]),
            ["zero", "two", ""]
        );
    }

    #[test]
    fn the_screen_scrolls_and_long_lines_wrap() {
        assert_eq!(shown(&[b"a\r\nb\r\nc\r\nd"]), ["b", "c", "d"]);
        assert_eq!(shown(&[b"123456789"]), ["12345678", "9", ""]);
    }

    #[test]
    fn characters_and_sequences_may_be_broken_at_any_byte() {
        let whole = "\x1b[1;32mé\x1b[0m\x1b]0;title\x07x".as_bytes();
        for at in 0..whole.len() {
            assert_eq!(shown(&[&whole[..at], &whole[at..]])[0], "éx", "at {at}");
        }
    }

    #[test]
    fn colors_and_weight_are_kept_until_they_are_reset() {
        let mut screen = Screen::new(8, 1);
        screen.write(b"\x1b[1;31ma\x1b[22mb\x1b[0;2mc\x1b[38;5;2md");
        let styles: Vec<Style> = screen.lines()[0].iter().map(|(_, style)| *style).collect();
        let style = |is_bold, is_dim, color| Style {
            is_bold,
            is_dim,
            color,
        };
        let expected = [
            style(true, false, Some(1)),
            style(false, false, Some(1)),
            style(false, true, None),
            style(false, true, Some(2)),
        ];
        assert_eq!(styles[..4], expected);
    }
}
