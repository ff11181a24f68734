//! Files that a job has mapped, opened before its stop: what is theirs alone can be stored behind the seal.
//!
//! That is worth it for large files only. Of a program that has mapped little all is stored at once, and so is what may have changed
//! just now, what the job itself writes, what this user may not read, and what no path leads to.

use std::collections::HashMap;

use ckpt_store::{PAGE_BYTES, Sharing};
use nix::sys::resource::{Resource, getrlimit};

use super::lineage::Lineage;
use crate::file_stamp::FileStamp;
use crate::image::path_of;
use crate::mapped_files::{MappedFiles, open_regular};
use crate::proc::{DELETED, maps};

const PAGE: u64 = PAGE_BYTES as u64;
/// So many bytes of files are as well stored at once: they take a tenth of a second or two.
const WORTH_BYTES: u64 = 64 << 20;
/// Smaller files are always stored at once.
const FILE_BYTES_MIN: u64 = 256 << 10;
/// How many files are held, the largest first.
const FILES_MAX: usize = 256;

/// Opens files that processes of a job have mapped, and which have much that is not stored yet; `root` is the first process. None
/// if that is little.
pub fn open(pids: &[i32], root: i32, lineage: &mut Lineage) -> MappedFiles {
    let mut held = MappedFiles::default();
    // Others store each time what they read.
    if lineage.reuse.sharing != Sharing::WithAll {
        return held;
    }
    let mut mapped: HashMap<Vec<u8>, Vec<Mapped>> = HashMap::new();
    for &pid in pids {
        // One that has ended is found out about by whoever stops it.
        for mapping in maps::outline(pid).unwrap_or_default() {
            let is_file = mapping.inode != 0 && mapping.name.starts_with(b"/") && !mapping.name.ends_with(DELETED);
            if is_file {
                let is_written = mapping.shared && mapping.protection & libc::PROT_WRITE != 0;
                let (start, offset, bytes) = (mapping.start, mapping.offset, mapping.bytes());
                let it = Mapped { pid, start, offset, bytes, is_written };
                mapped.entry(mapping.name).or_default().push(it);
            }
        }
    }
    let all_bytes: u64 = mapped.values().flatten().map(|it| it.bytes).sum();
    if all_bytes < WORTH_BYTES {
        return held;
    }
    let mut files: Vec<(u64, FileStamp, Vec<u8>)> = Vec::new();
    for (path, places) in mapped {
        if places.iter().any(|it| it.is_written) {
            continue;
        }
        let Some(stamp) = std::fs::metadata(path_of(&path)).ok().as_ref().and_then(FileStamp::settled) else {
            continue;
        };
        let bytes: u64 = places.iter().map(|it| it.unknown_bytes(&stamp, root, lineage)).sum();
        if bytes >= FILE_BYTES_MIN {
            files.push((bytes, stamp, path));
        }
    }
    if files.iter().map(|(bytes, ..)| bytes).sum::<u64>() < WORTH_BYTES {
        return held;
    }
    files.sort_unstable_by_key(|(bytes, ..)| std::cmp::Reverse(*bytes));
    for (_, stamp, path) in files.into_iter().take(files_max()) {
        if let Some((file, _)) = open_regular(path_of(&path)).filter(|(_, metadata)| FileStamp::of(metadata) == stamp) {
            held.hold(stamp, file);
        }
    }
    held
}

/// How many files may be held: there are other things to be opened.
fn files_max() -> usize {
    let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((0, 0));
    FILES_MAX.min(soft as usize / 4)
}

/// A mapping of a file.
struct Mapped {
    pid: i32,
    start: u64,
    offset: u64,
    bytes: u64,
    /// Whether the process can write to the file through it.
    is_written: bool,
}

impl Mapped {
    /// How many bytes of it the last checkpoint has not.
    fn unknown_bytes(&self, stamp: &FileStamp, root: i32, lineage: &mut Lineage) -> u64 {
        let known = lineage.processes.known(self.pid, root).and_then(|process| process.base.get(&self.start));
        match known.filter(|known| known.file == Some((*stamp, self.offset))) {
            Some(known) => known.pending.len() * PAGE,
            None => self.bytes.min(stamp.bytes.saturating_sub(self.offset)),
        }
    }
}
