//! Deciding which pages must be read, given what the page tables say and what the last checkpoint holds.
//!
//! A page keeps its digest from the last checkpoint only if the kernel vouches that it has not changed: the
//! mapping was tracked all the time and the page is still protected, or it was the file's then and is the file's
//! now and the file is the same. Everything else that exists is read; what does not exist is zero.

use std::collections::BTreeMap;

use ckpt_store::PageList;

use super::regions::Draft;
use super::tracking::Census;
use crate::file_stamp::FileStamp;
use crate::image::Backing;
use crate::mapped_files::StoredFiles;
use crate::page_set::PageSet;

const PAGE: u64 = ckpt_store::PAGE_BYTES as u64;

/// What the last sealed checkpoint says about one region.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its content.
    pub list: PageList,
    /// Length in pages.
    pub pages: u64,
    /// Pages that were the process's own (see [`Census::own`]).
    pub own: PageSet,
    /// The file it was mapped from, and where.
    pub file: Option<(FileStamp, u64)>,
    /// Pages of that file that `list` has not: they are being stored behind the seal.
    pub pending: PageSet,
}

impl Known {
    /// Takes in what has been stored of its file, if that is all which is pending.
    pub fn know_stored(&mut self, files: &StoredFiles) {
        let Some((stamp, offset)) = self.file else { return };
        let first = offset / PAGE;
        let Some(file) = files.get(&stamp).filter(|_| !self.pending.is_empty()) else { return };
        if self.pending.clone().shifted(first).difference(&file.pages).is_empty() {
            let pending = std::mem::take(&mut self.pending);
            pending.ranges().flatten().for_each(|page| self.list.set(page, file.list.get(first + page)));
        }
    }
}

/// The regions of the last sealed checkpoint by their first address.
pub type Base = BTreeMap<u64, Known>;

/// What is to be done for one region. Pages are counted from its start.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Pages that are what the last checkpoint has.
    pub keep: PageSet,
    /// Pages to read.
    pub read: PageSet,
    /// Pages that are the file's, to be stored behind the seal.
    pub later: PageSet,
}

impl Plan {
    /// The content as far as it is known already, of what the last checkpoint says about the region.
    pub fn list(&self, known: Option<Known>) -> PageList {
        let Some(Known { mut list, pages, .. }) = known.filter(|_| !self.keep.is_empty()) else {
            return PageList::new();
        };
        for range in PageSet::of(0..pages).difference(&self.keep).ranges() {
            list.clear_run(range.start, range.end - range.start);
        }
        list
    }
}

/// Plans the capture of `draft`. Where its file is held open, what is the file's and not stored yet can wait until the seal.
pub fn plan(draft: &Draft, census: &Census, base: &Base, is_held: bool) -> Plan {
    if draft.advice.wipe_on_fork || draft.advice.droppable {
        // The program has asked for these pages to vanish in copies of itself.
        return Plan::default();
    }
    let known = base.get(&draft.mapping.start);
    match &draft.backing {
        Backing::Anonymous => anonymous(census, known),
        Backing::PrivateFile(_) => private_file(draft, census, known, is_held),
        Backing::SharedFile { may_write: false, .. } => {
            let all = readable(draft);
            let keep = match known {
                Some(known) if same_file(draft, known) => {
                    all.intersection(&PageSet::of(0..known.pages)).difference(&known.pending)
                }
                _ => PageSet::default(),
            };
            of_file(&all, keep, &PageSet::default(), is_held)
        }
        Backing::SharedFile { .. } | Backing::SharedObject { .. } => whole(readable(draft)),
    }
}

fn anonymous(census: &Census, known: Option<&Known>) -> Plan {
    match (known, &census.written) {
        (Some(known), Some(written)) => {
            let keep = census.present.intersection(&PageSet::of(0..known.pages)).difference(written);
            Plan { read: census.present.difference(&keep), keep, ..Plan::default() }
        }
        _ => whole(census.present.clone()),
    }
}

fn private_file(draft: &Draft, census: &Census, known: Option<&Known>, is_held: bool) -> Plan {
    // Behind a guard there is nothing to be read.
    let all = readable(draft).union(&census.own).difference(&census.guards);
    let keep = known.map_or(PageSet::default(), |known| kept_of_private_file(draft, census, known, &all));
    of_file(&all, keep, &census.own, is_held)
}

/// What is not kept of `all` is read, or waits if it is the file's.
fn of_file(all: &PageSet, keep: PageSet, own: &PageSet, is_held: bool) -> Plan {
    let rest = all.difference(&keep);
    let later = if is_held { rest.difference(own) } else { PageSet::default() };
    Plan { read: rest.difference(&later), keep, later }
}

fn kept_of_private_file(draft: &Draft, census: &Census, known: &Known, all: &PageSet) -> PageSet {
    let mut keep = PageSet::default();
    if let Some(written) = &census.written {
        keep = census.own.intersection(&known.own).difference(written);
    }
    if same_file(draft, known) {
        let files_now_and_then = all.difference(&census.own).difference(&known.own).difference(&known.pending);
        keep = keep.union(&files_now_and_then.intersection(&PageSet::of(0..known.pages)));
    }
    keep
}

fn same_file(draft: &Draft, known: &Known) -> bool {
    draft.file.is_some_and(|stamp| known.file == Some((stamp, draft.mapping.offset)))
}

/// All pages of a region are to be read.
fn whole(read: PageSet) -> Plan {
    Plan { read, ..Plan::default() }
}

/// The pages of a mapping of a file that lie within the file, and of these those that hold anything, where that is known; reading
/// behind its end is a bus error.
fn readable(draft: &Draft) -> PageSet {
    let pages = draft.mapping.bytes() / PAGE;
    let all = match draft.file {
        Some(stamp) => PageSet::of(0..stamp.bytes.saturating_sub(draft.mapping.offset).div_ceil(PAGE).min(pages)),
        None => PageSet::of(0..pages),
    };
    draft.data.as_ref().map_or(all.clone(), |data| all.intersection(data))
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "a set of one run")]
mod tests {
    use super::*;
    use crate::image::FileIdentity;
    use crate::proc::maps::Mapping;
    use ckpt_store::PageKey;

    fn set(ranges: &[std::ops::Range<u64>]) -> PageSet {
        let mut set = PageSet::default();
        ranges.iter().for_each(|range| set.push(range.clone()));
        set
    }

    fn draft(backing: Backing, file: Option<FileStamp>) -> Draft {
        let mapping = Mapping { start: 0x1000, end: 0x1000 + 10 * PAGE, ..Mapping::default() };
        Draft { file, ..Draft::new(mapping, backing) }
    }

    fn key(fill: u8) -> PageKey {
        PageKey::from_bytes([fill; 28])
    }

    fn base(own: PageSet, file: Option<(FileStamp, u64)>) -> Base {
        let mut list = PageList::new();
        (0..10).for_each(|page| list.set(page, key(page as u8 + 1)));
        Base::from([(0x1000, Known { list, pages: 10, own, file, pending: PageSet::default() })])
    }

    /// A file of eight pages.
    fn file() -> (FileStamp, FileIdentity) {
        let stamp = FileStamp { device: 1, inode: 2, bytes: 8 * PAGE, modified_ns: 3, changed_ns: 3 };
        let identity = FileIdentity {
            times: None,
            path: b"/x".to_vec(),
            deleted: false,
            device: (0, 0),
            inode: 2,
            size: stamp.bytes,
            mode: 0o644,
            offset: 0,
        };
        (stamp, identity)
    }

    #[test]
    fn an_unknown_region_is_read_where_it_has_pages() {
        let census = Census { present: set(&[2..4]), own: set(&[2..4]), written: None, ..Census::default() };
        let plan = plan(&draft(Backing::Anonymous, None), &census, &Base::new(), false);
        assert_eq!(plan.read, set(&[2..4]));
    }

    #[test]
    fn a_tracked_region_is_read_where_it_was_written_and_zero_where_it_vanished() {
        let present = set(&[0..3, 5..10]);
        let census =
            Census { present: present.clone(), own: present, written: Some(set(&[1..2, 9..10])), ..Census::default() };
        let mut base = base(set(&[0..10]), None);
        let plan = plan(&draft(Backing::Anonymous, None), &census, &base, false);
        assert_eq!(plan.read, set(&[1..2, 9..10]));
        let list = plan.list(base.remove(&0x1000));
        assert_eq!(list.get(0), key(1));
        assert_eq!(list.get(5), key(6));
        assert!([1, 3, 4, 9].iter().all(|page| list.get(*page).is_zero()));
    }

    #[test]
    fn a_region_that_is_not_tracked_is_read_whole_although_it_is_known() {
        let census = Census { present: set(&[0..10]), own: set(&[0..10]), written: None, ..Census::default() };
        let plan = plan(&draft(Backing::Anonymous, None), &census, &base(set(&[0..10]), None), false);
        assert_eq!(plan.read, set(&[0..10]));
    }

    #[test]
    fn pages_of_a_file_are_kept_only_while_the_file_is_the_same() {
        let (stamp, identity) = file();
        let draft = draft(Backing::PrivateFile(identity), Some(stamp));
        // Page 0: own and unwritten; 1: own and written; 2: own before, the file's now; 3..8: the file's.
        let census =
            Census { present: set(&[0..4]), own: set(&[0..2]), written: Some(set(&[1..2])), ..Census::default() };
        let same = plan(&draft, &census, &base(set(&[0..3]), Some((stamp, 0))), false);
        assert_eq!(same.read, set(&[1..3]));
        let touched = FileStamp { modified_ns: 4, ..stamp };
        let changed = plan(&draft, &census, &base(set(&[0..3]), Some((touched, 0))), false);
        assert_eq!(changed.read, set(&[1..8]));
    }

    #[test]
    fn pages_of_a_file_that_is_held_wait_until_the_seal() {
        let (stamp, identity) = file();
        let private = draft(Backing::PrivateFile(identity.clone()), Some(stamp));
        let shared = draft(Backing::SharedFile { file: identity, may_write: false }, Some(stamp));
        let census = Census { present: set(&[0..4]), own: set(&[0..2]), written: None, ..Census::default() };
        let first = plan(&private, &census, &Base::new(), true);
        assert_eq!((first.read, first.later), (set(&[0..2]), set(&[2..8])));
        assert_eq!(plan(&shared, &Census::default(), &Base::new(), true).later, set(&[0..8]));
        // The next checkpoint, while two pages are still on their way: they are not taken for known.
        let mut base = base(set(&[0..2]), Some((stamp, 0)));
        base.get_mut(&0x1000).unwrap().pending = set(&[3..5]);
        for draft in [&private, &shared] {
            let held = plan(draft, &census, &base, true);
            assert_eq!(held.later, set(&[3..5]), "{:?}", draft.backing);
            assert!(!held.keep.contains(3) && held.keep.contains(5));
            assert!(plan(draft, &census, &base, false).read.contains(4), "a file that is not held is read");
        }
    }
}
