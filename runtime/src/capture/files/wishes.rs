//! Which files are to be captured.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ckpt_wire::{Control, FILES_MAX_BYTES_DEFAULT, FILES_NONE};

use crate::rights::Rights;

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
