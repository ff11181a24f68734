//! Reading pages and page lists: every page is proved before it is given out, by its whole key or against damage.
//!
//! Pages are read in the order in which they lie in the packs: neighbours with one read, a compressed run once for all
//! its pages, and such pieces on all cores. What is asked for is gone through in windows, so memory stays bounded.

use std::{cell::Cell, collections::BTreeSet, iter, ops::Range, result, slice, sync::RwLockReadGuard};

use rayon::prelude::*;

use super::{Shared, Store};
use crate::{
    PAGE_BYTES, PageKey, PageList, PageListRef, Result, StoreError,
    codec::{self, Codec},
    digest::{GROUP_PAGES, Page},
    files::{Input, PACKS},
    format::pack::Run,
    key_table::Place,
    pack::run_and_page,
    page_list::stored,
    threads,
};
use crate::{files::PackName, format::fields::check, index::Index};

/// Pages looked up and sorted at once: 64 MiB.
const WINDOW_PAGES: usize = 1 << 14;
/// Packs that can be held open: a process has 1024 descriptors by default.
const HELD_PACKS_MAX: usize = 512;
/// Raw pages read with one call: 256 KiB, which stay in the core's own cache until they have been proved and taken.
const PIECE_PAGES: usize = 64;

/// What lies so near is read ahead with what lies before it.
const NEAR_BYTES: u64 = 64 << 10;

thread_local! {
    /// Where a thread reads to: memory that it has touched before costs no page faults.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A page that is asked for, where it lies, and where it goes.
struct Wanted<T> {
    place: Place,
    pack: PackName,
    run: Run,
    key: PageKey,
    to: T,
}

impl<T> Wanted<T> {
    /// What has to be read of the pack for it.
    fn bytes(&self) -> Range<u64> {
        match self.run.codec {
            Codec::Raw => self.offset()..self.offset() + PAGE_BYTES as u64,
            _ => self.run.offset..self.run.offset + u64::from(self.run.stored_bytes),
        }
    }

    /// Where a raw page lies in its pack.
    fn offset(&self) -> u64 {
        self.run.offset + (run_and_page(self.place.item).1 * PAGE_BYTES) as u64
    }

    /// Whether `next`, the next one in order of place, is had with the same read.
    fn is_read_with(&self, next: &Self) -> bool {
        let same_run = run_and_page(self.place.item).0 == run_and_page(next.place.item).0;
        let both_raw = self.run.codec == Codec::Raw && next.run.codec == Codec::Raw;
        let near = if both_raw { next.offset() <= self.offset() + PAGE_BYTES as u64 } else { same_run };
        self.place.pack == next.place.pack && near
    }
}

/// Where keys lie, in their order.
type Places = Vec<Option<Place>>;
/// Finds them in an index.
type Find = fn(&Index, &[PageKey]) -> Places;

/// What of a page is proved.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Proof {
    /// That it has its key.
    WholeKey,
    /// That it has not been damaged: see [`crate::Digest::is_surely_whole`].
    NoDamage,
}

/// Why pages were not taken.
enum Untaken<E> {
    Store(StoreError),
    Taker(E),
}

impl<E> From<StoreError> for Untaken<E> {
    fn from(error: StoreError) -> Self {
        Untaken::Store(error)
    }
}

impl Store {
    /// Fills `out` with the pages of `keys`, in that order, each of which has been proved by all digests of its key.
    pub fn read_pages(&self, keys: &[PageKey], out: &mut [u8]) -> Result<()> {
        if out.len() != keys.len() * PAGE_BYTES {
            let (expected, found) = ((keys.len() * PAGE_BYTES) as u64, out.len() as u64);
            return Err(StoreError::WrongLength { what: "the room for the pages", expected, found });
        }
        for (keys, out) in keys.chunks(WINDOW_PAGES).zip(out.chunks_mut(WINDOW_PAGES * PAGE_BYTES)) {
            self.shared.read_again(|| self.shared.read_window(keys, out))?;
        }
        Ok(())
    }

    /// Gives each page of `keys` to `take`, on all cores, in any order: the number of the first key, and the pages of as many
    /// keys as lie one behind the other. It is given them where they were read to, while they are in the core's own cache.
    /// Pages of zeros are left out. Each has been proved not to be damaged, by 64 bits of its key.
    ///
    /// # Errors
    ///
    /// Those of `take`, and those of the store. After either, and where the store has to read once more, some pages have been
    /// given to it already.
    pub fn take_pages<E: From<StoreError> + Send>(
        &self,
        keys: &[PageKey],
        take: &(impl Fn(usize, &[u8]) -> result::Result<(), E> + Sync),
    ) -> result::Result<(), E> {
        for (number, keys) in keys.chunks(WINDOW_PAGES).enumerate() {
            let first = number * WINDOW_PAGES;
            self.shared.read_again(|| self.shared.take_window(keys, &|at, bytes| take(first + at, bytes)))??;
        }
        Ok(())
    }

    /// These pages are going to be read soon: has the kernel begin to, where the last of them is not in memory. What cannot
    /// be read is left for whoever reads it.
    pub fn will_be_read(&self, keys: &[PageKey]) {
        let last = keys.iter().rfind(|key| !key.is_zero()).map(slice::from_ref);
        let [last] = &self.shared.places_of(last.unwrap_or_default())[..] else { return };
        match self.shared.open_packs.get(&self.shared.files, last.pack) {
            Ok(input) if !input.is_at_hand(last.bytes().start) => {}
            _ => return,
        }
        let mut wanted = self.shared.places_of(keys);
        wanted.sort_unstable_by_key(|wanted| wanted.place);
        for together in wanted.chunk_by(|a, b| a.pack == b.pack && b.bytes().start <= a.bytes().end + NEAR_BYTES) {
            let Ok(input) = self.shared.open_packs.get(&self.shared.files, together[0].pack) else { return };
            let (start, end) = (together[0].bytes().start, together[together.len() - 1].bytes().end);
            input.will_be_read(start, end - start);
        }
    }

    /// Opens the packs that the pages of so many lists are in, which `list` gives, and keeps them open as long as the store is:
    /// from then on these pages can be read although their packs are removed.
    ///
    /// # Errors
    ///
    /// [`StoreError::TooManyPacks`] if there are more than a process should have open.
    pub fn hold_packs_of(&self, lists: usize, list: impl Fn(usize) -> Vec<PageKey> + Sync) -> Result<()> {
        let packs_of = |number: usize| -> Result<BTreeSet<PackName>> {
            let (index, places) = self.shared.page_places(&list(number))?;
            let mut places: Vec<Place> = places.into_iter().flatten().collect();
            places.dedup_by_key(|place| place.pack);
            Ok(places.into_iter().filter_map(|place| index.pack(place)).map(|pack| pack.name).collect())
        };
        self.shared.read_again(|| {
            let each: Result<Vec<_>> = (0..lists).into_par_iter().map(packs_of).collect();
            let packs: BTreeSet<PackName> = each?.into_iter().flatten().collect();
            if packs.len() > HELD_PACKS_MAX {
                return Err(StoreError::TooManyPacks { packs: packs.len() as u64, most: HELD_PACKS_MAX as u64 });
            }
            packs.into_iter().try_for_each(|pack| self.shared.open_packs.hold(&self.shared.files, pack))
        })
    }

    /// The page list of `root`.
    pub fn page_list(&self, root: &PageListRef) -> Result<PageList> {
        stored::read(root, self.digest(), &|keys| self.shared.read_nodes(keys), &self.shared.damaged_list())
    }

    /// The nodes of the page list of `root`; `None` for a list of zeros.
    pub(super) fn page_list_tree(&self, root: &PageListRef) -> Result<Option<stored::Tree>> {
        stored::Tree::read(root, self.digest(), &|keys| self.shared.read_nodes(keys), &self.shared.damaged_list())
    }
}

impl Shared {
    /// Reads once more when a pack has been removed meanwhile: what a checkpoint needs of it lies elsewhere by then.
    fn read_again<T>(&self, mut read: impl FnMut() -> Result<T>) -> Result<T> {
        match read() {
            Err(error) if error.is_not_found() => {
                self.reload()?;
                read()
            }
            read => read,
        }
    }

    fn read_window(&self, keys: &[PageKey], out: &mut [u8]) -> Result<()> {
        let pages: &mut [Page] = out.as_chunks_mut().0;
        for (_, page) in keys.iter().zip(&mut *pages).filter(|(key, _)| key.is_zero()) {
            page.fill(0);
        }
        let mut wanted = self.look_up(keys, pages.iter_mut())?;
        self.each_piece(&mut wanted, Proof::WholeKey, &|wanted: &mut [Wanted<&mut Page>], places, found| {
            for (wanted, place) in wanted.iter_mut().zip(places) {
                wanted.to.copy_from_slice(&found[*place]);
            }
            Ok(())
        })
    }

    fn take_window<E: Send>(
        &self,
        keys: &[PageKey],
        take: &(impl Fn(usize, &[u8]) -> result::Result<(), E> + Sync),
    ) -> Result<result::Result<(), E>> {
        let mut wanted = self.look_up(keys, 0..)?;
        let taken = self.each_piece(&mut wanted, Proof::NoDamage, &|wanted: &mut [Wanted<usize>], places, found| {
            let numbered: Vec<_> = wanted.iter().map(|wanted| wanted.to).zip(places.iter().copied()).collect();
            for run in numbered.chunk_by(|a, b| (a.0 + 1, a.1 + 1) == *b) {
                let (number, place) = run[0];
                take(number, found[place..place + run.len()].as_flattened()).map_err(Untaken::Taker)?;
            }
            Ok(())
        });
        match taken {
            Ok(()) => Ok(Ok(())),
            Err(Untaken::Taker(error)) => Ok(Err(error)),
            Err(Untaken::Store(error)) => Err(error),
        }
    }

    /// Has all of `wanted` read and proved in pieces, on all cores, and given to `take`: with the place of each among the
    /// pages that were read.
    fn each_piece<T: Send, E: From<StoreError> + Send>(
        &self,
        wanted: &mut [Wanted<T>],
        proof: Proof,
        take: &(impl Fn(&mut [Wanted<T>], &[usize], &[Page]) -> result::Result<(), E> + Sync),
    ) -> result::Result<(), E> {
        wanted.sort_unstable_by_key(|wanted| wanted.place);
        let together = wanted.chunk_by_mut(|a, b| a.is_read_with(b));
        let mut pieces: Vec<_> = together.flat_map(|group| group.chunks_mut(PIECE_PAGES)).collect();
        let read = |piece: &mut &mut [Wanted<T>]| {
            let mut scratch = SCRATCH.take();
            let read = self.read_piece(&mut scratch, piece, proof, take);
            SCRATCH.set(scratch);
            read
        };
        if let [piece] = &mut pieces[..] {
            return read(piece);
        }
        threads::on_late_ones(|| pieces.par_iter_mut().try_for_each(read))
    }

    /// Where the pages of `keys` lie that are not zero; `to` is where each of all goes.
    fn look_up<T>(&self, keys: &[PageKey], to: impl Iterator<Item = T>) -> Result<Vec<Wanted<T>>> {
        let (index, places) = self.page_places(keys)?;
        let mut wanted = Vec::with_capacity(keys.len());
        for ((key, place), to) in keys.iter().zip(places).zip(to).filter(|((key, _), _)| !key.is_zero()) {
            let found = place.and_then(|place| Some((place, index.pack(place)?)));
            let (place, pack) =
                found.ok_or_else(|| index.missing(&self.files, &self.header.store_id, "a page", key))?;
            wanted.push(Wanted { place, pack: pack.name, run: pack.runs[run_and_page(place.item).0], key: *key, to });
        }
        Ok(wanted)
    }

    fn page_places(&self, keys: &[PageKey]) -> Result<(RwLockReadGuard<'_, Index>, Places)> {
        self.places(keys, "a page", |index, keys| index.find_pages(keys).collect())
    }

    /// The pages of `keys` that are found at once.
    fn places_of(&self, keys: &[PageKey]) -> Vec<Wanted<()>> {
        self.look_up(keys, iter::repeat(())).unwrap_or_default()
    }

    /// Where `keys` lie, and the index that says so: loaded again if one that is not zero is not in it as it is.
    fn places(&self, keys: &[PageKey], what: &'static str, find: Find) -> Result<(RwLockReadGuard<'_, Index>, Places)> {
        let find = |index: &Index| {
            let places = find(index, keys);
            let missing = keys.iter().zip(&places).find(|(key, place)| place.is_none() && !key.is_zero());
            missing.map_or(Ok(()), |(key, _)| Err(*key)).map(|()| places)
        };
        let index = self.index();
        if let Ok(places) = find(&index) {
            return Ok((index, places));
        }
        drop(index);
        self.refresh()?;
        let index = self.index();
        match find(&index) {
            Ok(places) => Ok((index, places)),
            Err(key) => Err(index.missing(&self.files, &self.header.store_id, what, &key)),
        }
    }

    fn read_piece<T, E: From<StoreError>>(
        &self,
        scratch: &mut Vec<u8>,
        piece: &mut [Wanted<T>],
        proof: Proof,
        take: &impl Fn(&mut [Wanted<T>], &[usize], &[Page]) -> result::Result<(), E>,
    ) -> result::Result<(), E> {
        let (first, last) = (&piece[0], &piece[piece.len() - 1]);
        let input = self.open_packs.get(&self.files, first.pack)?;
        let compressed = first.run.codec != Codec::Raw;
        let start = if compressed {
            read_run(&input, &first.run, self.store_key.is_some(), scratch)?;
            0
        } else {
            let start = first.offset();
            let bytes = (last.offset() - start) as usize + PAGE_BYTES;
            if scratch.len() < bytes {
                scratch.resize(bytes, 0);
            }
            input.read_into(start, &mut scratch[..bytes])?;
            start
        };
        let (found, _) = scratch.as_chunks();
        for group in piece.chunks_mut(GROUP_PAGES) {
            let place = |wanted: &Wanted<T>| match compressed {
                true => run_and_page(wanted.place.item).1,
                false => (wanted.offset() - start) as usize / PAGE_BYTES,
            };
            let places: Vec<usize> = group.iter().map(place).collect();
            let pages: Vec<&Page> = places.iter().map(|place| &found[*place]).collect();
            self.prove(proof, &input, group, &pages)?;
            take(group, &places, found)?;
        }
        Ok(())
    }

    /// Refuses pages that are not the ones asked for.
    fn prove<T>(&self, proof: Proof, input: &Input, group: &[Wanted<T>], pages: &[&Page]) -> Result<()> {
        let digest = self.header.digest;
        // The frames that it was read from have been proved, and what says that it lies there.
        if proof == Proof::NoDamage && self.store_key.is_some() {
            return Ok(());
        }
        let is_whole = |(wanted, page): (&Wanted<T>, &&Page)| digest.is_surely_whole(page, &wanted.key);
        if proof == Proof::NoDamage && group.iter().zip(pages).all(is_whole) {
            return Ok(());
        }
        for (wanted, found) in group.iter().zip(digest.keys_of_each(pages)) {
            if found != wanted.key {
                let (expected, found) = (format!("{:?}", wanted.key), format!("{found:?}"));
                return Err(input.corrupt(wanted.run.offset, "a page's digests", expected, found));
            }
        }
        Ok(())
    }

    /// Makes the error for a node that is not what its place in a page list asks for.
    pub(super) fn damaged_list(&self) -> impl Fn(&PageKey, String) -> StoreError {
        |key, found| StoreError::Corrupt {
            path: self.files.path(PACKS),
            offset: 0,
            what: "a page list",
            expected: format!("node {}", key.hex()),
            found,
        }
    }

    /// The bytes of nodes, proved by their digests.
    pub(super) fn read_nodes(&self, keys: &[PageKey]) -> Result<Vec<Vec<u8>>> {
        drop(self.places(keys, "a node of a page list", |index, keys| index.find_nodes(keys).collect())?);
        self.read_again(|| keys.par_iter().map(|key| self.read_node(key)).collect())
    }

    fn read_node(&self, key: &PageKey) -> Result<Vec<u8>> {
        let (name, node) = {
            let index = self.index();
            let missing = || index.missing(&self.files, &self.header.store_id, "a node of a page list", key);
            let place = index.node(key).ok_or_else(missing)?;
            let pack = index.pack(place).ok_or_else(missing)?;
            (pack.name, pack.nodes[place.item as usize])
        };
        let input = self.open_packs.get(&self.files, name)?;
        let bytes = input.read(node.offset, node.bytes.into())?;
        let found = self.header.digest.key_of_bytes(&bytes);
        if found != *key {
            return Err(input.corrupt(node.offset, "a node's digests", format!("{key:?}"), format!("{found:?}")));
        }
        Ok(bytes)
    }
}

/// Decodes a compressed run into `scratch`. Of an encrypted store it has been proved already.
fn read_run(input: &Input, run: &Run, is_encrypted: bool, scratch: &mut Vec<u8>) -> Result<()> {
    let stored = input.read(run.offset, run.stored_bytes.into())?;
    if !is_encrypted {
        check(input, run.offset, "a page run's checksum", run.crc, &stored)?;
    }
    scratch.resize(usize::from(run.pages) * PAGE_BYTES, 0);
    let decoded = codec::decode(run.codec, &stored, scratch);
    decoded.map_err(|found| input.corrupt(run.offset, "a compressed page run", format!("{} pages", run.pages), found))
}
