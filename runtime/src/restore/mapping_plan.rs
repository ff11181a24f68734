//! What is mapped where, and with which protection at first.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::path::PathBuf;

use super::reach::Rights;
use super::window::Window;
use crate::image::{Backing, Region};

/// What is put behind a region. `file` is an index into [`MappingPlan::files`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Fresh private memory with all the pages of the checkpoint.
    Memory,
    /// Fresh shared memory that only this region maps.
    SharedMemory,
    /// A memory object, at an offset.
    Object { file: usize, offset: u64 },
    /// The memory of an io_uring instance, at an offset.
    Ring { file: usize, offset: u64 },
    /// System V shared memory, by its index among the job's segments, at an offset.
    Sysv { segment: usize, offset: u64 },
    /// A file, privately; only the program's own pages are written.
    PrivateFile { file: usize, offset: u64 },
    /// A file, shared.
    SharedFile { file: usize, offset: u64, may_write: bool },
}

/// The decisions, and the open files behind them.
#[derive(Debug, Default)]
pub struct MappingPlan {
    /// One per region, by process.
    pub sources: Vec<Vec<Source>>,
    /// Files and memory objects to be mapped.
    pub files: Vec<File>,
    /// Index in `files` of each of the job's unlinked files.
    pub unlinked: Vec<usize>,
    /// Which of `files` are io_uring instances of the job: index among its files, and in `files`.
    pub rings: Vec<(usize, usize)>,
    /// Index in `files` of the executable of each process, for the link /proc/PID/exe.
    pub executables: Vec<Option<usize>>,
    /// Those of `files` that are of huge pages, mapped here while they are filled.
    pub of_huge_pages: HashMap<usize, Window>,
    /// System V shared memory, attached here while it is filled.
    pub segments: Vec<Window>,
    pub(super) opened: Vec<Opened>,
    pub(super) objects: Vec<Option<usize>>,
    /// Files of which it was said that their pages come from the checkpoint.
    pub(super) told: HashSet<PathBuf>,
}

/// A file that is open already.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) path: Vec<u8>,
    pub(super) to_write: bool,
    /// With whose rights.
    pub(super) rights: Vec<Rights>,
    pub(super) file: usize,
}

/// A private mapping counts as committed memory once it has been writable and written: such a one is mapped
/// writable, and loses the right in [`super::address_space::complete`], when it has its content. So is one of huge pages, which nobody can write
/// otherwise.
pub fn first_protection(region: &Region) -> i32 {
    let is_private = matches!(region.backing, Backing::Anonymous | Backing::PrivateFile(_));
    let is_writable_first = is_private && (region.advice.accounted || region.advice.huge_page_bytes > 0);
    region.protection | if is_writable_first { libc::PROT_WRITE } else { 0 }
}
