//! Creating and opening a store.
//!
//! A store is there when its header is: the header is written last, under the store's lock, so that two processes may
//! create one at once and a crash in between leaves a directory that still counts as empty. A directory with anything
//! else in it does not become a store. Opening reads 512 bytes, and of an encrypted store its own key; the index is loaded
//! by the first who needs it.

use std::{path::Path, sync::Arc, time::SystemTime};

use super::{Shared, Store, keys};
use crate::{
    Result, StoreError, StoreOptions,
    backend::{Backend, Local},
    encryption::store_key::StoreKey,
    fault,
    files::{DIRECTORIES, Files, HEADER, HEADER_NEW, KEYS, LOCK},
    format::header::Header,
    index::SharedIndex,
    pack::opened::OpenPacks,
};

impl Store {
    /// Opens the store in `dir`, and makes one first where nothing is there or the directory is empty.
    pub fn create_or_open(dir: &Path) -> Result<Store> {
        Self::create_or_open_with(dir, &StoreOptions::default())
    }

    /// [`Store::create_or_open`] with choices.
    pub fn create_or_open_with(dir: &Path, options: &StoreOptions) -> Result<Store> {
        Self::create_or_open_on(Arc::new(Local::create(dir, options.trust_owner)?), options)
    }

    /// [`Store::create_or_open`] on any back end.
    pub fn create_or_open_on(backend: Arc<dyn Backend>, options: &StoreOptions) -> Result<Store> {
        let files = Files::new(backend);
        if read_header(&files)?.is_none() {
            initialise(&files, options)?;
        }
        Self::open_files(files, options)
    }

    /// Opens the store in `dir`.
    pub fn open(dir: &Path) -> Result<Store> {
        Self::open_with(dir, &StoreOptions::default())
    }

    /// [`Store::open`] with choices.
    pub fn open_with(dir: &Path, options: &StoreOptions) -> Result<Store> {
        Self::open_on(Arc::new(Local::open(dir, options.trust_owner)?), options)
    }

    /// [`Store::open`] on any back end.
    pub fn open_on(backend: Arc<dyn Backend>, options: &StoreOptions) -> Result<Store> {
        Self::open_files(Files::new(backend), options)
    }

    fn open_files(files: Files, options: &StoreOptions) -> Result<Store> {
        let Some(header) = read_header(&files)? else {
            return Err(StoreError::NotAStore { path: files.path(""), found: "it has no file named header".into() });
        };
        let store_key = store_key(&files, &header, options)?;
        let files = store_key.iter().fold(files, |files, key| files.encrypted(key.clone()));
        let (options, index, open_packs, pace) =
            (*options, SharedIndex::default(), OpenPacks::default(), Default::default());
        Ok(Store { shared: Arc::new(Shared { files, options, header, store_key, open_packs, pace, index }) })
    }
}

fn read_header(files: &Files) -> Result<Option<Header>> {
    files.open_if_there(HEADER)?.as_ref().map(Header::read).transpose()
}

/// The key of an encrypted store, by the key that was given; `None` for a store that is not.
fn store_key(files: &Files, header: &Header, options: &StoreOptions) -> Result<Option<StoreKey>> {
    let path = || files.path("");
    match (header.proof, options.key) {
        (None, None) => Ok(None),
        (None, Some(_)) if options.accept_plain => Ok(None),
        (None, Some(_)) => Err(StoreError::NotEncrypted { path: path() }),
        (Some(_), None) => Err(StoreError::KeyNeeded { path: path() }),
        (Some(_), Some(key)) => {
            let store_key = keys::open(files, &header.store_id, &key)?;
            header.check_proof(&store_key, &files.open(HEADER)?)?;
            Ok(Some(store_key))
        }
    }
}

fn initialise(files: &Files, options: &StoreOptions) -> Result<()> {
    refuse_other_files(files)?;
    let _lock = files.lock()?;
    if read_header(files)?.is_some() {
        return Ok(());
    }
    for dir in DIRECTORIES {
        files.create_dir(dir)?;
        if let Some(name) = files.list(dir)?.first() {
            let found = format!("{dir}/{name} is there, but no file named header");
            return Err(StoreError::NotAStore { path: files.path(""), found });
        }
    }
    files.remove(HEADER_NEW, fault::LEFTOVER_REMOVE)?;
    keys::remove_leftovers(files)?;
    let header = new_header(files, options)?;
    let mut output = files.create(HEADER_NEW, fault::HEADER_CREATE)?;
    output.append(&header.encode(), fault::HEADER_WRITE)?;
    output.sync(fault::HEADER_SYNC)?;
    files.rename(HEADER_NEW, HEADER, fault::HEADER_RENAME)?;
    files.sync_dir("", fault::ROOT_SYNC)
}

/// Written beside the store by the parts of ckpt that have something to say before the first checkpoint.
const LOG: &str = "log";

fn refuse_other_files(files: &Files) -> Result<()> {
    let ours = [HEADER, HEADER_NEW, LOCK, LOG];
    let is_ours = |name: &String| DIRECTORIES.contains(&name.as_str()) || name == KEYS || ours.contains(&name.as_str());
    match files.list("")?.into_iter().find(|name| !is_ours(name)) {
        None => Ok(()),
        Some(name) => {
            let found = format!("it holds other files ({name})");
            Err(StoreError::NotAStore { path: files.path(""), found })
        }
    }
}

/// The header of a store that is about to be made; the file of its first key is written where it is to be encrypted.
fn new_header(files: &Files, options: &StoreOptions) -> Result<Header> {
    let mut store_id = [0; 16];
    rustix::rand::getrandom(&mut store_id, rustix::rand::GetRandomFlags::empty()).map_err(|error| StoreError::Io {
        path: files.path(HEADER),
        operation: "draw a random number for",
        source: error.into(),
    })?;
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let header = Header { store_id, created_unix_s: since_1970.as_secs(), digest: options.digest, proof: None };
    let Some(key) = options.key else { return Ok(header) };
    Ok(header.proved_by(&keys::begin(files, &store_id, &key)?))
}
