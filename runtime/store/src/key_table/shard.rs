//! A part of a table: entries as they come, and slots that find them.
//!
//! A slot has 16 bits of a key's hash, its tag, and the number of its entry. Sixteen slots are a line, one cache line;
//! other bits of the hash say in which line a key belongs, and when that is full it goes into the next one that is not.
//! Nothing is ever taken out, so a line that is not full ends every search. The slots of a line are compared all at once:
//! there is no branch in it that could be predicted wrongly.
//!
//! When the slots become too few, and when the shard is split, they are made anew from the entries, which lie in a row:
//! that reads memory in order, which costs far less than to wait for one key after the other.

use super::Entry;
use crate::PageKey;

/// Slots of a line.
const LINE: usize = 16;
/// Entries are numbered from 1.
pub(super) const ENTRIES_MAX: usize = u16::MAX as usize;
/// In so many lines there is always a free slot.
const LINES_MAX: usize = (ENTRIES_MAX + 1) / LINE;
/// There are twice as many lines when more of 100 slots are taken.
const FULL_PERCENT: usize = 85;
/// Entries of a piece of memory: the larger, the more of it is not used yet.
const BLOCK_ENTRIES: usize = 1 << 10;

/// Slots that one cache line holds. Those in front are taken.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Line {
    tags: [u16; LINE],
    /// 0 where there is no entry.
    entries: [u16; LINE],
}

/// Keys and their places: at most [`ENTRIES_MAX`].
pub(super) struct Shard {
    /// As many as a power of two.
    lines: Vec<Line>,
    blocks: Vec<Vec<Entry>>,
    len: usize,
}

impl Default for Shard {
    fn default() -> Self {
        Self { lines: vec![Line::default()], blocks: Vec::new(), len: 0 }
    }
}

impl Shard {
    /// One with slots for some more than so many entries.
    pub fn with_room(entries: usize) -> Self {
        let mut lines = 1;
        while is_too_full(entries + entries / 16, lines) {
            lines *= 2;
        }
        Self { lines: vec![Line::default(); lines], ..Self::default() }
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The line where a search for this hash begins.
    #[inline]
    pub fn home(&self, hash: u64) -> usize {
        home(self.lines.len(), hash)
    }

    /// Something of a line, to have it in the cache.
    #[inline]
    pub fn look(&self, line: usize) -> u16 {
        self.lines[line].tags[0]
    }

    /// The number of the entry in this line that has this hash, as far as the line says; 0 if there is none.
    #[inline]
    pub fn candidate(&self, hash: u64, line: usize) -> u16 {
        self.lines[line].entry(tag(hash))
    }

    /// Whether a search that comes to this line ends in it.
    #[inline]
    pub fn ends(&self, line: usize) -> bool {
        !self.lines[line].is_full()
    }

    /// The entry with this number, if there is one.
    #[inline]
    pub fn entry(&self, number: u16) -> Option<&Entry> {
        let at = usize::from(number).wrapping_sub(1);
        self.blocks.get(at / BLOCK_ENTRIES)?.get(at % BLOCK_ENTRIES)
    }

    /// The same.
    #[inline]
    pub fn entry_mut(&mut self, number: u16) -> Option<&mut Entry> {
        let at = usize::from(number).wrapping_sub(1);
        self.blocks.get_mut(at / BLOCK_ENTRIES)?.get_mut(at % BLOCK_ENTRIES)
    }

    #[inline]
    fn has(&self, number: u16, key: &PageKey) -> bool {
        self.entry(number).is_some_and(|entry| entry.key == *key)
    }

    /// The number of the entry of a key, or the line where there is room for it.
    #[inline]
    pub fn find(&self, hash: u64, home: usize, key: &PageKey) -> Result<u16, usize> {
        let (mut at, tag) = (home, tag(hash));
        loop {
            let line = &self.lines[at];
            let number = line.entry(tag);
            if number != 0 {
                if self.has(number, key) {
                    return Ok(number);
                }
                if let Some(found) = line.entries(tag).find(|number| self.has(*number, key)) {
                    return Ok(found);
                }
            }
            if !line.is_full() {
                return Err(at);
            }
            at = (at + 1) & (self.lines.len() - 1);
        }
    }

    /// Adds an entry that is not there, to the line that [`Shard::find`] gave.
    #[inline]
    pub fn add(&mut self, hash: u64, line: usize, entry: &Entry, rehash: impl Fn(&PageKey) -> u64) {
        let number = self.append(entry);
        self.lines[line].add(tag(hash), number);
        if is_too_full(self.len, self.lines.len()) {
            self.lines = lines_of(self.lines.len() * 2, &self.blocks, rehash);
        }
    }

    #[inline]
    fn append(&mut self, entry: &Entry) -> u16 {
        assert!(self.len < ENTRIES_MAX, "a shard that was not split");
        match self.blocks.last_mut() {
            Some(last) if last.len() < BLOCK_ENTRIES => last.push(*entry),
            _ => self.begin_block(entry),
        }
        self.len += 1;
        self.len as u16
    }

    #[cold]
    fn begin_block(&mut self, first: &Entry) {
        let mut block = Vec::with_capacity(if self.len == 0 { LINE } else { BLOCK_ENTRIES });
        block.push(*first);
        self.blocks.push(block);
    }

    /// Takes the entries out whose hash `moves`. Both parts have as many lines as the whole had: they will need them soon.
    pub fn split(&mut self, hash: impl Fn(&PageKey) -> u64 + Copy, moves: impl Fn(u64) -> bool) -> Self {
        let part = || Self { lines: vec![Line::default(); self.lines.len()], ..Self::default() };
        let mut parts = [part(), part()];
        for block in std::mem::take(&mut self.blocks) {
            for entry in &block {
                let hash = hash(&entry.key);
                // An index where a branch would be predicted wrongly every other time.
                let part = &mut parts[usize::from(moves(hash))];
                let number = part.append(entry);
                place(&mut part.lines, hash, number);
            }
        }
        let [stay, go] = parts;
        *self = stay;
        go
    }

    /// The entries, in the order in which they came. The memory is given back on the way.
    pub fn into_entries(self) -> impl Iterator<Item = Entry> {
        self.blocks.into_iter().flatten()
    }
}

/// Whether there should be more lines.
fn is_too_full(entries: usize, lines: usize) -> bool {
    entries * 100 > lines * LINE * FULL_PERCENT && lines < LINES_MAX
}

/// So many lines, with a slot for each entry.
fn lines_of(count: usize, blocks: &[Vec<Entry>], hash: impl Fn(&PageKey) -> u64) -> Vec<Line> {
    let mut lines = vec![Line::default(); count];
    for (number, entry) in (1..).zip(blocks.iter().flatten()) {
        place(&mut lines, hash(&entry.key), number);
    }
    lines
}

#[inline]
fn place(lines: &mut [Line], hash: u64, number: u16) {
    let mut at = home(lines.len(), hash);
    while lines[at].is_full() {
        at = (at + 1) & (lines.len() - 1);
    }
    lines[at].add(tag(hash), number);
}

#[inline]
fn home(lines: usize, hash: u64) -> usize {
    (hash >> 32) as usize & (lines - 1)
}

#[inline]
fn tag(hash: u64) -> u16 {
    (hash >> 48) as u16
}

impl Line {
    /// The number of the entry with this tag; 0 if there is none, and not one of them if there are several.
    #[inline]
    fn entry(&self, tag: u16) -> u16 {
        let of = |(slot, entry): (&u16, &u16)| if *slot == tag { *entry } else { 0 };
        self.tags.iter().zip(&self.entries).map(of).fold(0, |all, entry| all | entry)
    }

    /// Those of all entries with this tag.
    fn entries(&self, tag: u16) -> impl Iterator<Item = u16> {
        self.tags.iter().zip(&self.entries).filter(move |(slot, _)| **slot == tag).map(|(_, entry)| *entry)
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.entries[LINE - 1] != 0
    }

    /// Adds a slot; the line is not full.
    #[inline]
    fn add(&mut self, tag: u16, entry: u16) {
        let free = self.entries.iter().map(|entry| u16::from(*entry != 0)).sum::<u16>() as usize % LINE;
        self.tags[free] = tag;
        self.entries[free] = entry;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Digest, key_table::Place};

    fn entry(n: u32) -> Entry {
        Entry { key: Digest::Sha1.key_of_bytes(&n.to_le_bytes()), place: Place { pack: 0, item: n } }
    }

    /// A shard of entries 0 to `count` - 1.
    fn filled(count: u32, hash: impl Fn(&PageKey) -> u64 + Copy) -> Shard {
        let mut shard = Shard::default();
        for entry in (0..count).map(entry) {
            let of_key = hash(&entry.key);
            let line = shard.find(of_key, shard.home(of_key), &entry.key).unwrap_err();
            shard.add(of_key, line, &entry, hash);
        }
        shard
    }

    fn item(shard: &Shard, entry: &Entry, hash: impl Fn(&PageKey) -> u64) -> Option<u32> {
        let hash = hash(&entry.key);
        let number = shard.find(hash, shard.home(hash), &entry.key).ok()?;
        Some(shard.entry(number)?.place.item)
    }

    #[test]
    fn keys_are_found_although_they_share_tags_lines_or_their_whole_hash() {
        let whole = |key: &PageKey| key.words()[0];
        let hashes: [&dyn Fn(&PageKey) -> u64; 5] = [
            &whole,
            &|key| whole(key) & 0xffff_ffff_ffff,
            &|key| whole(key) >> 16 << 16 & 0x000f_ffff_ffff_ffff,
            &|key| whole(key) | 0x0000_ffff_0000_0000,
            &|_| u64::MAX,
        ];
        for (number, hash) in hashes.into_iter().enumerate() {
            let shard = filled(3_000, hash);
            for n in 0..3_000 {
                assert_eq!(item(&shard, &entry(n), hash), Some(n), "hash {number}");
                assert_eq!(item(&shard, &entry(n + 3_000), hash), None, "hash {number}");
            }
        }
    }

    #[test]
    fn a_shard_holds_as_many_as_it_says_and_both_parts_of_a_split_one_are_whole() {
        let (count, hash) = (ENTRIES_MAX as u32, |key: &PageKey| key.words()[1]);
        let mut shard = filled(count, hash);
        assert_eq!(shard.lines.len(), LINES_MAX);
        assert!((0..count).all(|n| item(&shard, &entry(n), hash) == Some(n)));
        let go = shard.split(hash, |hash| hash & 1 != 0);
        for (n, entry) in (0..count).map(|n| (n, entry(n))) {
            let (here, there) = if hash(&entry.key) & 1 == 0 { (&shard, &go) } else { (&go, &shard) };
            assert_eq!((item(here, &entry, hash), item(there, &entry, hash)), (Some(n), None));
        }
    }
}
