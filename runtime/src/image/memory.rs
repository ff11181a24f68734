//! Mappings and what is behind them.

use std::fs::Metadata;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;

use ckpt_store::{PAGE_BYTES, PageListRef};
use serde::{Deserialize, Serialize};

use crate::file_stamp::{FileStamp, FileTimes};

/// Access rights of a mapping, `PROT_*` bits.
pub type Protection = i32;

/// A mapping.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Region {
    /// First address.
    pub address: u64,
    /// Length, a multiple of the page size.
    pub bytes: u64,
    /// `PROT_READ | PROT_WRITE | PROT_EXEC` as in force.
    pub protection: Protection,
    /// What is behind it.
    pub backing: Backing,
    /// Lasting advice and mapping flags.
    pub advice: Advice,
    /// Name for people: `[heap]`, `[stack]`, `[anon:...]`, a path, or empty.
    #[serde(with = "serde_bytes")]
    pub name: Vec<u8>,
    /// Content of all its pages.
    pub pages: PageListRef,
    /// For a private file mapping: the pages that are the program's own copies, ascending. All others were the
    /// file's at the time of the checkpoint.
    pub own_pages: Vec<PageRange>,
    /// For a private mapping of a file that no path leads to, if the job can still write it: its index in `Objects::memory`.
    #[serde(default)]
    pub follows: Option<u32>,
    /// Pages that are not there, and that nobody may touch (`MADV_GUARD_INSTALL`), ascending. In memory that is shared, `pages` has what is behind them.
    #[serde(default)]
    pub guards: Vec<PageRange>,
    /// Pages of its file that are not in `pages` yet. None in a checkpoint that is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<Pending>,
    /// Whether the content is in `ProcessImage::differences`, which know the region by its blocks; `pages` is empty then.
    #[serde(default)]
    pub in_differences: bool,
}

/// Pages of a mapping that were its file's at the checkpoint, and that are stored behind the seal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    /// Which, ascending.
    pub pages: Vec<PageRange>,
    /// The file that has them, as it was.
    pub file: FileStamp,
}

impl Pending {
    /// Bytes of all of them.
    pub fn bytes(&self) -> u64 {
        self.pages.iter().map(|range| range.count).sum::<u64>() * PAGE_BYTES as u64
    }
}

/// Bytes of a block but the first and last of a region.
const BLOCK_BYTES: u64 = 64 << 20;

impl Region {
    /// The addresses of the region's blocks: see [`blocks`].
    pub fn blocks(&self) -> impl Iterator<Item = Range<u64>> + use<> {
        blocks(self.address, self.bytes)
    }
}

/// The blocks that differences know a mapping by, each by its first address. They begin at multiples of a fixed length,
/// so that one which grows at either end, is joined with a neighbour or loses a part keeps most of them.
pub fn blocks(address: u64, bytes: u64) -> impl Iterator<Item = Range<u64>> + use<> {
    let (mut at, end) = (address, address.saturating_add(bytes));
    std::iter::from_fn(move || {
        let block = at..end.min((at / BLOCK_BYTES + 1) * BLOCK_BYTES);
        at = block.end;
        (!block.is_empty()).then_some(block)
    })
}

/// A difference of the Merkle engine (kernels/FORMAT.md): its head, zeros up to the next page, its data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredDifference {
    /// All of it.
    pub pages: PageListRef,
    /// Bytes of the head.
    pub head_bytes: u64,
}

/// Pages `first .. first + count` of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageRange {
    /// First page, counted from the region's start.
    pub first: u64,
    /// How many.
    pub count: u64,
}

/// What is behind a mapping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backing {
    /// Private anonymous memory.
    Anonymous,
    /// A private mapping of a file.
    PrivateFile(FileIdentity),
    /// A shared mapping of a file that has a path.
    SharedFile {
        /// The file.
        file: FileIdentity,
        /// Whether the mapping could be made writable, that is, the file was open for writing.
        may_write: bool,
    },
    /// A shared mapping of an object without a path (`MAP_SHARED | MAP_ANONYMOUS`, memfd, an unlinked file).
    SharedObject {
        /// Index into `Objects::memory`.
        object: u32,
        /// Offset of the region in the object, bytes.
        offset: u64,
    },
}

/// Which file, and which part of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileIdentity {
    /// Its path.
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    /// Whether the path no longer led to it at the checkpoint (" (deleted)").
    pub deleted: bool,
    /// Device (major, minor).
    pub device: (u32, u32),
    /// Inode number.
    pub inode: u64,
    /// Size in bytes at the checkpoint.
    pub size: u64,
    /// Permission bits at the checkpoint.
    pub mode: u32,
    /// Offset of the region's first byte in the file.
    pub offset: u64,
    /// Its times at the checkpoint. None for a file that no path leads to, or that had just been changed: the next change could go
    /// unseen then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<FileTimes>,
}

impl FileIdentity {
    /// Whether the file that its path leads to is this one, unchanged, as far as its times tell.
    pub fn is_surely_that_of(&self, metadata: &Metadata) -> bool {
        let place = (self.inode, self.size) == (metadata.ino(), metadata.size());
        place && self.times.is_some_and(|times| times == FileStamp::of(metadata).times())
    }
}

/// A memory object shared by one or more regions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedObject {
    /// Name behind `/memfd:`, or empty for `MAP_SHARED | MAP_ANONYMOUS`.
    #[serde(with = "serde_bytes")]
    pub name: Vec<u8>,
    /// Bytes: the end of the highest region that maps it.
    pub bytes: u64,
    /// Bytes of a page, if it is of huge pages; else 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub huge_page_bytes: u64,
    /// Index into `Objects::sysv_memory`, if it is System V shared memory.
    #[serde(default)]
    pub sysv: Option<u32>,
    /// Index into `Objects::files`, if it is the memory of an io_uring instance.
    #[serde(default)]
    pub ring: Option<u32>,
}

/// Flags that a region keeps (`VmFlags` of smaps).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advice {
    /// `gd`: MAP_GROWSDOWN.
    pub grows_down: bool,
    /// `nr`: MAP_NORESERVE.
    pub no_reserve: bool,
    /// `ac`: counted as committed memory, as a private mapping is once it has been writable.
    pub accounted: bool,
    /// `lo`: locked in memory.
    pub locked: bool,
    /// `lf`: each page is locked when it is touched first (MLOCK_ONFAULT).
    #[serde(default)]
    pub locked_on_fault: bool,
    /// `dc`: MADV_DONTFORK.
    pub dont_fork: bool,
    /// `wf`: MADV_WIPEONFORK.
    pub wipe_on_fork: bool,
    /// `dd`: MADV_DONTDUMP.
    pub dont_dump: bool,
    /// `hg`: MADV_HUGEPAGE.
    pub huge_page: bool,
    /// Bytes of a page where the program has asked for huge ones (`ht`: MAP_HUGETLB); else 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub huge_page_bytes: u64,
    /// `nh`: MADV_NOHUGEPAGE.
    pub no_huge_page: bool,
    /// `mg`: MADV_MERGEABLE.
    pub mergeable: bool,
    /// `sr`: MADV_SEQUENTIAL.
    pub sequential: bool,
    /// `rr`: MADV_RANDOM.
    pub random: bool,
    /// `dp`: MAP_DROPPABLE.
    pub droppable: bool,
}

fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

/// A mapping that the kernel provides: `[vdso]`, `[vvar]`, `[vvar_vclock]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpecialMapping {
    /// Its name with the brackets.
    pub name: String,
    /// First address.
    pub address: u64,
    /// Length.
    pub bytes: u64,
    /// SHA-1 of its bytes, for `[vdso]` alone: the program has pointers into its code.
    pub digest: Option<[u8; 20]>,
    /// Its bytes, for `[vdso]` alone.
    #[serde(default)]
    pub content: Option<serde_bytes::ByteBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_a_mapping_once_and_begin_at_the_same_addresses_when_it_grows() {
        let all = |address, bytes| blocks(address, bytes).collect::<Vec<_>>();
        let small = all(BLOCK_BYTES * 3 - 4096, 8192);
        assert_eq!(small, [BLOCK_BYTES * 3 - 4096..BLOCK_BYTES * 3, BLOCK_BYTES * 3..BLOCK_BYTES * 3 + 4096]);
        let (before, after) = (all(4096, BLOCK_BYTES * 3), all(BLOCK_BYTES, BLOCK_BYTES * 5));
        assert_eq!(before.iter().map(|block| block.end - block.start).sum::<u64>(), BLOCK_BYTES * 3);
        assert_eq!(before.iter().filter(|block| after.contains(block)).count(), 2);
        assert!(all(4096, 0).is_empty());
    }

    #[test]
    fn a_file_is_known_by_inode_size_and_both_times_and_not_without_times() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(9).unwrap();
        let then = file.metadata().unwrap();
        let known = FileIdentity {
            path: b"/file".to_vec(),
            deleted: false,
            device: (0, 0),
            inode: then.ino(),
            size: 9,
            mode: 0o600,
            offset: 0,
            times: Some(FileStamp::of(&then).times()),
        };
        assert!(known.is_surely_that_of(&then));
        let FileTimes { modified_ns, changed_ns } = FileStamp::of(&then).times();
        for other in [
            FileIdentity { times: None, ..known.clone() },
            FileIdentity { inode: known.inode + 1, ..known.clone() },
            FileIdentity { size: 8, ..known.clone() },
            FileIdentity { times: Some(FileTimes { modified_ns: modified_ns + 1, changed_ns }), ..known.clone() },
            FileIdentity { times: Some(FileTimes { modified_ns, changed_ns: changed_ns + 1 }), ..known.clone() },
        ] {
            assert!(!other.is_surely_that_of(&then), "{other:?}");
        }
    }
}
