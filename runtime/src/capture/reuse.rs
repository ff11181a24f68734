//! How much a full checkpoint makes of those before it.

use ckpt_store::Sharing;

/// What a full checkpoint takes from earlier ones instead of reading or storing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reuse {
    /// Whether what is known not to have changed since the last one is not read again: pages of memory, and files. If
    /// not, the kernel is not asked to note what is written.
    pub keeps_unchanged: bool,
    /// What is not stored again of that which is read.
    pub sharing: Sharing,
}

impl Default for Reuse {
    fn default() -> Reuse {
        Reuse { keeps_unchanged: true, sharing: Sharing::WithAll }
    }
}
