//! What /proc says about a process, in the types the rest of ckpt uses.
//!
//! Read by hand rather than with the procfs crate: that crate takes paths as UTF-8 text, trims
//! them and does not know the newer mapping flags, and a mapping whose name was misread is memory lost; what is
//! left besides mappings is a handful of lines.

pub mod auxv;
pub mod clocks;
pub mod confinement;
pub mod control_groups;
pub mod fdinfo;
pub mod holders;
pub mod limits;
pub mod locks;
pub mod maps;
pub mod memory;
pub mod mounts;
pub mod oom;
pub mod pagemap;
pub mod sched;
pub mod sysvipc;
pub mod task;

use std::path::Path;

/// What the kernel writes behind the path of a file that has been deleted.
pub const DELETED: &[u8] = b" (deleted)";

/// Whether a path leads to a file of the kernel's own, which has no content to capture or compare.
pub fn is_the_kernels(path: &Path) -> bool {
    path.starts_with("/proc") || path.starts_with("/sys")
}
