//! Is a file still what a private mapping of it showed at the checkpoint.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use ckpt_store::{Digest, PAGE_BYTES, PageList};

use crate::image::{FileIdentity, PageRange, Region};

/// Pages compared at a time.
const BATCH_PAGES: u64 = 256;
const PAGE: u64 = PAGE_BYTES as u64;

/// Offset in the file of the first page that is not what the region showed, but for those that are `put_back`; `digest` made the keys
/// of `list`.
pub fn first_difference(
    file: &File,
    (region, put_back): (&Region, &[PageRange]),
    identity: &FileIdentity,
    list: &PageList,
    digest: Digest,
) -> io::Result<Option<u64>> {
    let size = file.metadata()?.len();
    let existing = |size: u64| (region.bytes / PAGE).min(size.saturating_sub(identity.offset).div_ceil(PAGE));
    // A page of the program's own needs the file underneath as well, or touching it would be a bus error.
    let (end, then) = (existing(size), existing(identity.size));
    let is_all_put_back = put_back.first().is_some_and(|range| range.first == 0 && range.count == region.bytes / PAGE);
    if end < then || (end > then && !is_all_put_back) {
        return Ok(Some(identity.offset + end.min(then) * PAGE));
    }
    // Behind a guard in a private mapping is the file's page, whatever that is.
    let mut passed_by = [&region.own_pages, put_back, &region.guards].concat();
    passed_by.sort_unstable_by_key(|range| range.first);
    for range in foreign_pages(&passed_by, end) {
        if let Some(page) = first_different_page(file, identity.offset, range, list, digest)? {
            return Ok(Some(identity.offset + page * PAGE));
        }
    }
    Ok(None)
}

fn first_different_page(
    file: &File,
    offset: u64,
    range: PageRange,
    list: &PageList,
    digest: Digest,
) -> io::Result<Option<u64>> {
    let mut buffer = vec![0; (range.count.min(BATCH_PAGES) * PAGE) as usize];
    let end = range.first + range.count;
    let mut first = range.first;
    while first < end {
        let pages = BATCH_PAGES.min(end - first);
        let batch = &mut buffer[..(pages * PAGE) as usize];
        read_padded(file, offset + first * PAGE, batch)?;
        let (contents, _) = batch.as_chunks::<PAGE_BYTES>();
        for (page, content) in (first..).zip(contents) {
            let key = list.get(page);
            if !digest.is_surely_whole(content, &key) && digest.key_of(content) != key {
                return Ok(Some(page));
            }
        }
        first += pages;
    }
    Ok(None)
}

/// Reads from `offset`; what lies beyond the end of the file is zero.
pub fn read_padded(file: &File, offset: u64, into: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while done < into.len() {
        match file.read_at(&mut into[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(bytes) => done += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    into[done..].fill(0);
    Ok(())
}

/// The pages below `end` that are not in `own`, whose ranges ascend.
fn foreign_pages(own: &[PageRange], end: u64) -> Vec<PageRange> {
    let mut foreign = Vec::new();
    let mut first = 0;
    for range in own.iter().filter(|range| range.first < end) {
        if range.first > first {
            foreign.push(PageRange { first, count: range.first - first });
        }
        first = first.max(range.first + range.count);
    }
    if first < end {
        foreign.push(PageRange { first, count: end - first });
    }
    foreign
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_pages_are_the_complement_of_the_own_ones() {
        let range = |first, count| PageRange { first, count };
        assert_eq!(foreign_pages(&[], 3), [range(0, 3)]);
        assert_eq!(foreign_pages(&[range(0, 1), range(2, 2)], 6), [range(1, 1), range(4, 2)]);
        assert_eq!(foreign_pages(&[range(1, 9)], 4), [range(0, 1)]);
        assert_eq!(foreign_pages(&[range(0, 4)], 4), []);
    }
}
