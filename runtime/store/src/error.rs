//! What can go wrong in a store.
//!
//! Policy: the machine's refusals are `Io` with the path and the operation. Bytes that are not what the store wrote are
//! `Corrupt` with the place, whatever the damage; the store never panics on them and never returns other content. A
//! file that ends too early is damage too, not an I/O error. Misuse by the caller has variants of its own, so that no
//! caller needs to read a message.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::{Digest, KeyId};

/// A result whose error is a [`StoreError`].
pub type Result<T> = std::result::Result<T, StoreError>;

/// Why a call on a store failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The system refused an operation (permission, no space, a failing disk).
    #[error("cannot {operation} {path}: {source}; remove the cause and try again")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What was being done, as a verb ("write", "fsync").
        operation: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// There may be no store here.
    #[error(
        "cannot create {path} as user {user}: {source}; name a directory that this user may make, or make it for that user"
    )]
    CannotCreate {
        /// The directory.
        path: PathBuf,
        /// Who was to own it.
        user: u32,
        /// The system's answer.
        source: io::Error,
    },
    /// Bytes in the store are not what was written.
    #[error(
        "{path} is corrupt at byte {offset}: {what} should be {expected} but is {found}; restart from another checkpoint or restore this file from a copy"
    )]
    Corrupt {
        /// The damaged file.
        path: PathBuf,
        /// Where in the file.
        offset: u64,
        /// The field or record.
        what: &'static str,
        /// What it had to be.
        expected: String,
        /// What it was.
        found: String,
    },
    /// No sealed checkpoint has this number.
    #[error("{path} holds no checkpoint {id}; {}", newest_sentence(.newest))]
    NoSuchCheckpoint {
        /// The store.
        path: PathBuf,
        /// The number asked for.
        id: u64,
        /// The newest sealed checkpoint, if there is one.
        newest: Option<u64>,
    },
    /// The directory is not a checkpoint store.
    #[error("{path} is not a checkpoint store: {found}; name the directory a checkpoint was written to")]
    NotAStore {
        /// The directory.
        path: PathBuf,
        /// What is there instead.
        found: String,
    },
    /// Two stores name their pages by different digests.
    #[error("{path} names its pages by {found} and the other store by {needed}; copy into a directory without a store")]
    OtherDigest {
        /// The store to copy to.
        path: PathBuf,
        /// Its digest.
        found: Digest,
        /// The digest of the store to copy from.
        needed: Digest,
    },
    /// The file system is nearly full.
    #[error(
        "{path} has {free_bytes} bytes of room left and needs {needed_bytes}; drop checkpoints (`ckpt prune`), make room or use another directory"
    )]
    NoRoom {
        /// The store.
        path: PathBuf,
        /// Bytes that can still be written there.
        free_bytes: u64,
        /// Bytes about to be written, and what is left for others.
        needed_bytes: u64,
    },
    /// The store uses something that this version does not know.
    #[error("{path} uses {feature} {found}, which this version cannot read; use the version of ckpt that wrote it")]
    UnsupportedFeature {
        /// The file that says so.
        path: PathBuf,
        /// "format version" or "incompat feature bits".
        feature: &'static str,
        /// The version or the unknown bits.
        found: u64,
    },
    /// The store belongs to another user.
    #[error(
        "{path} belongs to user {owner}, not to user {user}; a store can hold any program, so work on it as that user, or trust its owner explicitly (`ckpt restart --trust-owner`)"
    )]
    ForeignOwner {
        /// The directory or file.
        path: PathBuf,
        /// The user id it belongs to.
        owner: u32,
        /// The effective user id of this process.
        user: u32,
    },
    /// An encrypted store was to be opened without a key.
    #[error(
        "{path} is encrypted and no key was given; set CKPT_KEY to the file of a key that opens it (or to command:COMMAND)"
    )]
    KeyNeeded {
        /// The store.
        path: PathBuf,
    },
    /// An encrypted store was to be opened by a key that was not added to it.
    #[error("{path} is encrypted and not opened by the key given; set CKPT_KEY to {}", others(*.keys))]
    WrongKey {
        /// The store.
        path: PathBuf,
        /// How many keys open it.
        keys: usize,
    },
    /// A store is not encrypted where a key was given.
    #[error(
        "{path} is not encrypted, so the key given does not belong to it; unset CKPT_KEY to use it as it is, or bring its \
         checkpoints into an encrypted store with `ckpt copy`"
    )]
    NotEncrypted {
        /// The store.
        path: PathBuf,
    },
    /// A key to be removed does not open the store.
    #[error("{path} has no key {key}; `ckpt key list` names those it has")]
    NoSuchKey {
        /// The store.
        path: PathBuf,
        /// The name asked for.
        key: KeyId,
    },
    /// Without its last key nobody could open the store again.
    #[error(
        "{key} is the last key of {path}, and without it all checkpoints in there are lost; add another with `ckpt key add` \
         first, or remove the directory"
    )]
    LastKey {
        /// The store.
        path: PathBuf,
        /// The key.
        key: KeyId,
    },
    /// What the place can promise is not enough for a store.
    #[error("{path} cannot hold a store: {why}; choose another directory (--dir or CKPT_DIR)")]
    Unsuitable {
        /// The directory.
        path: PathBuf,
        /// What is missing.
        why: String,
    },
    /// Removing packs is only safe under a lock that ends with its process and no sooner.
    #[error(
        "{path} gives no space back: whoever reclaims it here may lose its lock unnoticed, and remove what another has \
         begun to share; copy what is to stay to another place with `ckpt copy`, and remove this one"
    )]
    NotReclaimable {
        /// Where the store is.
        path: PathBuf,
    },
    /// What is asked for cannot be held open all at once.
    #[error("it lies in {packs} packs, of which {most} can be held open; `ckpt flatten` writes it to a few of its own")]
    TooManyPacks {
        /// How many there are.
        packs: u64,
        /// How many there may be.
        most: u64,
    },
    /// Another process kept the store locked for too long.
    #[error("{path} stayed locked for {waited_ms} ms; see which process holds it (lslocks) and try again")]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// How long this process waited.
        waited_ms: u64,
    },
    /// A page list names a page that is in no sealed checkpoint and was not written by this attempt.
    #[error("page {page} is not in {path}; write it in this attempt before the page list that names it")]
    UnknownPage {
        /// The store.
        path: PathBuf,
        /// The page's key, in hex.
        page: String,
    },
    /// A length is not a whole number of pages, or the two sides of a call do not agree.
    #[error("{what} has {found} bytes where {expected} are needed; pass whole pages of 4096 bytes")]
    WrongLength {
        /// Which argument.
        what: &'static str,
        /// The bytes needed, or the unit they must be a multiple of.
        expected: u64,
        /// The bytes passed.
        found: u64,
    },
    /// A record is larger than the format allows.
    #[error("{what} has {found} bytes, and the format allows {max}; shorten it")]
    TooLarge {
        /// The record.
        what: &'static str,
        /// Its size.
        found: u64,
        /// The limit.
        max: u64,
    },
    /// An earlier write of this attempt failed, so that it cannot be sealed any more.
    #[error("attempt {id} in {path} cannot go on after a failed write ({reason}); begin a new one")]
    AttemptBroken {
        /// The store.
        path: PathBuf,
        /// The attempt.
        id: u64,
        /// The first error.
        reason: String,
    },
}

fn others(keys: usize) -> String {
    match keys {
        0 => "its key (none is left in the directory keys: restore that from a copy)".into(),
        1 => "its key".into(),
        more => format!("one of its {more} keys"),
    }
}

fn newest_sentence(newest: &Option<u64>) -> String {
    match newest {
        Some(id) => format!("the newest is {id}"),
        None => "nothing has been sealed in it yet".into(),
    }
}

impl StoreError {
    /// Whether a file was not there.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// An [`StoreError::Unsuitable`] for the reason that a back end gave.
    pub(crate) fn unsuitable(path: &Path, why: &io::Error) -> Self {
        Self::Unsuitable { path: path.into(), why: why.to_string() }
    }

    /// Whether the error says that stored bytes are damaged (exit code 3).
    pub fn is_corrupt(&self) -> bool {
        matches!(self, Self::Corrupt { .. })
    }
}
