//! The checkpoint store (interface only, replaced by the implementation).
#![forbid(unsafe_code)]
#![allow(missing_docs, unused_variables, clippy::all)]
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
pub mod fault {
    pub fn set_hook(_: fn(&'static str)) {}
    pub const FAULT_POINTS: &[&str] = &[];
}
pub const PAGE_BYTES: usize = 4096;
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    #[error("{operation} {}: {source}", path.display())]
    Io { path: PathBuf, operation: &'static str, source: std::io::Error },
    #[error("corrupt {}", path.display())]
    Corrupt { path: PathBuf, offset: u64, what: &'static str, expected: String, found: String },
    #[error("{} is not a store", path.display())]
    NotAStore { path: PathBuf },
    #[error("no checkpoint {id}")]
    NoSuchCheckpoint { id: u64, newest: Option<u64> },
    #[error("foreign")]
    ForeignOwner { path: PathBuf, owner: u32, user: u32 },
}
pub type Result<T> = std::result::Result<T, StoreError>;
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct PageKey([u8; 28]);
impl PageKey {
    pub const ZERO: PageKey = PageKey([0; 28]);
    pub fn of(page: &[u8]) -> PageKey {
        todo!()
    }
    pub fn is_zero(&self) -> bool {
        todo!()
    }
}
#[derive(Clone, Debug, Default)]
pub struct PageList {}
impl PageList {
    pub fn new() -> Self {
        todo!()
    }
    pub fn get(&self, page: u64) -> PageKey {
        todo!()
    }
    pub fn set(&mut self, page: u64, key: PageKey) {
        todo!()
    }
    pub fn set_run(&mut self, first: u64, keys: &[PageKey]) {
        todo!()
    }
    pub fn clear_run(&mut self, first: u64, pages: u64) {
        todo!()
    }
    pub fn iter(&self) -> impl Iterator<Item = (u64, PageKey)> {
        std::iter::empty()
    }
    pub fn page_count(&self) -> u64 {
        todo!()
    }
    pub fn slice(&self, first: u64, pages: u64) -> PageList {
        todo!()
    }
}
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct PageListRef {}
pub struct Store {}
impl Store {
    pub fn create_or_open(dir: &Path) -> Result<Store> {
        todo!()
    }
    pub fn open(dir: &Path) -> Result<Store> {
        todo!()
    }
    pub fn dir(&self) -> &Path {
        todo!()
    }
    pub fn begin(&self, start: AttemptStart) -> Result<Attempt> {
        todo!()
    }
    pub fn attempts(&self) -> Result<Vec<AttemptRow>> {
        todo!()
    }
    pub fn newest_sealed(&self, job: Option<&str>) -> Result<Option<u64>> {
        todo!()
    }
    pub fn manifest(&self, id: u64) -> Result<Manifest> {
        todo!()
    }
    pub fn page_list(&self, r: &PageListRef) -> Result<PageList> {
        todo!()
    }
    pub fn read_pages(&self, keys: &[PageKey], out: &mut [u8]) -> Result<()> {
        todo!()
    }
}
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct AttemptStart {
    pub job: String,
    pub name: String,
    pub trigger: String,
    pub started_unix_ms: u64,
    pub processes: u32,
}
pub struct Attempt {}
impl Attempt {
    pub fn id(&self) -> u64 {
        todo!()
    }
    pub fn write_pages(&mut self, pages: &[u8]) -> Result<Vec<PageKey>> {
        todo!()
    }
    pub fn write_page_list(&mut self, list: &PageList) -> Result<PageListRef> {
        todo!()
    }
    pub fn seal(self, end: AttemptEnd, state: &[u8]) -> Result<AttemptRow> {
        todo!()
    }
    pub fn fail(self, reason: &str, stop_ms: f64) -> Result<()> {
        todo!()
    }
}
#[derive(Clone, Debug)]
pub struct AttemptEnd {
    pub memory_bytes: u64,
    pub stop_ms: f64,
    pub total_ms: f64,
    pub processes: u32,
}
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct AttemptRow {
    pub id: u64,
    pub job: String,
    pub name: String,
    pub trigger: String,
    pub started_unix_ms: u64,
    pub sealed_unix_s: Option<u64>,
    pub processes: u32,
    pub memory_bytes: u64,
    pub new_bytes: u64,
    pub stop_ms: f64,
    pub total_ms: f64,
    pub state: AttemptState,
    pub reason: String,
    pub written: PageCounts,
}
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
pub enum AttemptState {
    Writing,
    Sealed,
    Failed,
}
#[derive(Serialize, Deserialize, Clone, Copy, Default, Debug)]
pub struct PageCounts {
    pub zero_bytes: u64,
    pub duplicate_bytes: u64,
    pub new_bytes: u64,
    pub compressed_bytes: u64,
}
pub struct Manifest {
    pub id: u64,
    pub row: AttemptRow,
    pub state: Vec<u8>,
}
