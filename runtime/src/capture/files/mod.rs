//! The content of files as of the moment of the stop: of those that the program may write to, of deleted ones that it still has
//! open, and of directories that its user names.
//!
//! No clone freezes a file. What has not changed since the last checkpoint, by all that the file system says of it, is not read
//! again; the rest is copied while the program stands still, and written into the store when it runs again. Where it stays
//! stopped anyway, nothing is copied.

mod choice;
mod hold;
mod store;
mod trees;

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ckpt_store::PageList;
use ckpt_wire::{Control, FILES_MAX_BYTES_DEFAULT, FILES_NONE};

use crate::file_stamp::FileStamp;
use crate::image::CapturedFile;
use crate::rights::Rights;
use hold::Content;

pub use choice::hold;
pub use store::store;

/// What is remembered of the files of the last sealed checkpoint, by device and inode.
pub type Known = HashMap<(u64, u64), KnownFile>;

/// What a file held at the last sealed checkpoint.
#[derive(Clone, Debug)]
pub struct KnownFile {
    stamp: FileStamp,
    content: PageList,
}

/// Which files are to be captured, as the program's user wishes.
#[derive(Clone, Debug)]
pub struct Wishes {
    /// The largest file that is captured because the program may write to it, bytes; none if there is no number.
    pub max_bytes: Option<u64>,
    /// Directories to be captured with all that is in them, and with whose rights: none are those of whoever asks.
    pub trees: Vec<(PathBuf, Option<Rights>)>,
    /// The store: it is part of no directory, and has room for copies.
    pub store: PathBuf,
}

impl Wishes {
    /// Those in the control block of process `pid`, and further directories.
    pub fn of(pid: i32, control: &Control, with_dirs: &[PathBuf]) -> Wishes {
        let rights = Rights::of_process(pid).ok();
        let path = |bytes: &[u8]| Path::new(OsStr::from_bytes(bytes)).to_owned();
        let named = ckpt_wire::text(&control.with_dirs).split(|&byte| byte == b':').filter(|path| !path.is_empty());
        Wishes {
            max_bytes: match control.files_max_bytes {
                0 => Some(FILES_MAX_BYTES_DEFAULT),
                FILES_NONE => None,
                bytes => Some(bytes),
            },
            trees: named
                .map(|named| (path(named), rights.clone()))
                .chain(with_dirs.iter().map(|named| (named.clone(), None)))
                .collect(),
            store: path(ckpt_wire::text(&control.dir)),
        }
    }
}

/// Files that hold still, and are not in the store yet.
#[derive(Debug, Default)]
pub struct HeldFiles {
    /// Those with a path. Of regular files the content is missing in the record.
    captured: Vec<(CapturedFile, Option<Held>)>,
    /// Their paths.
    paths: HashSet<Vec<u8>>,
    /// The directories that are there with all that is in them.
    trees: Vec<PathBuf>,
    /// The content of the job's unlinked files, in their order.
    unlinked: Vec<Held>,
}

/// The content of a regular file that holds still.
#[derive(Debug)]
struct Held {
    bytes: u64,
    content: Content,
    /// How it can be told that it has not changed, if it can.
    stamp: Option<FileStamp>,
}

impl HeldFiles {
    /// Bytes that are still to be read, at most.
    pub fn bytes_to_read(&self) -> u64 {
        let captured = self.captured.iter().filter_map(|(_, held)| held.as_ref());
        captured.chain(&self.unlinked).map(Held::bytes_to_read).sum()
    }
}

impl Held {
    fn bytes_to_read(&self) -> u64 {
        match self.content {
            Content::Known(_) => 0,
            _ => self.bytes,
        }
    }
}
