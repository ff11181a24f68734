//! Reaching what a job had open, mapped or captured, by its path, without giving a process what it did not have.
//!
//! A restart by root is as able as root, and the paths of a job may go through directories of other users. What such a user does to
//! a directory of theirs must not decide what root opens, writes, makes or removes. Three rules see to that:
//!
//! 1. No symbolic link on a path is followed ([`crate::without_links`]).
//! 2. A path is used with the rights of a process that had the object ([`Rights`], [`Holders`]): its user, group, supplementary groups and
//!    capabilities. If a process gave up rights after it had opened something, these do not suffice; then the restarter's own are
//!    used, on paths alone that root alone can change ([`trust`]), or for a file that is proven to be the one that the process
//!    had.
//! 3. Where others can change a directory on the way, a file that has several names (hard links) has to be the one of the
//!    checkpoint, by device and inode.
//!
//! A restart by an ordinary user has one set of rights, its own; rules 1 and 3 hold for it as well.

mod holders;
mod spot;
mod trust;

pub use crate::rights::Rights;
pub use holders::Holders;
pub use spot::{Identity, Spot, give};

use std::fs::File;
use std::io;
use std::path::Path;

use nix::unistd::geteuid;

use crate::error::Error;
use crate::without_links::{self, Diverted};

/// Opens what `path` leads to with the rights of one of its `holders`, or those of this command as [`Spot::reach`] says.
///
/// # Errors
/// Those of open(2); and if a symbolic link, or a file that others have put there, is found instead.
pub fn open(path: &Path, flags: i32, holders: &[Rights], identity: Option<Identity>) -> io::Result<File> {
    if path == Path::new("/") {
        return without_links::open(path, flags, 0);
    }
    Spot::reach(path, holders)?.make(flags, NEW_FILE_MODE, identity)
}

/// Whether this command is root's, and root alone can change where `path` leads to.
pub fn is_out_of_others_reach(path: &Path) -> bool {
    let directory = path.parent().unwrap_or(path);
    geteuid().is_root() && trust::directory(directory, 0).is_ok_and(|directory| directory.is_some())
}

/// A file that is made anew because it was empty is for its owner alone: nothing is known of its mode.
const NEW_FILE_MODE: u32 = 0o600;

/// The error of `operation` on `path`, with advice where somebody has diverted it.
pub fn failed(operation: &'static str, path: &Path, source: io::Error) -> Error {
    match source.get_ref().and_then(|inner| inner.downcast_ref::<Diverted>()) {
        Some(Diverted { why, advice }) => {
            Error::environment(format!("{operation} {}", path.display()), why.clone(), advice.clone())
        }
        None => Error::io(operation, path, source),
    }
}
