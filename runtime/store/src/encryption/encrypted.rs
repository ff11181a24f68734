//! A back end whose files are encrypted in another one.
//!
//! Names, locks, holds and lengths are those of the other. What has to be read before there is a key, and what has no
//! content, stays as it is.

use std::{io, path::Path, sync::Arc};

use super::{
    decrypting,
    encrypting::EncryptingFile,
    encryptor::Encryptor,
    frames::{self, FileHead},
    store_key::StoreKey,
};
use crate::{
    backend::{Backend, ReadFile, Room, WriteFile},
    files::{HEADER, HEADER_NEW, KEYS},
};

/// The files of an encrypted store.
#[derive(Debug)]
pub(crate) struct Encrypted {
    inner: Arc<dyn Backend>,
    key: StoreKey,
}

impl Encrypted {
    pub fn new(inner: Arc<dyn Backend>, key: StoreKey) -> Self {
        Self { inner, key }
    }
}

/// Whether a file is written as it is: it says how the others are decrypted.
fn is_plain(name: &str) -> bool {
    [HEADER, HEADER_NEW].contains(&name) || name.split_once('/').is_some_and(|(dir, _)| dir == KEYS)
}

impl Backend for Encrypted {
    fn root(&self) -> &Path {
        self.inner.root()
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn WriteFile>> {
        let file = self.inner.create(name)?;
        if is_plain(name) {
            return Ok(file);
        }
        let head = FileHead::random()?;
        let key = self.key.of_file(name, &head);
        Ok(Box::new(EncryptingFile::new(file, Encryptor::new(head, key))))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn ReadFile>> {
        let file = self.inner.open(name)?;
        if is_plain(name) {
            return Ok(file);
        }
        decrypting::open(file, &self.inner.root().join(name), name, &self.key)
    }

    fn create_dir(&self, name: &str) -> io::Result<()> {
        self.inner.create_dir(name)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.inner.list(dir)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.inner.remove(name)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.inner.sync_dir(dir)
    }

    fn stamp(&self, dir: &str) -> io::Result<Option<u64>> {
        self.inner.stamp(dir)
    }

    fn try_lock(&self, name: &str) -> io::Result<Option<Box<dyn Send + Sync>>> {
        self.inner.try_lock(name)
    }

    fn locks_are_leases(&self) -> bool {
        self.inner.locks_are_leases()
    }

    fn room(&self) -> io::Result<Option<Room>> {
        self.inner.room()
    }

    fn stored_bytes(&self, content_bytes: u64) -> u64 {
        self.inner.stored_bytes(frames::file_bytes(content_bytes))
    }

    fn is_held(&self, name: &str) -> io::Result<bool> {
        self.inner.is_held(name)
    }
}
