//! How the agent opens the program's store, or makes it: the way the user wants it.
//!
//! What a store names its pages by is settled when it is made. A user who asks for something else later is told, since
//! the checkpoints are good either way and refusing them would help nobody.

use ckpt_store::{Digest, Store, StoreOptions};
use ckpt_wire::{
    CHUNK_BYTES_DEFAULT, Control, DIGEST_ANY, DIGEST_BLAKE3, DIGEST_SHA1, METHOD_FULL_DUMP, METHOD_INC_TRACKING,
    METHOD_LOCAL_DEDUP, METHOD_PAGES, METHOD_TREE, TREE_MIN_BYTES_DEFAULT, is_chunk_length,
};

use super::Method;
use crate::capture::TreeOptions;
use crate::error::{Error, Result};

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

/// How the program's user wants memory to be stored.
pub fn wanted_method(control: &Control) -> Result<Method> {
    match control.method {
        METHOD_PAGES => Ok(Method::Pages),
        METHOD_TREE => Ok(Method::Tree),
        METHOD_FULL_DUMP => Ok(Method::FullDump),
        METHOD_LOCAL_DEDUP => Ok(Method::LocalDedup),
        METHOD_INC_TRACKING => Ok(Method::IncTracking),
        unknown => Err(unknown_wish(format!("method {unknown}"))),
    }
}

/// How it is stored by method `tree`. Half of the memory is for digests then, and the other for buffers.
pub fn tree_options(control: &Control, options: &StoreOptions) -> Result<TreeOptions> {
    // An older libckpt.so does not say.
    let or = |value: u64, default: u64| if value == 0 { default } else { value };
    let chunk_bytes = or(control.chunk_bytes, CHUNK_BYTES_DEFAULT);
    if !is_chunk_length(chunk_bytes) {
        return Err(unknown_wish(format!("chunks of {chunk_bytes} bytes")));
    }
    Ok(TreeOptions {
        chunk_bytes: chunk_bytes as u32,
        min_bytes: or(control.tree_min_bytes, TREE_MIN_BYTES_DEFAULT),
        // And a third of it for lists while a difference is found.
        digest_bytes: options.memory_bytes as u64 / 8 * 3,
        verify_matches: control.verify_matches != 0,
    })
}

/// What copies of pages may take that are made before a stop: three quarters of the memory for
/// buffers, of which the store needs a tenth.
pub fn copies_bytes(options: &StoreOptions) -> u64 {
    options.memory_bytes as u64 / 4 * 3
}

fn unknown_wish(what: String) -> Error {
    let why = format!("libckpt.so asks for {what}, which this ckpt does not know");
    Error::environment("taking checkpoints", why, "use the ckpt that belongs to it")
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
    fn large_memory_is_stored_as_the_program_asks_and_an_old_one_gets_the_defaults() {
        let mut control: Control = zerocopy::FromZeros::new_zeroed();
        let of = |control: &Control| tree_options(control, &options_of(None, 64 << 20)).unwrap();
        assert_eq!(wanted_method(&control).unwrap(), Method::Pages);
        let default =
            TreeOptions { chunk_bytes: 128, min_bytes: 16 << 20, digest_bytes: 24 << 20, verify_matches: false };
        assert_eq!(of(&control), default);
        control.method = METHOD_TREE;
        (control.chunk_bytes, control.tree_min_bytes, control.verify_matches) = (64, 7, 1);
        assert_eq!(wanted_method(&control).unwrap(), Method::Tree);
        assert_eq!(of(&control), TreeOptions { chunk_bytes: 64, min_bytes: 7, verify_matches: true, ..default });
        (control.chunk_bytes, control.method) = (33, METHOD_INC_TRACKING + 1);
        assert!(wanted_method(&control).is_err() && tree_options(&control, &options_of(None, 0)).is_err());
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
