//! What begins at an address, in the order of addresses: records, and what libckpt.so has backed.
//!
//! Sorted leaves of one page each under one sorted directory: a change moves at most a leaf and now and then the
//! directory, which stays in the cache for a hundred thousand allocations. Nothing is allocated from a heap: leaves and
//! directory are mapped, and empty leaves are used again.

use crate::sys;

/// An address, and what is known of what begins there.
type Entry<T> = (u64, *mut T);

/// Entries of a leaf.
const LEAF_ENTRIES: usize = 254;
/// Leaves that there can be: 16 million allocations and more.
const LEAVES_MAX: usize = 1 << 17;

#[repr(C)]
struct Leaf<T> {
    len: usize,
    /// Of an empty leaf: the next one.
    next: *mut Leaf<T>,
    entries: [Entry<T>; LEAF_ENTRIES],
}

const _: () = assert!(size_of::<Leaf<u8>>() <= 4096);

/// The index.
pub struct Index<T> {
    /// The leaves, by the addresses in them. None is empty.
    directory: *mut *mut Leaf<T>,
    leaves: usize,
    /// Empty ones.
    spare: *mut Leaf<T>,
}

impl<T> Index<T> {
    /// An index of nothing.
    pub const fn new() -> Self {
        Self { directory: core::ptr::null_mut(), leaves: 0, spare: core::ptr::null_mut() }
    }

    /// Adds an entry, whose address is not in yet. False when there is no memory for it.
    pub fn insert(&mut self, address: u64, record: *mut T) -> bool {
        if self.leaves == 0 && !self.begin() {
            return false;
        }
        let mut at = self.leaf_of(address);
        if self.leaf(at).len == LEAF_ENTRIES {
            if !self.split(at) {
                return false;
            }
            at = self.leaf_of(address);
        }
        let leaf = self.leaf(at);
        let place = leaf.place_of(address);
        // SAFETY: there is room for one more behind the entries.
        unsafe {
            let entry = leaf.entries.as_mut_ptr().add(place);
            core::ptr::copy(entry, entry.add(1), leaf.len - place);
            entry.write((address, record));
        }
        leaf.len += 1;
        true
    }

    /// Takes the entry of an address out.
    pub fn remove(&mut self, address: u64) -> Option<*mut T> {
        if self.leaves == 0 {
            return None;
        }
        let at = self.leaf_of(address);
        let leaf = self.leaf(at);
        let place = leaf.place_of(address);
        let &(found, record) = leaf.entries().get(place)?;
        if found != address {
            return None;
        }
        // SAFETY: `place` is one of the entries.
        unsafe {
            let entry = leaf.entries.as_mut_ptr().add(place);
            core::ptr::copy(entry.add(1), entry, leaf.len - place - 1);
        }
        leaf.len -= 1;
        if leaf.len == 0 {
            self.take_leaf_out(at);
        }
        Some(record)
    }

    /// The first entry whose address is at least `address`.
    pub fn first_from(&mut self, address: u64) -> Option<Entry<T>> {
        if self.leaves == 0 {
            return None;
        }
        let at = self.leaf_of(address);
        let leaf = self.leaf(at);
        let place = leaf.place_of(address);
        if let Some(&entry) = leaf.entries().get(place) {
            return Some(entry);
        }
        (at + 1 < self.leaves).then(|| self.leaf(at + 1).entries().first().copied())?
    }

    /// The last entry whose address is at most `address`.
    pub fn last_to(&mut self, address: u64) -> Option<Entry<T>> {
        if self.leaves == 0 {
            return None;
        }
        let at = self.leaf_of(address);
        let entries = self.leaf(at).entries();
        let count = entries.partition_point(|&(start, _)| start <= address);
        entries.get(count.checked_sub(1)?).copied()
    }

    fn begin(&mut self) -> bool {
        if self.directory.is_null() {
            let Ok(directory) = sys::map_zeros(LEAVES_MAX * size_of::<*mut Leaf<T>>()) else { return false };
            self.directory = directory.cast();
        }
        let Some(leaf) = self.new_leaf() else { return false };
        // SAFETY: the first place of the directory.
        unsafe { self.directory.write(leaf) };
        self.leaves = 1;
        true
    }

    /// The number of the leaf that an address is in, or belongs in.
    fn leaf_of(&self, address: u64) -> usize {
        // SAFETY: the first `leaves` places of the directory are leaves.
        let leaves = unsafe { core::slice::from_raw_parts(self.directory, self.leaves) };
        // SAFETY: leaves are live, and none is empty but a first one.
        let behind =
            leaves.partition_point(|&leaf| unsafe { (*leaf).entries().first() }.is_some_and(|it| it.0 <= address));
        behind.saturating_sub(1)
    }

    /// Leaf number `at`, which there must be.
    fn leaf(&mut self, at: usize) -> &mut Leaf<T> {
        // SAFETY: the caller's word; the leaf is live, and ours alone.
        unsafe { &mut **self.directory.add(at) }
    }

    /// Moves the second half of a full leaf into a new one behind it.
    fn split(&mut self, at: usize) -> bool {
        const HALF: usize = LEAF_ENTRIES / 2;
        if self.leaves == LEAVES_MAX {
            return false;
        }
        let Some(new) = self.new_leaf() else { return false };
        let old = self.leaf(at);
        // SAFETY: both leaves have room for all entries, and are two.
        unsafe {
            core::ptr::copy_nonoverlapping(
                old.entries.as_ptr().add(HALF),
                (*new).entries.as_mut_ptr(),
                LEAF_ENTRIES - HALF,
            );
            (*new).len = LEAF_ENTRIES - HALF;
        }
        old.len = HALF;
        // SAFETY: the directory has room for one more.
        unsafe {
            let place = self.directory.add(at + 1);
            core::ptr::copy(place, place.add(1), self.leaves - at - 1);
            place.write(new);
        }
        self.leaves += 1;
        true
    }

    fn take_leaf_out(&mut self, at: usize) {
        // SAFETY: `at` is one of the leaves.
        unsafe {
            let place = self.directory.add(at);
            let leaf = place.read();
            core::ptr::copy(place.add(1), place, self.leaves - at - 1);
            (*leaf).next = self.spare;
            self.spare = leaf;
        }
        self.leaves -= 1;
    }

    fn new_leaf(&mut self) -> Option<*mut Leaf<T>> {
        if self.spare.is_null() {
            return sys::map_zeros(size_of::<Leaf<T>>()).ok().map(<*mut u8>::cast);
        }
        let leaf = self.spare;
        // SAFETY: spare leaves are live, and ours alone.
        self.spare = unsafe { (*leaf).next };
        Some(leaf)
    }
}

impl<T> Leaf<T> {
    fn entries(&self) -> &[Entry<T>] {
        self.entries.get(..self.len).unwrap_or_default()
    }

    /// How many entries have lower addresses.
    fn place_of(&self, address: u64) -> usize {
        self.entries().partition_point(|&(start, _)| start < address)
    }
}
