//! A directory in memory that knows what a crash would leave of it.
//!
//! It keeps a journal of every change. [`Memory::after_crash`] builds the directory that could be found after a power
//! cut behind any step of the journal, by the weakest rules the store may rely on: bytes survive for certain once their
//! file was synced, names once their directory was. What was not synced may survive or not ([`Survives`]), names and
//! bytes independently of each other, and the last write may be torn.

use std::{
    collections::{BTreeMap, HashSet},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{Backend, ReadFile, WriteFile};

/// One change of the directory.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "each is the back-end operation of the same name")]
pub enum Step {
    CreateDir { name: String },
    Create { name: String, file: usize },
    Append { file: usize, bytes: Vec<u8> },
    Sync { file: usize },
    Rename { from: String, to: String },
    Remove { name: String },
    SyncDir { dir: String },
}

/// Which of the changes that were not made durable are still there after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Survives {
    /// Names (creations, renames, removals) without a sync of their directory.
    pub names: bool,
    /// The last step, if it changed a name, even where the names before it were lost.
    pub last_name: bool,
    /// Bytes without a sync of their file.
    pub bytes: bool,
    /// Of the last append only the first half, where `bytes` survive.
    pub last_append_torn: bool,
}

#[derive(Clone, Default)]
struct Tree {
    names: BTreeMap<String, usize>,
    bytes: Vec<Vec<u8>>,
    changes: u64,
}

#[derive(Default)]
struct Inner {
    tree: Tree,
    journal: Vec<Step>,
    held: HashSet<usize>,
    locked: HashSet<String>,
}

/// A back end in memory. Clones are the same directory, as several processes see it.
#[derive(Clone)]
pub struct Memory {
    root: PathBuf,
    inner: Arc<Mutex<Inner>>,
}

impl Default for Memory {
    fn default() -> Self {
        Self { root: "memory:".into(), inner: Arc::default() }
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Memory({} steps)", self.inner().journal.len())
    }
}

impl Memory {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every change so far.
    pub fn journal(&self) -> Vec<Step> {
        self.inner().journal.clone()
    }

    /// Every file's name and bytes, to damage them in a test.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let inner = self.inner();
        inner.tree.names.iter().map(|(name, &file)| (name.clone(), inner.tree.bytes[file].clone())).collect()
    }

    /// A directory of these files, all of them durable.
    pub fn of_files(files: &BTreeMap<String, Vec<u8>>) -> Self {
        let memory = Self::default();
        let mut inner = memory.inner();
        for (file, (name, bytes)) in files.iter().enumerate() {
            inner.step(Step::Create { name: name.clone(), file });
            inner.step(Step::Append { file, bytes: bytes.clone() });
            inner.step(Step::Sync { file });
            inner.step(Step::SyncDir { dir: directory(name).into() });
        }
        drop(inner);
        memory
    }

    /// What a crash after the first `steps` steps leaves.
    pub fn after_crash(journal: &[Step], survives: Survives) -> Self {
        let mut live = Tree::default();
        let mut durable = Tree::default();
        for (at, step) in journal.iter().enumerate() {
            let mut step = step.clone();
            if let Step::Append { bytes, .. } = &mut step
                && survives.last_append_torn
                && at + 1 == journal.len()
            {
                bytes.truncate(bytes.len() / 2);
            }
            live.apply(&step);
            durable.make_durable(&live, &step);
        }
        if survives.last_name
            && let Some(step @ (Step::Rename { to: name, .. } | Step::Create { name, .. })) = journal.last()
        {
            durable.names.insert(name.clone(), live.names[name]);
            if let Step::Rename { from, .. } = step {
                durable.names.remove(from);
            }
        }
        let names = if survives.names { live.names } else { durable.names };
        let bytes = if survives.bytes { live.bytes } else { durable.bytes };
        Self::of_files(&names.into_iter().map(|(name, file)| (name, bytes[file].clone())).collect())
    }
}

fn directory(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(dir, _)| dir)
}

impl Tree {
    fn apply(&mut self, step: &Step) {
        self.changes += 1;
        match step {
            Step::Create { name, file } => {
                self.names.insert(name.clone(), *file);
                self.bytes.push(Vec::new());
            }
            Step::Append { file, bytes } => self.bytes[*file].extend_from_slice(bytes),
            Step::Rename { from, to } => {
                if let Some(file) = self.names.remove(from) {
                    self.names.insert(to.clone(), file);
                }
            }
            Step::Remove { name } => {
                self.names.remove(name);
            }
            Step::CreateDir { .. } | Step::Sync { .. } | Step::SyncDir { .. } => {}
        }
    }

    fn make_durable(&mut self, live: &Tree, step: &Step) {
        self.bytes.resize(live.bytes.len(), Vec::new());
        match step {
            Step::Sync { file } => self.bytes[*file].clone_from(&live.bytes[*file]),
            Step::SyncDir { dir } => {
                self.names.retain(|name, _| directory(name) != dir);
                let synced = live.names.iter().filter(|(name, _)| directory(name) == dir);
                self.names.extend(synced.map(|(name, &file)| (name.clone(), file)));
            }
            _ => {}
        }
    }
}

fn missing(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("no file {name}"))
}

impl Inner {
    fn step(&mut self, step: Step) {
        self.tree.apply(&step);
        self.journal.push(step);
    }

    fn file(&self, name: &str) -> io::Result<usize> {
        self.tree.names.get(name).copied().ok_or_else(|| missing(name))
    }
}

impl Backend for Memory {
    fn root(&self) -> &Path {
        &self.root
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn WriteFile>> {
        let mut inner = self.inner();
        if inner.tree.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = inner.tree.bytes.len();
        inner.step(Step::Create { name: name.into(), file });
        Ok(Box::new(MemoryFile { memory: self.clone(), file, holds: false }))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn ReadFile>> {
        let file = self.inner().file(name)?;
        Ok(Box::new(MemoryFile { memory: self.clone(), file, holds: false }))
    }

    fn create_dir(&self, name: &str) -> io::Result<()> {
        self.inner().step(Step::CreateDir { name: name.into() });
        Ok(())
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let inner = self.inner();
        let names = inner.tree.names.keys().filter(|name| directory(name) == dir);
        Ok(names.map(|name| name.rsplit('/').next().unwrap_or(name).to_string()).collect())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut inner = self.inner();
        inner.file(from)?;
        inner.step(Step::Rename { from: from.into(), to: to.into() });
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut inner = self.inner();
        inner.file(name)?;
        inner.step(Step::Remove { name: name.into() });
        Ok(())
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.inner().step(Step::SyncDir { dir: dir.into() });
        Ok(())
    }

    fn stamp(&self, _dir: &str) -> io::Result<Option<u64>> {
        Ok(Some(self.inner().tree.changes))
    }

    fn try_lock(&self, name: &str) -> io::Result<Option<Box<dyn Send + Sync>>> {
        if !self.inner().locked.insert(name.into()) {
            return Ok(None);
        }
        Ok(Some(Box::new(Lock { memory: self.clone(), name: name.into() })))
    }

    fn is_held(&self, name: &str) -> io::Result<bool> {
        let inner = self.inner();
        Ok(inner.held.contains(&inner.file(name)?))
    }
}

struct Lock {
    memory: Memory,
    name: String,
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.memory.inner().locked.remove(&self.name);
    }
}

struct MemoryFile {
    memory: Memory,
    file: usize,
    holds: bool,
}

impl WriteFile for MemoryFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.memory.inner().step(Step::Append { file: self.file, bytes: bytes.to_vec() });
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.memory.inner().step(Step::Sync { file: self.file });
        Ok(())
    }

    fn hold(&mut self) -> io::Result<()> {
        self.holds = true;
        self.memory.inner().held.insert(self.file);
        Ok(())
    }
}

impl ReadFile for MemoryFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.memory.inner().tree.bytes[self.file].len() as u64)
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let inner = self.memory.inner();
        let bytes = &inner.tree.bytes[self.file];
        let start = usize::try_from(offset).ok().filter(|&start| start <= bytes.len());
        let found = start.and_then(|start| bytes.get(start..start.checked_add(out.len())?));
        out.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        if self.holds {
            self.memory.inner().held.remove(&self.file);
        }
    }
}
