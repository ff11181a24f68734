//! What a caller may choose when it opens a store.

use crate::{Compression, Digest, Key, format::pack::PACK_BYTES_MAX};

/// Choices made when a store is opened. All but the digest and the key hold as long as it is open, and are not kept in the store.
#[derive(Clone, Copy, Debug)]
pub struct StoreOptions {
    /// Open a store that belongs to another user. What it holds can be any program.
    pub trust_owner: bool,
    /// Bytes of buffers an attempt may use while it writes; less than 16 MiB is as 16 MiB. Not counted: some 47 bytes in
    /// the index for each page of the sealed checkpoints, and as many for each new page of the attempt.
    pub memory_bytes: usize,
    /// A pack is closed, and the next one begun, when it is longer than this: at most 1 GiB.
    pub pack_bytes: u64,
    /// How new page runs are compressed when that pays.
    pub compression: Compression,
    /// What a store that is made now names its pages by. One that is there keeps its own ([`crate::Store::digest`]).
    pub digest: Digest,
    /// What opens an encrypted store. A store that is made now is encrypted, and opened by this key, if there is one.
    pub key: Option<Key>,
    /// Open a store that is not encrypted although there is a key. Whoever expects an encrypted store must not be given
    /// another in its place, so it is refused otherwise.
    pub accept_plain: bool,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            trust_owner: false,
            memory_bytes: 256 << 20,
            pack_bytes: PACK_BYTES_MAX,
            compression: Compression::Auto,
            digest: Digest::default(),
            key: None,
            accept_plain: false,
        }
    }
}

impl StoreOptions {
    /// Bytes of pages hashed and written as one batch: while one batch is compressed and written, the next is hashed,
    /// and a batch may exist as pages and as encoded runs.
    pub(crate) fn batch_bytes(&self) -> usize {
        (self.memory_bytes / 256).clamp(256 << 10, 1 << 20) / crate::PAGE_BYTES * crate::PAGE_BYTES
    }

    /// Bytes written to a pack at once; a few times as much is on its way to the disk.
    pub(crate) fn write_bytes(&self) -> usize {
        (self.memory_bytes / 32).clamp(256 << 10, 4 << 20) / crate::PAGE_BYTES * crate::PAGE_BYTES
    }
}
