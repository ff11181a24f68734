//! The record of a file.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use ckpt_store::PageListRef;
use nix::sys::stat::{major, minor};

use crate::image::{CapturedFile, CapturedKind, FileContent};

/// The record of what `path` leads to.
pub fn about(path: Vec<u8>, metadata: &Metadata, kind: CapturedKind) -> CapturedFile {
    CapturedFile {
        path,
        kind,
        mode: metadata.mode() & 0o7777,
        owner: (metadata.uid(), metadata.gid()),
        modified_ns: metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec(),
    }
}

/// A regular file whose content is not in the store yet.
pub fn regular(metadata: &Metadata) -> CapturedKind {
    let device = (major(metadata.dev()) as u32, minor(metadata.dev()) as u32);
    let content = FileContent { bytes: metadata.len(), pages: PageListRef::EMPTY };
    CapturedKind::Regular { device, inode: metadata.ino(), content }
}
