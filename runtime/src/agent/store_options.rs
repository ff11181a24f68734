//! How the agent opens the program's store, or makes it: the way the user wants it.
//!
//! What a store names its pages by is settled when it is made. A user who asks for something else later is told, since
//! the checkpoints are good either way and refusing them would help nobody.

use ckpt_store::{Digest, Store, StoreOptions};
use ckpt_wire::{Control, DIGEST_ANY, DIGEST_BLAKE3, DIGEST_SHA1, METHOD_PAGES, METHOD_TREE, is_chunk_length};

use crate::capture::TreeOptions;
use crate::error::{Error, Result};

/// A smaller wish is as this one.
const MEMORY_BYTES_MIN: usize = 16 << 20;

/// What the program's user wants a new store to name its pages by, if anything.
pub fn wanted_digest(control: &Control) -> Result<Option<Digest>> {
    match control.digest {
        DIGEST_ANY => Ok(None),
        DIGEST_SHA1 => Ok(Some(Digest::Sha1)),
        DIGEST_BLAKE3 => Ok(Some(Digest::Blake3)),
        unknown => Err(Error::environment(
            "making the store",
            format!("libckpt.so asks for digest {unknown}, which this ckpt does not know"),
            "use the ckpt that belongs to it",
        )),
    }
}

/// How the agent opens or makes its store, with this much memory for buffers; 0 for the default.
pub fn options_of(wanted: Option<Digest>, memory_bytes: u64) -> StoreOptions {
    let mut options = StoreOptions { digest: wanted.unwrap_or_default(), ..StoreOptions::default() };
    if memory_bytes > 0 {
        options.memory_bytes = usize::try_from(memory_bytes).unwrap_or(usize::MAX);
    }
    options
}

/// How the program's large memory is stored, if not as pages; then half of the memory is for buffers, and half for digests.
///
/// # Errors
/// When libckpt.so asks for what this ckpt does not know.
pub fn tree_options(control: &Control, options: &mut StoreOptions) -> Result<Option<TreeOptions>> {
    match control.method {
        METHOD_PAGES => return Ok(None),
        METHOD_TREE if is_chunk_length(control.chunk_bytes) => {}
        unknown => {
            return Err(Error::environment(
                "taking checkpoints",
                format!("libckpt.so asks for method {unknown} with chunks of {} bytes", control.chunk_bytes),
                "use the ckpt that belongs to it",
            ));
        }
    }
    options.memory_bytes = options.memory_bytes.max(MEMORY_BYTES_MIN) / 2;
    Ok(Some(TreeOptions {
        chunk_bytes: control.chunk_bytes as u32,
        min_bytes: control.tree_min_bytes,
        // A third of it is for lists while a difference is found.
        digest_bytes: options.memory_bytes as u64 / 4 * 3,
        verify_matches: control.verify_matches != 0,
    }))
}

/// What to tell a user whose wish came too late for `store`.
pub fn digest_warning(store: &Store, wanted: Option<Digest>) -> Option<String> {
    let (kept, wanted) = (store.digest(), wanted?);
    (kept != wanted).then(|| {
        let dir = store.dir().display();
        format!("{dir} was made with digest {kept} and keeps it; for {wanted} name a directory without a store")
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn open_store(directory: &Path, wanted: Option<Digest>) -> Store {
        Store::create_or_open_with(directory, &options_of(wanted, 0)).unwrap()
    }

    #[test]
    fn half_of_the_memory_is_for_digests_where_the_program_asks_for_them() {
        let mut control: Control = zerocopy::FromZeros::new_zeroed();
        let mut options = options_of(None, 64 << 20);
        assert_eq!(tree_options(&control, &mut options).unwrap(), None);
        assert_eq!(options.memory_bytes, 64 << 20);
        (control.method, control.chunk_bytes, control.tree_min_bytes) = (METHOD_TREE, 128, 7);
        let expected = TreeOptions { chunk_bytes: 128, min_bytes: 7, digest_bytes: 24 << 20, verify_matches: false };
        assert_eq!(tree_options(&control, &mut options).unwrap(), Some(expected));
        assert_eq!(options.memory_bytes, 32 << 20);
        (control.chunk_bytes, control.verify_matches) = (33, 1);
        assert!(tree_options(&control, &mut options_of(None, 0)).is_err(), "no engine takes such chunks");
        (control.chunk_bytes, control.method) = (64, 2);
        assert!(tree_options(&control, &mut options_of(None, 0)).is_err(), "there is no such method");
    }

    #[test]
    fn a_new_store_gets_the_digest_that_is_wanted_and_keeps_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let made = open_store(&path, Some(Digest::Blake3));
        assert_eq!((made.digest(), digest_warning(&made, Some(Digest::Blake3))), (Digest::Blake3, None));
        let opened = open_store(&path, Some(Digest::Sha1));
        assert_eq!(opened.digest(), Digest::Blake3);
        let warning = digest_warning(&opened, Some(Digest::Sha1)).unwrap();
        assert!(warning.contains("digest blake3 and keeps it; for sha1"), "{warning}");
        assert_eq!(digest_warning(&open_store(&path, None), None), None, "who has no wish is told nothing");
        assert_eq!(open_store(&dir.path().join("other"), None).digest(), Digest::Sha1);
    }
}
