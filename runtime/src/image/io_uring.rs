//! Instances of io_uring.

use serde::{Deserialize, Serialize};

/// An instance that has no request under way. What lies in it is in the regions that map it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoUring {
    /// Requests that fit into it, a power of 2.
    pub entries: u32,
    /// Completions that fit into it, a power of 2.
    pub completions: u32,
    /// Requests that it has taken and completed, modulo 2^32.
    pub used: u32,
    /// Completions that the program has taken out, modulo 2^32.
    pub read: u32,
    /// Whether requests are found through an array of their numbers (no IORING_SETUP_NO_SQARRAY).
    pub has_array: bool,
    /// Where its kernel has what in its memory: the offsets of `struct io_uring_params`, in their order.
    pub layout: [u32; 14],
    /// Inode number, which its mappings have too.
    pub inode: u64,
}
