//! The function names of a program's file: the symbol tables of 64-bit ELF (elf(5)). A file may be anything,
//! so every offset is held against its length, and what does not fit gives no symbol.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::symbols::Symbols;

/// No symbol table or string table is larger: a browser with all its symbols has some 100 MiB.
const TABLE_BYTES_MAX: u64 = 256 << 20;
/// Section and program headers are counted by 16 bits.
const HEADER_BYTES: usize = 64;
const SECTION_BYTES: usize = 64;
const SEGMENT_BYTES: usize = 56;
const SYMBOL_BYTES: usize = 24;

const SYMTAB: u32 = 2;
const DYNSYM: u32 = 11;
const LOAD: u32 = 1;
const FUNCTION: u8 = 2;
const INDIRECT_FUNCTION: u8 = 10;

/// A program's file: its functions, and where its parts are meant to lie in memory.
#[derive(Debug, Default)]
pub(super) struct Elf {
    functions: Symbols,
    segments: Vec<Segment>,
}

/// What of a file becomes memory.
#[derive(Debug, Clone, Copy)]
struct Segment {
    offset: u64,
    address: u64,
    length: u64,
}

impl Elf {
    /// Reads the symbols of `file`; none when it is no ELF file of this kind, or stripped.
    pub(super) fn read(file: &File) -> Self {
        read(file).unwrap_or_default()
    }

    /// The function that has the byte at `offset` of the file.
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

fn read(file: &File) -> Option<Elf> {
    let header = bytes_at(file, 0, HEADER_BYTES as u64)?;
    // 64 bits, little endian.
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
    // Programs without debugging symbols still name what they share with others.
    let functions = with(SYMTAB)
        .or_else(|| with(DYNSYM))
        .and_then(|section| functions(file, section, &sections));
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

fn functions(file: &File, section: &[u8], sections: &[&[u8]]) -> Option<Symbols> {
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
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        functions.add(address, size, &String::from_utf8_lossy(name));
    }
    functions.sort();
    Some(functions)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

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
            assert_eq!(Elf::read(&broken).name_at(0x1000), None, "byte {at}");
            broken.write_all_at(&[byte], at as u64).expect("room");
        }
    }
}
