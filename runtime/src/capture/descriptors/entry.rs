//! A descriptor of a stopped process, and its refusal by number and kind.

use std::os::fd::OwnedFd;

use crate::capture::comparison::Place;
use crate::capture::sent::Source;
use crate::error::{Error, Result};
use crate::proc::fdinfo::FdInfo;

/// A stopped process whose descriptors are captured.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a> {
    /// Its pid.
    pub pid: i32,
    /// How its descriptors are fetched.
    pub source: Source<'a>,
}

/// A descriptor of a process.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    pub owner: Owner<'a>,
    pub info: &'a FdInfo,
}

impl Entry<'_> {
    /// A duplicate of it.
    pub fn fetch(&self) -> Result<OwnedFd> {
        self.owner.source.fetch(self.info.number)
    }

    /// Where it is.
    pub fn place(&self) -> Place<'_> {
        Place { pid: self.owner.pid, source: self.owner.source, number: self.info.number }
    }
}

/// Device and inode of what it leads to.
pub fn place_of(info: &FdInfo) -> (u64, u64) {
    (info.metadata.device, info.metadata.inode)
}

/// Refuses a descriptor by its number and what it leads to.
pub fn refused(info: &FdInfo, why: &str, advice: &str) -> Error {
    Error::unsupported(format!("descriptor {} ({})", info.number, info.shown()), why, advice)
}

/// Refuses for what passes when the program runs on for a moment.
pub fn unsettled(info: &FdInfo, why: &str, advice: &str) -> Error {
    Error::unsettled(format!("descriptor {} ({})", info.number, info.shown()), why, advice)
}
