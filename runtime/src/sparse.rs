//! The parts of a file that hold anything: holes are neither read nor copied.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::unistd::{Whence, lseek};

/// Where the first `bytes` of a file have data, ascending; all of it where the file system does not tell.
pub fn data(file: &File, bytes: u64) -> io::Result<Vec<Range<u64>>> {
    data_within(file, 0..bytes)
}

/// The same for a part of a file.
pub fn data_within(file: &File, part: Range<u64>) -> io::Result<Vec<Range<u64>>> {
    let mut ranges = Vec::new();
    let (mut at, bytes) = (part.start, part.end);
    while at < bytes {
        let start = match seek(file, at, Whence::SeekData) {
            Ok(start) => start,
            Err(Errno::ENXIO) => break,
            Err(Errno::EINVAL | Errno::EOPNOTSUPP) => at,
            Err(errno) => return Err(errno.into()),
        };
        let end = match seek(file, start, Whence::SeekHole) {
            Ok(end) => end.min(bytes),
            Err(Errno::EINVAL | Errno::EOPNOTSUPP) => bytes,
            Err(Errno::ENXIO) => break,
            Err(errno) => return Err(errno.into()),
        };
        if start >= bytes {
            break;
        }
        ranges.push(start..end);
        at = end.max(start + 1);
    }
    Ok(ranges)
}

fn seek(file: &File, from: u64, whence: Whence) -> Result<u64, Errno> {
    lseek(file.as_fd(), from as i64, whence).map(|found| found as u64)
}

/// Copies the first `bytes` of `from` to `to`, which is empty. The kernel does it, by sharing blocks where it can.
pub fn copy(mut from: &File, mut to: &File, bytes: u64) -> io::Result<()> {
    for range in data(from, bytes)? {
        from.seek(SeekFrom::Start(range.start))?;
        to.seek(SeekFrom::Start(range.start))?;
        io::copy(&mut from.take(range.end - range.start), &mut to)?;
    }
    to.set_len(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn holes_are_passed_by_and_come_out_as_zeros() {
        let file = tempfile::tempfile().unwrap();
        let bytes = (64 << 20) + 100;
        file.write_all_at(b"begin", 0).unwrap();
        file.write_all_at(b"end", bytes - 3).unwrap();
        let ranges = data(&file, bytes).unwrap();
        let held: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        assert!((8..4 << 20).contains(&held), "{ranges:?}");
        let copied = tempfile::tempfile().unwrap();
        copy(&file, &copied, bytes).unwrap();
        assert_eq!(copied.metadata().unwrap().len(), bytes);
        let at = |place: u64, expected: &[u8]| {
            let mut found = vec![1; expected.len()];
            copied.read_exact_at(&mut found, place).unwrap();
            assert_eq!(found, expected);
        };
        at(0, b"begin\0");
        at(32 << 20, &[0; 100]);
        at(bytes - 4, b"\0end");
        let ranges = data(&file, 3).unwrap();
        assert_eq!((ranges.len(), ranges[0].clone()), (1, 0..3), "no more than is asked for");
        let ranges = data_within(&file, 1..3).unwrap();
        assert_eq!((ranges.len(), ranges[0].clone()), (1, 1..3));
        assert_eq!(data_within(&file, 32 << 20..33 << 20).unwrap(), []);
        file.set_len(0).unwrap();
        assert!(data(&file, bytes).unwrap().is_empty(), "a file that has become shorter meanwhile");
    }
}
