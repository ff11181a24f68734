//! The keys that open an encrypted store: one file each, written and removed under the store's lock.

use std::time::SystemTime;

use super::{Shared, Store};
use crate::{
    Key, KeyId, Result, StoreError,
    encryption::{key_file, store_key::StoreKey},
    fault,
    files::{Files, KEYS},
};

/// A key that opens a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddedKey {
    /// Its name in this store.
    pub id: KeyId,
    /// When it was added, in seconds since 1970.
    pub added_unix_s: u64,
}

impl Store {
    /// Whether it is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.shared.store_key.is_some()
    }

    /// What this store calls a key, one of its own or another.
    pub fn key_id(&self, key: &Key) -> KeyId {
        key_file::id_of(key, &self.shared.header.store_id)
    }

    /// The keys that open it, the oldest first.
    pub fn keys(&self) -> Result<Vec<AddedKey>> {
        let files = &self.shared.files;
        self.store_key()?;
        let mut keys = Vec::new();
        for id in ids(files)? {
            let Some(input) = files.open_if_there(&key_file::names_of(id).0)? else { continue };
            keys.push(AddedKey { id, added_unix_s: key_file::read_added(&input)? });
        }
        keys.sort_by_key(|key| (key.added_unix_s, key.id));
        Ok(keys)
    }

    /// Lets a key open the store, beside those that do. One that does already stays as it is.
    pub fn add_key(&self, key: &Key) -> Result<KeyId> {
        let Shared { files, header, .. } = &*self.shared;
        let store_key = self.store_key()?;
        let _lock = files.lock()?;
        let id = self.key_id(key);
        if !ids(files)?.contains(&id) {
            write(files, &header.store_id, store_key, key)?;
        }
        Ok(id)
    }

    /// From now on a key does not open the store any more. Whoever has used it may have kept the store's own key, or a copy
    /// of the file that is removed: what was encrypted before, and what is later, stays readable for them. To lock them out,
    /// copy the checkpoints into a new store.
    ///
    /// # Errors
    ///
    /// [`StoreError::LastKey`] when no other is left.
    pub fn remove_key(&self, key: KeyId) -> Result<()> {
        let files = &self.shared.files;
        self.store_key()?;
        let _lock = files.lock()?;
        let ids = ids(files)?;
        let path = || files.path("");
        match ids.contains(&key) {
            false => Err(StoreError::NoSuchKey { path: path(), key }),
            true if ids.len() == 1 => Err(StoreError::LastKey { path: path(), key }),
            true => {
                files.remove(&key_file::names_of(key).0, fault::LEFTOVER_REMOVE)?;
                files.sync_dir(KEYS, fault::ROOT_SYNC)
            }
        }
    }

    fn store_key(&self) -> Result<&StoreKey> {
        self.shared.store_key.as_ref().ok_or_else(|| StoreError::NotEncrypted { path: self.shared.files.path("") })
    }
}

/// The key of the store, by one of its keys.
pub(super) fn open(files: &Files, store_id: &[u8; 16], key: &Key) -> Result<StoreKey> {
    match files.open_if_there(&key_file::names_of(key_file::id_of(key, store_id)).0)? {
        Some(input) => key_file::read(&input, store_id, key),
        None => Err(StoreError::WrongKey { path: files.path(""), keys: ids(files)?.len() }),
    }
}

/// Draws the key of a store that is about to be made, and writes the file of the first key that opens it.
pub(super) fn begin(files: &Files, store_id: &[u8; 16], key: &Key) -> Result<StoreKey> {
    let store_key = StoreKey::random(store_id).map_err(|source| no_random_numbers(files, source))?;
    files.create_dir(KEYS)?;
    write(files, store_id, &store_key, key)?;
    Ok(store_key)
}

/// Removes what a process left that was making a store here and died.
pub(super) fn remove_leftovers(files: &Files) -> Result<()> {
    for name in names(files)? {
        if key_file::parse(&name).is_none() {
            let found = format!("{KEYS}/{name} is there, but no file named header");
            return Err(StoreError::NotAStore { path: files.path(""), found });
        }
        files.remove(&format!("{KEYS}/{name}"), fault::LEFTOVER_REMOVE)?;
    }
    Ok(())
}

fn write(files: &Files, store_id: &[u8; 16], store_key: &StoreKey, key: &Key) -> Result<()> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let file = key_file::encode(store_key, store_id, key, now).map_err(|source| no_random_numbers(files, source))?;
    let (name, new) = key_file::names_of(key_file::id_of(key, store_id));
    files.remove(&new, fault::LEFTOVER_REMOVE)?;
    let mut output = files.create(&new, fault::HEADER_CREATE)?;
    output.append(&file, fault::HEADER_WRITE)?;
    output.sync(fault::HEADER_SYNC)?;
    files.rename(&new, &name, fault::HEADER_RENAME)?;
    files.sync_dir(KEYS, fault::ROOT_SYNC)
}

fn no_random_numbers(files: &Files, source: std::io::Error) -> StoreError {
    StoreError::Io { path: files.path(KEYS), operation: "make a key for", source }
}

/// The keys that have a file.
fn ids(files: &Files) -> Result<Vec<KeyId>> {
    let found = names(files)?.into_iter().filter_map(|name| key_file::parse(&name));
    Ok(found.filter(|(_, is_new)| !is_new).map(|(id, _)| id).collect())
}

fn names(files: &Files) -> Result<Vec<String>> {
    match files.list(KEYS) {
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        listed => listed,
    }
}
