//! What is mapped at some addresses of this process, as the kernel says.

use std::fs;
use std::io;
use std::ops::Range;

/// What is mapped in a range of addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mapped {
    /// Nothing, anywhere.
    Nothing,
    /// Addresses that are held without memory: nobody can read or write them, and no file is behind them.
    Held,
    /// Something else, which is the line of /proc/self/maps.
    Memory(String),
}

/// What is mapped there now.
///
/// # Errors
/// When the kernel does not say, or not as it does.
pub fn mapped_in(range: &Range<u64>) -> io::Result<Mapped> {
    mapped_as(&fs::read_to_string("/proc/self/maps")?, range)
        .ok_or_else(|| io::Error::other("/proc/self/maps is not as it is known"))
}

fn mapped_as(maps: &str, range: &Range<u64>) -> Option<Mapped> {
    let mut found = Mapped::Nothing;
    for line in maps.lines() {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
        if end <= range.start || range.end <= start {
            continue;
        }
        let (access, inode) = (fields.next()?, fields.nth(2)?);
        if access != "---p" || inode != "0" || fields.next().is_some() {
            return Some(Mapped::Memory(line.trim_end().to_owned()));
        }
        found = Mapped::Held;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
1000-3000 rw-s 00000000 00:01 1027                           /memfd:managed (deleted)
3000-5000 ---p 00000000 00:00 0 
5000-6000 rw-p 00000000 00:00 0 
6000-7000 ---p 00000000 00:00 0                              [anon:held]
7000-8000 ---s 00000000 00:06 12                             /dev/nvidia-uvm
";

    #[test]
    fn held_are_addresses_that_nobody_can_use_and_that_have_no_name() {
        assert_eq!(mapped_as(MAPS, &(0x3000..0x5000)), Some(Mapped::Held));
        assert_eq!(mapped_as(MAPS, &(0x4800..0x4900)), Some(Mapped::Held));
        for range in [0x2fff..0x3001, 0x4000..0x5001, 0x5000..0x6000, 0x6000..0x7000, 0x7000..0x8000] {
            assert!(matches!(mapped_as(MAPS, &range), Some(Mapped::Memory(_))), "{range:x?}");
        }
    }

    #[test]
    fn where_nothing_is_there_is_nothing() {
        assert_eq!(mapped_as(MAPS, &(0..0x1000)), Some(Mapped::Nothing));
        assert_eq!(mapped_as(MAPS, &(0x8000..0x9000)), Some(Mapped::Nothing));
        assert_eq!(mapped_as("nonsense\n", &(0..0x1000)), None);
    }

    #[test]
    fn the_kernel_is_understood() {
        let here = [0_u8; 8];
        let address = here.as_ptr().addr() as u64;
        assert!(matches!(mapped_in(&(address..address + 8)), Ok(Mapped::Memory(_))));
    }
}
