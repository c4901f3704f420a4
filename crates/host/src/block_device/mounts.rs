//! `/proc/self/mountinfo` (proc_pid_mountinfo(5)) and `/proc/swaps` (proc(5)): which devices file systems and swap use.

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    /// The device of its files; major 0 if the file system has no device, or several (Btrfs).
    pub(super) number: (u32, u32),
    /// Where it is mounted.
    pub(super) at: String,
    /// The file system's type.
    pub(super) kind: String,
    /// What was mounted: a device's node, or any other text.
    pub(super) source: String,
}

/// Every line that has the form of a mount: `36 35 98:0 /sub /at rw,noatime master:1 - ext3 /dev/root rw`.
pub(super) fn parse_mountinfo(text: &str) -> Vec<Mount> {
    let mount = |line: &str| {
        let (own, of_kind) = line.split_once(" - ")?;
        let mut own = own.split(' ').skip(2);
        let (major, minor) = own.next()?.split_once(':')?;
        let at = unescaped(own.nth(1)?);
        let mut of_kind = of_kind.split(' ');
        Some(Mount {
            number: (major.parse().ok()?, minor.parse().ok()?),
            at,
            kind: of_kind.next()?.to_owned(),
            source: unescaped(of_kind.next()?),
        })
    };
    text.lines().filter_map(mount).collect()
}

/// The files of `/proc/swaps`: the first column below the heading.
pub(super) fn parse_swaps(text: &str) -> Vec<String> {
    let lines = text.lines().skip(1);
    let first = lines.filter_map(|line| line.split_whitespace().next());
    first.map(unescaped).collect()
}

/// `\040` is a space (fs/seq_file.c, mangle_path).
fn unescaped(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let escape = tail.first_chunk::<3>().filter(|_| *first == b'\\');
        let octal = |byte: u8| {
            (b'0'..=b'7')
                .contains(&byte)
                .then(|| u32::from(byte - b'0'))
        };
        let byte = escape
            .and_then(|[a, b, c]| u8::try_from(octal(*a)? * 64 + octal(*b)? * 8 + octal(*c)?).ok());
        out.push(byte.unwrap_or(*first));
        rest = match byte {
            Some(_) => tail.get(3..).unwrap_or_default(),
            None => tail,
        };
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_mount_has_a_device_a_place_and_a_source() {
        let text = "22 27 0:21 / /proc rw,relatime - proc proc rw\n\
                    36 35 98:3 /mnt1 /mnt\\040two rw,noatime master:1 shared:2 - ext3 /dev/root rw\n\
                    not a mount\n";
        let mounts = parse_mountinfo(text);
        assert_eq!(mounts.len(), 2);
        assert_eq!(mounts[0].number, (0, 21));
        assert_eq!(
            mounts[1],
            Mount {
                number: (98, 3),
                at: "/mnt two".to_owned(),
                kind: "ext3".to_owned(),
                source: "/dev/root".to_owned(),
            }
        );
    }

    #[test]
    fn the_heading_of_swaps_is_no_swap() {
        let text =
            "Filename Type Size Used Priority\n/dev/dm-1  partition 8 0 -2\n/a\\040b file 8 0 -3\n";
        assert_eq!(parse_swaps(text), ["/dev/dm-1", "/a b"]);
        assert_eq!(parse_swaps(""), [""; 0]);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "([0-9: /\\\\-]|\\PC|\n){0,80}") {
            let _ = (parse_mountinfo(&text), parse_swaps(&text), unescaped(&text));
        }

        #[test]
        fn text_without_a_backslash_is_unchanged(text in "[^\\\\]{0,40}") {
            prop_assert_eq!(unescaped(&text), text);
        }
    }
}
