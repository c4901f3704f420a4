//! The function names of a program file: the symbol tables of 64-bit ELF (elf(5)). The file is untrusted, so every
//! offset is checked against its length, and invalid ones give no symbol.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::symbols::Symbols;

/// The maximum size of a symbol or string table: a browser with full symbols has some 100 MiB.
const TABLE_BYTES_MAX: u64 = 256 << 20;
/// The maximum length of a name. Names of templates may have some KiB; in a string table without NULs each name would
/// be as long as the table.
const NAME_BYTES_MAX: usize = 4 << 10;
/// The number of section and program headers has 16 bits.
const HEADER_BYTES: usize = 64;
const SECTION_BYTES: usize = 64;
const SEGMENT_BYTES: usize = 56;
const SYMBOL_BYTES: usize = 24;

const SYMTAB: u32 = 2;
const DYNSYM: u32 = 11;
const LOAD: u32 = 1;
const FUNCTION: u8 = 2;
const INDIRECT_FUNCTION: u8 = 10;

/// A program file: its functions, and the memory layout of its segments.
#[derive(Debug, Default)]
pub(super) struct Elf {
    functions: Symbols,
    segments: Vec<Segment>,
}

/// A loaded segment.
#[derive(Debug, Clone, Copy)]
struct Segment {
    offset: u64,
    address: u64,
    length: u64,
}

impl Elf {
    /// Reads the symbols of `file`, up to `left` bytes of memory, and subtracts what was used; none if it is not such
    /// an ELF file, or is stripped.
    pub(super) fn read(file: &File, left: &mut usize) -> Self {
        read(file, left).unwrap_or_default()
    }

    /// The function at `offset` of the file.
    pub(super) fn name_at(&self, offset: u64) -> Option<&str> {
        let segment = self.segments.iter().find(|segment| {
            let end = segment.offset.saturating_add(segment.length);
            (segment.offset..end).contains(&offset)
        })?;
        let address = (offset - segment.offset).checked_add(segment.address)?;
        self.functions.name_at(address)
    }
}

fn bytes_at(file: &File, offset: u64, length: u64) -> Option<Vec<u8>> {
    if length > TABLE_BYTES_MAX || offset.checked_add(length)? > file.metadata().ok()?.len() {
        return None;
    }
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    file.read_exact_at(&mut bytes, offset).ok()?;
    Some(bytes)
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_le_bytes(bytes.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn double(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + 8)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

fn read(file: &File, left: &mut usize) -> Option<Elf> {
    let header = bytes_at(file, 0, HEADER_BYTES as u64)?;
    // 64 bits, little-endian.
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let table = |at: usize, size_at: usize, count_at: usize, size: usize| {
        let count = u64::from(half(&header, count_at)?);
        if usize::from(half(&header, size_at)?) != size {
            return None;
        }
        bytes_at(file, double(&header, at)?, count * size as u64)
    };
    let segments = table(32, 54, 56, SEGMENT_BYTES)?;
    let sections = table(40, 58, 60, SECTION_BYTES)?;
    let sections: Vec<&[u8]> = sections.chunks_exact(SECTION_BYTES).collect();
    let kind = |section: &[u8]| word(section, 4);
    let with = |wanted: u32| {
        sections
            .iter()
            .find(|section| kind(section) == Some(wanted))
    };
    // Programs without debugging symbols still have dynamic symbols.
    let functions = with(SYMTAB)
        .or_else(|| with(DYNSYM))
        .and_then(|section| functions(file, section, &sections, left));
    Some(Elf {
        functions: functions.unwrap_or_default(),
        segments: segments
            .chunks_exact(SEGMENT_BYTES)
            .filter(|segment| word(segment, 0) == Some(LOAD))
            .filter_map(|segment| {
                Some(Segment {
                    offset: double(segment, 8)?,
                    address: double(segment, 16)?,
                    length: double(segment, 32)?,
                })
            })
            .collect(),
    })
}

fn functions(file: &File, section: &[u8], sections: &[&[u8]], left: &mut usize) -> Option<Symbols> {
    let content = |section: &[u8]| bytes_at(file, double(section, 24)?, double(section, 32)?);
    let names = sections.get(word(section, 40)? as usize)?;
    let (table, names) = (content(section)?, content(names)?);
    let mut functions = Symbols::default();
    for symbol in table.chunks_exact(SYMBOL_BYTES) {
        let kind = symbol[4] & 0xf;
        let (Some(name_at), Some(address), Some(size)) =
            (word(symbol, 0), double(symbol, 8), double(symbol, 16))
        else {
            continue;
        };
        if !matches!(kind, FUNCTION | INDIRECT_FUNCTION) || address == 0 {
            continue;
        }
        let name = names.get(name_at as usize..).unwrap_or_default();
        let name = name.get(..NAME_BYTES_MAX).unwrap_or(name);
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        let name = String::from_utf8_lossy(name);
        let Some(rest) = left.checked_sub(Symbols::bytes_of(name.len())) else {
            break;
        };
        *left = rest;
        functions.add(address, size, &name);
    }
    functions.sort();
    Some(functions)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// An ELF file with one segment, `count` functions, and a string table without NULs.
    fn endless(count: usize, strings: usize) -> Vec<u8> {
        let mut header = [0; HEADER_BYTES];
        header[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let sections_at = (HEADER_BYTES + SEGMENT_BYTES) as u64;
        let symbols_at = sections_at + 2 * SECTION_BYTES as u64;
        let symbols = count * SYMBOL_BYTES;
        header[32..40].copy_from_slice(&(HEADER_BYTES as u64).to_le_bytes());
        header[40..48].copy_from_slice(&sections_at.to_le_bytes());
        for (at, value) in [(54, SEGMENT_BYTES), (56, 1), (58, SECTION_BYTES), (60, 2)] {
            let value = u16::try_from(value).expect("small");
            header[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        let mut segment = [0; SEGMENT_BYTES];
        segment[0] = 1;
        segment[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        let section = |kind: u32, at: u64, length: usize| {
            let mut section = [0; SECTION_BYTES];
            section[4..8].copy_from_slice(&kind.to_le_bytes());
            section[24..32].copy_from_slice(&at.to_le_bytes());
            section[32..40].copy_from_slice(&(length as u64).to_le_bytes());
            section[40..44].copy_from_slice(&1_u32.to_le_bytes());
            section
        };
        let mut bytes = [header.as_slice(), &segment].concat();
        bytes.extend(section(SYMTAB, symbols_at, symbols));
        bytes.extend(section(3, symbols_at + symbols as u64, strings));
        for place in 0..count as u64 {
            let mut symbol = [0; SYMBOL_BYTES];
            symbol[4] = FUNCTION;
            symbol[8..16].copy_from_slice(&(place + 1).to_le_bytes());
            bytes.extend(symbol);
        }
        bytes.resize(bytes.len() + strings, b'a');
        bytes
    }

    #[test]
    fn names_without_an_end_are_cut_and_symbols_end_with_the_memory_for_them() {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&endless(1000, 1 << 20)).expect("room");
        let mut left = 100 * (NAME_BYTES_MAX + 64);
        let elf = Elf::read(&file, &mut left);
        assert_eq!(elf.name_at(1).map(str::len), Some(NAME_BYTES_MAX));
        assert!((90..=100).contains(&elf.functions.len()));
        assert!(left < NAME_BYTES_MAX + 64, "{left}");
    }

    #[test]
    fn a_file_that_is_damaged_anywhere_gives_no_symbol_and_no_panic() {
        let own = File::open("/proc/self/exe").expect("the test itself");
        let mut head = vec![0; 64 << 10];
        own.read_exact_at(&mut head, 0).expect("it is larger");
        let mut broken = tempfile::tempfile().expect("a file");
        broken.write_all(&head).expect("room");
        for at in (0..64).chain([1024, 4096]) {
            let byte = head[at];
            broken
                .write_all_at(&[byte ^ 0xff], at as u64)
                .expect("room");
            let mut left = usize::MAX;
            assert_eq!(
                Elf::read(&broken, &mut left).name_at(0x1000),
                None,
                "byte {at}"
            );
            broken.write_all_at(&[byte], at as u64).expect("room");
        }
    }
}
