//! `/proc/PID/smaps`: the mappings of a process with their lasting flags.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::PathBuf;

use super::task;
use crate::error::Result;

/// Bytes that are asked for at once. The kernel writes records of some 700 bytes into a page until it has so many; one that does
/// not fit into the rest of the page is thrown away, after a walk over the page tables of its mapping, and written once more.
const READ_BYTES: usize = 2048;
const PAGE: u64 = 4096;
/// What the kernel calls anonymous memory of huge pages.
const ANONYMOUS_HUGE: &[u8] = b"/anon_hugepage";

/// One mapping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// `PROT_*` bits.
    pub protection: i32,
    /// `s` rather than `p` in the permissions.
    pub shared: bool,
    /// Offset in the file, bytes.
    pub offset: u64,
    /// Device (major, minor).
    pub device: (u32, u32),
    /// Inode; 0 for anonymous memory.
    pub inode: u64,
    /// Path or name in brackets; raw bytes with newlines unescaped; " (deleted)" kept.
    pub name: Vec<u8>,
    /// Two-letter flags of the `VmFlags` line.
    pub flags: Vec<[u8; 2]>,
    /// Memory protection key.
    pub protection_key: u32,
    /// Bytes of a page (`KernelPageSize`): more than 4096 where huge pages were asked for. 0 in an outline.
    pub page_bytes: u64,
}

impl Mapping {
    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        self.end - self.start
    }

    /// The numbers of its pages, counted from address 0.
    pub fn pages(&self) -> Range<u64> {
        self.start / PAGE..self.end / PAGE
    }

    /// Whether it is anonymous memory of huge pages that were asked for (`MAP_HUGETLB`).
    pub fn is_of_huge_pages(&self) -> bool {
        self.name.starts_with(ANONYMOUS_HUGE)
    }

    /// Whether the `VmFlags` hold `flag`.
    pub fn has(&self, flag: &[u8; 2]) -> bool {
        self.flags.contains(flag)
    }
}

/// The mappings of process `pid`, ascending, without `[vsyscall]`, which is the kernel's and the same everywhere.
pub fn mappings(pid: i32) -> Result<Vec<Mapping>> {
    read(pid, "smaps")
}

/// The same without flags and protection keys, which cost a walk over all page tables.
pub fn outline(pid: i32) -> Result<Vec<Mapping>> {
    read(pid, "maps")
}

fn read(pid: i32, file: &str) -> Result<Vec<Mapping>> {
    let path = PathBuf::from(format!("/proc/{pid}/{file}"));
    let unreadable = |source| task::unreadable(pid, path.clone(), source);
    let file = File::open(&path).map_err(unreadable)?;
    let mut mappings: Vec<Mapping> = Vec::new();
    let mut reader = BufReader::with_capacity(READ_BYTES, file);
    let mut line = Vec::new();
    loop {
        line.clear();
        let bytes = reader.read_until(b'\n', &mut line).map_err(unreadable)?;
        if bytes == 0 {
            break;
        }
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        if let Some(flags) = text.strip_prefix(b"VmFlags:") {
            if let Some(mapping) = mappings.last_mut() {
                mapping.flags = flags.split(|&b| b == b' ').filter_map(|word| word.try_into().ok()).collect();
            }
        } else if let Some(key) = text.strip_prefix(b"ProtectionKey:") {
            if let Some(mapping) = mappings.last_mut() {
                mapping.protection_key = number(key.trim_ascii(), 10).unwrap_or(0) as u32;
            }
        } else if let Some(size) = text.strip_prefix(b"KernelPageSize:") {
            if let Some(mapping) = mappings.last_mut() {
                let size = size.strip_suffix(b"kB").unwrap_or(size).trim_ascii();
                mapping.page_bytes = number(size, 10).unwrap_or(0) << 10;
            }
        } else if let Some(mapping) = parse_header(text) {
            mappings.push(mapping);
        }
    }
    mappings.retain(|mapping| mapping.name != b"[vsyscall]");
    Ok(mappings)
}

/// Parses `start-end perms offset major:minor inode  name`; other lines of smaps give `None`.
fn parse_header(line: &[u8]) -> Option<Mapping> {
    let mut rest = line;
    let mut word = || {
        let end = rest.iter().position(|&b| b == b' ').unwrap_or(rest.len());
        let (word, tail) = rest.split_at(end);
        rest = tail.strip_prefix(b" ").unwrap_or(tail);
        word
    };
    let (range, permissions, offset, device, inode) = (word(), word(), word(), word(), word());
    let (start, end) = pair(range, b'-')?;
    let [r, w, x, s] = permissions else { return None };
    let bit = |set: bool, bit: i32| if set { bit } else { 0 };
    let (major, minor) = pair(device, b':')?;
    Some(Mapping {
        start,
        end,
        protection: bit(*r == b'r', libc::PROT_READ)
            | bit(*w == b'w', libc::PROT_WRITE)
            | bit(*x == b'x', libc::PROT_EXEC),
        shared: *s == b's',
        offset: number(offset, 16)?,
        device: (major as u32, minor as u32),
        inode: number(inode, 10)?,
        name: unescape(rest.trim_ascii_start()),
        flags: Vec::new(),
        protection_key: 0,
        page_bytes: 0,
    })
}

fn pair(text: &[u8], separator: u8) -> Option<(u64, u64)> {
    let at = text.iter().position(|&b| b == separator)?;
    Some((number(&text[..at], 16)?, number(&text[at + 1..], 16)?))
}

fn number(text: &[u8], radix: u32) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(text).ok()?, radix).ok()
}

/// The kernel writes a newline in a path as `\012` and nothing else.
fn unescape(name: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&first, tail)) = rest.split_first() {
        if let Some(tail) = rest.strip_prefix(b"\\012") {
            plain.push(b'\n');
            rest = tail;
        } else {
            plain.push(first);
            rest = tail;
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_line_is_read_with_its_path_as_bytes() {
        let line = b"7f8994400000-7f899beb2000 r-xs 00001000 fe:00 315148                     /a b\\012\xff (deleted)";
        let mapping = parse_header(line).unwrap();
        assert_eq!((mapping.start, mapping.end), (0x7f8994400000, 0x7f899beb2000));
        assert_eq!(mapping.protection, libc::PROT_READ | libc::PROT_EXEC);
        assert!(mapping.shared);
        assert_eq!((mapping.offset, mapping.device, mapping.inode), (0x1000, (0xfe, 0), 315148));
        assert_eq!(mapping.name, b"/a b\n\xff (deleted)");
    }

    #[test]
    fn other_lines_of_smaps_are_no_headers() {
        for line in [&b"Size:                  4 kB"[..], b"THPeligible:           0", b""] {
            assert_eq!(parse_header(line), None);
        }
    }

    #[test]
    fn our_own_mappings_are_found_with_flags() {
        let own = mappings(std::process::id() as i32).unwrap();
        let stack = own.iter().find(|mapping| mapping.name == b"[stack]").unwrap();
        assert!(stack.has(b"gd") && stack.has(b"wr"));
        assert!(own.iter().any(|mapping| mapping.name == b"[vdso]"));
        assert!(own.windows(2).all(|pair| pair[0].end <= pair[1].start));
    }
}
