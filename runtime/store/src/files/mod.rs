//! The files of a store: the back end's operations with the path and the verb in every error.
//!
//! This is the only place that calls the back end. Every operation that changes something passes its fault point right
//! after it succeeded. A file that ends where the format promises bytes is `Corrupt`, decided here once.

pub(crate) mod behind;
mod names;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

pub(crate) use names::{
    ATTEMPTS, DIRECTORIES, HEADER, HEADER_NEW, KEYS, Kind, LOCK, MANIFESTS, PACKS, PackName, RECLAIM_LOCK,
};

use crate::{
    Result, StoreError,
    backend::{Backend, ReadFile, Room, WriteFile},
    encryption::{Encrypted, Encryptor, store_key::StoreKey},
    fault::{self, Point},
};

const LOCK_WAIT: Duration = Duration::from_secs(30);
/// The first pause before the lock is tried again. Each is twice as long as the one before, up to `LOCK_POLL_MAX`.
const LOCK_POLL: Duration = Duration::from_millis(2);
const LOCK_POLL_MAX: Duration = Duration::from_millis(64);

/// Held as long as it is kept.
pub(crate) type Lock = Box<dyn Send + Sync>;

/// The files of one store.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    backend: Arc<dyn Backend>,
}

impl Files {
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        Self { backend }
    }

    /// The same files, encrypted by this key.
    pub fn encrypted(self, key: StoreKey) -> Self {
        Self { backend: Arc::new(Encrypted::new(self.backend, key)) }
    }

    pub fn root(&self) -> &Path {
        self.backend.root()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        if name.is_empty() { self.backend.root().into() } else { self.backend.root().join(name) }
    }

    fn io<'a>(&'a self, name: &'a str, operation: &'static str) -> impl FnOnce(io::Error) -> StoreError + 'a {
        move |source| match source.downcast::<StoreError>() {
            Ok(refused) => refused,
            Err(source) => StoreError::Io { path: self.path(name), operation, source },
        }
    }

    pub fn create(&self, name: &str, point: Point) -> Result<Output> {
        let file = self.backend.create(name).map_err(self.io(name, "create"))?;
        fault::point(point);
        Ok(Output { file, path: self.path(name) })
    }

    pub fn open(&self, name: &str) -> Result<Input> {
        let file = self.backend.open(name).map_err(self.io(name, "open"))?;
        let length = file.length().map_err(self.io(name, "look at"))?;
        Ok(Input { file, path: self.path(name), length })
    }

    /// `None` when there is no such file.
    pub fn open_if_there(&self, name: &str) -> Result<Option<Input>> {
        match self.open(name) {
            Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => opened.map(Some),
        }
    }

    pub fn create_dir(&self, name: &str) -> Result<()> {
        self.backend.create_dir(name).map_err(self.io(name, "create"))?;
        fault::point(fault::DIRECTORY_CREATE);
        Ok(())
    }

    pub fn rename(&self, from: &str, to: &str, point: Point) -> Result<()> {
        self.backend.rename(from, to).map_err(self.io(to, "rename to"))?;
        fault::point(point);
        Ok(())
    }

    /// Removes a file; one that is gone already is fine.
    pub fn remove(&self, name: &str, point: Point) -> Result<()> {
        match self.backend.remove(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            removed => removed.map_err(self.io(name, "remove"))?,
        }
        fault::point(point);
        Ok(())
    }

    pub fn sync_dir(&self, dir: &str, point: Point) -> Result<()> {
        self.backend.sync_dir(dir).map_err(self.io(dir, "fsync"))?;
        fault::point(point);
        Ok(())
    }

    pub fn stamp(&self, dir: &str) -> Result<Option<u64>> {
        self.backend.stamp(dir).map_err(self.io(dir, "look at"))
    }

    pub fn list(&self, dir: &str) -> Result<Vec<String>> {
        self.backend.list(dir).map_err(self.io(dir, "list"))
    }

    /// The attempts' files in `dir`, in order of their numbers. Other names are not ours and are passed by.
    pub fn list_kinds(&self, dir: &'static str) -> Result<Vec<(u64, Kind)>> {
        let mut found: Vec<_> = self.list(dir)?.iter().filter_map(|name| Kind::parse(dir, name)).collect();
        found.sort_by_key(|(id, _)| *id);
        Ok(found)
    }

    /// The numbers of the sealed checkpoints, in order.
    pub fn list_sealed(&self) -> Result<Vec<u64>> {
        let found = self.list_kinds(MANIFESTS)?.into_iter();
        Ok(found.filter(|(_, kind)| *kind == Kind::Manifest).map(|(id, _)| id).collect())
    }

    pub fn list_packs(&self) -> Result<Vec<PackName>> {
        let mut found: Vec<_> = self.list(PACKS)?.iter().filter_map(|name| PackName::parse(name)).collect();
        found.sort();
        Ok(found)
    }

    /// Takes the store's lock, waiting for others.
    pub fn lock(&self) -> Result<Lock> {
        self.lock_of(LOCK)
    }

    /// Takes the lock of whoever reclaims space, waiting for others. It is taken before the store's lock.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotReclaimable`] where locks are leases.
    pub fn reclaim_lock(&self) -> Result<Lock> {
        if self.backend.locks_are_leases() {
            return Err(StoreError::NotReclaimable { path: self.root().into() });
        }
        self.lock_of(RECLAIM_LOCK)
    }

    fn lock_of(&self, name: &str) -> Result<Lock> {
        let begun = Instant::now();
        let mut pause = LOCK_POLL;
        loop {
            match self.backend.try_lock(name) {
                Ok(Some(lock)) => return Ok(lock),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                    return Err(StoreError::unsuitable(self.root(), &error));
                }
                Err(error) => return Err(self.io(name, "lock")(error)),
            }
            if begun.elapsed() > LOCK_WAIT {
                let waited_ms = begun.elapsed().as_millis() as u64;
                return Err(StoreError::Locked { path: self.path(name), waited_ms });
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LOCK_POLL_MAX);
        }
    }

    /// How much room a file of so many bytes takes.
    pub fn stored_bytes(&self, bytes: u64) -> u64 {
        self.backend.stored_bytes(bytes)
    }

    /// How much can still be written, where that can be told.
    pub fn room(&self) -> Result<Option<Room>> {
        self.backend.room().map_err(self.io("", "ask for the room in"))
    }

    /// Whether the writer of this attempt lives. A row file that is gone has no living writer any more.
    pub fn writer_lives(&self, id: u64) -> Result<bool> {
        let name = Kind::Writing.name(id);
        match self.backend.is_held(&name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            held => held.map_err(self.io(&name, "look at the lock of")),
        }
    }
}

/// A file being written.
pub(crate) struct Output {
    file: Box<dyn WriteFile>,
    path: PathBuf,
}

impl Output {
    pub fn path(&self) -> PathBuf {
        self.path.clone()
    }

    fn io(&self, operation: &'static str, source: io::Error) -> StoreError {
        StoreError::Io { path: self.path.clone(), operation, source }
    }

    pub fn append(&mut self, bytes: &[u8], point: Point) -> Result<()> {
        self.file.append(bytes).map_err(|error| self.io("write", error))?;
        fault::point(point);
        Ok(())
    }

    pub fn sync(&mut self, point: Point) -> Result<()> {
        self.file.sync().map_err(|error| self.io("fsync", error))?;
        fault::point(point);
        Ok(())
    }

    /// What encrypts the bytes that are appended from here on, if they are to be.
    pub fn take_encryptor(&mut self) -> Option<Encryptor> {
        self.file.take_encryptor()
    }

    pub fn hold(&mut self) -> Result<()> {
        self.file.hold().map_err(|error| self.io("lock", error))
    }

    /// An error if others may take this writer for dead.
    pub fn check_hold(&self) -> Result<()> {
        self.file.check_hold().map_err(|error| self.io("keep the lock of", error))
    }
}

/// A file being read.
pub(crate) struct Input {
    file: Box<dyn ReadFile>,
    path: PathBuf,
    length: u64,
}

impl Input {
    pub fn path(&self) -> PathBuf {
        self.path.clone()
    }

    pub fn length(&self) -> u64 {
        self.length
    }

    pub fn is_at_hand(&self, offset: u64) -> bool {
        self.file.is_at_hand(offset)
    }

    pub fn will_be_read(&self, offset: u64, length: u64) {
        self.file.will_be_read(offset, length);
    }

    pub fn read_into(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        match self.file.read_exact_at(offset, out) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(self.corrupt(
                offset,
                "the file's length",
                format!("{} bytes or more", offset.saturating_add(out.len() as u64)),
                format!("{} bytes", self.length),
            )),
            read => read.map_err(|source| match source.downcast::<StoreError>() {
                Ok(refused) => refused,
                Err(source) => StoreError::Io { path: self.path.clone(), operation: "read", source },
            }),
        }
    }

    /// Reads `length` bytes; they must lie in the file, so that a damaged length asks for no memory.
    pub fn read(&self, offset: u64, length: u64) -> Result<Vec<u8>> {
        let end = offset.checked_add(length);
        if end.is_none_or(|end| end > self.length) {
            let expected = format!("{offset} + {length} bytes or more");
            return Err(self.corrupt(offset, "the file's length", expected, format!("{} bytes", self.length)));
        }
        let mut bytes = vec![0; length as usize];
        self.read_into(offset, &mut bytes)?;
        Ok(bytes)
    }

    pub fn corrupt(
        &self,
        offset: u64,
        what: &'static str,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> StoreError {
        StoreError::Corrupt { path: self.path.clone(), offset, what, expected: expected.into(), found: found.into() }
    }
}
