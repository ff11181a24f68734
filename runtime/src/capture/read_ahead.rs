//! Reading the pages of a still process ahead of the one who stores them, by a thread of its own.
//!
//! Pages of one region after another go into a few buffers, which are used again and again: while one is hashed, looked up
//! and written, the next ones are filled. So the process is read to its end early (its twin can go then, and the program need
//! not copy any more what it writes to), and no more is held than the buffers.

use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use super::pages::{PageSource, Place, batches, bytes_of};
use crate::error::{Error, Result};
use crate::page_set::PageSet;

/// Buffers: one being filled, one being stored, and one so that neither waits for the other.
pub const BUFFERS: usize = 3;

/// Pages to be read: where they are, and which.
pub type Wanted<'a> = (Place, &'a PageSet);

/// Pages of one region in a buffer.
#[derive(Debug, PartialEq, Eq)]
pub struct Piece {
    /// The position of the region in the list of what is wanted.
    pub of: usize,
    /// Its pages, one run after another.
    pub runs: Vec<Range<u64>>,
}

/// Stores pages, one after another, and what they are.
pub type Take<'a> = dyn FnMut(&[u8], &[Piece]) -> Result<()> + 'a;

/// A buffer with pages in it.
#[derive(Default)]
struct Filled {
    room: Vec<u8>,
    bytes: usize,
    pieces: Vec<Piece>,
}

/// Reads all that is wanted from `source`, in order, and gives it to `take` in buffers of at most `buffer_bytes`, but of one
/// batch at least. A place that the process itself may not read needs its tracer, and is not for this.
pub fn read_ahead(source: &PageSource, wanted: &[Wanted<'_>], buffer_bytes: usize, take: &mut Take<'_>) -> Result<()> {
    let mut batches = wanted
        .iter()
        .enumerate()
        .flat_map(|(of, (place, set))| batches(set).into_iter().map(move |runs| (*place, Piece { of, runs })))
        .peekable();
    let total_bytes: usize = wanted.iter().map(|(_, set)| set.len() as usize * ckpt_store::PAGE_BYTES).sum();
    let mut fill = move |room: Vec<u8>| -> Option<Result<Filled>> {
        batches.peek()?;
        let mut filled = Filled { room, ..Filled::default() };
        while let Some((place, piece)) =
            batches.next_if(|(_, piece)| filled.bytes == 0 || filled.bytes + bytes_of(&piece.runs) <= buffer_bytes)
        {
            if let Err(error) = filled.add(source, &place, piece) {
                return Some(Err(error));
            }
        }
        Some(Ok(filled))
    };
    if total_bytes <= buffer_bytes {
        // Not worth a thread.
        let only = fill(Vec::new()).transpose()?;
        return only.map_or(Ok(()), |filled| filled.give_to(take));
    }
    thread::scope(|scope| {
        let (full, filled) = channel();
        let (used, empty) = channel();
        for _ in 0..BUFFERS {
            let _ = used.send(Vec::new()); // the other end is there
        }
        let read = move || read_on(&mut fill, &empty, &full);
        let spawned = thread::Builder::new().name("ckpt-read".into()).spawn_scoped(scope, read);
        spawned.map_err(|source| Error::io("start a thread for", "reading the program's memory", source))?;
        for filled in filled {
            let mut filled: Filled = filled?;
            filled.give_to(take)?;
            // The reader is done when nobody waits for it.
            let _ = used.send(std::mem::take(&mut filled.room));
        }
        Ok(())
    })
}

/// Fills buffers until nothing is left, something is wrong, or nobody wants more.
fn read_on(
    fill: &mut dyn FnMut(Vec<u8>) -> Option<Result<Filled>>,
    empty: &Receiver<Vec<u8>>,
    full: &Sender<Result<Filled>>,
) {
    for room in empty {
        let Some(filled) = fill(room) else { return };
        let failed = filled.is_err();
        if full.send(filled).is_err() || failed {
            return;
        }
    }
}

impl Filled {
    fn add(&mut self, source: &PageSource, place: &Place, piece: Piece) -> Result<()> {
        let end = self.bytes + bytes_of(&piece.runs);
        if self.room.len() < end {
            self.room.resize(end, 0);
        }
        source.read_batch(place, &piece.runs, &mut self.room[self.bytes..end])?;
        self.bytes = end;
        self.pieces.push(piece);
        Ok(())
    }

    fn give_to(&self, take: &mut Take<'_>) -> Result<()> {
        take(&self.room[..self.bytes], &self.pieces)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use ckpt_store::PAGE_BYTES;

    const BUFFER_BYTES: usize = 2 << 20;

    /// Memory of this process, each page another one, and where it is.
    fn memory(pages: usize) -> (Vec<u8>, Place) {
        let bytes: Vec<u8> = (0..pages * PAGE_BYTES).map(|at| (at / PAGE_BYTES * 7 + at % 251) as u8).collect();
        let place = Place { address: bytes.as_ptr() as u64, readable: true, may_end_early: false };
        (bytes, place)
    }

    fn source(is_clone: bool) -> PageSource {
        let pid = std::process::id() as i32;
        if is_clone { PageSource::open_clone(pid).unwrap() } else { PageSource::open(pid).unwrap() }
    }

    #[test]
    fn all_pages_come_in_order_in_a_few_buffers_that_are_used_again() {
        let (bytes, place) = memory(5000);
        let mut scattered = PageSet::default();
        (0..1000).for_each(|at| scattered.push(at * 3..at * 3 + 1 + at % 2));
        let sets = [PageSet::of(0..5000), PageSet::default(), scattered, PageSet::of(7..9)];
        let wanted: Vec<Wanted<'_>> = sets.iter().map(|set| (place, set)).collect();
        let expected: Vec<(usize, u64)> = (sets.iter().enumerate())
            .flat_map(|(of, set)| set.ranges().flatten().map(move |page| (of, page)))
            .collect();
        for is_clone in [false, true] {
            let (mut found, mut rooms) = (Vec::new(), HashSet::new());
            read_ahead(&source(is_clone), &wanted, BUFFER_BYTES, &mut |read, pieces| {
                assert!(read.len() <= BUFFER_BYTES);
                rooms.insert(read.as_ptr());
                let pages = pieces
                    .iter()
                    .flat_map(|piece| piece.runs.iter().cloned().flatten().map(move |page| (piece.of, page)));
                for ((of, page), content) in pages.zip(read.chunks_exact(PAGE_BYTES)) {
                    assert!(content == &bytes[page as usize * PAGE_BYTES..][..PAGE_BYTES], "page {page}");
                    found.push((of, page));
                }
                Ok(())
            })
            .unwrap();
            assert_eq!(found, expected);
            // A buffer may move while it grows to its full length.
            assert!(rooms.len() <= 2 * BUFFERS, "{} buffers", rooms.len());
        }
    }

    #[test]
    fn the_end_of_the_one_who_stores_is_the_end_of_reading_and_the_other_way_round() {
        let (_bytes, place) = memory(5000);
        let all = PageSet::of(0..5000);
        let failed = || Error::environment("storing", "a test", "nothing");
        let mut taken = 0;
        let stopped = read_ahead(&source(false), &[(place, &all)], BUFFER_BYTES, &mut |_, _| {
            taken += 1;
            if taken == 2 { Err(failed()) } else { Ok(()) }
        });
        assert!(stopped.is_err() && taken == 2);
        let nowhere = Place { address: 4096, ..place };
        let mut taken = 0;
        let unread = read_ahead(&source(false), &[(place, &all), (nowhere, &all)], BUFFER_BYTES, &mut |_, _| {
            taken += 1;
            Ok(())
        });
        assert!(unread.is_err() && taken > 0, "what comes before the failure is stored");
    }
}
