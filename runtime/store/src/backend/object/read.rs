//! A file being read: one request to open it, and one for each read.
//!
//! Opening brings the first bytes along, which is all of a row or of a small manifest. A later read asks for the version
//! that was opened, so that bytes of two versions are never mixed.

use std::{io, sync::Arc};

use object_store::{Error, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, path::Path as ObjectPath};

use super::{Connection, answer::to_io};
use crate::backend::ReadFile;

/// Bytes that opening brings along.
const FIRST_BYTES: u64 = 64 << 10;

pub(super) struct Download {
    connection: Arc<Connection>,
    path: ObjectPath,
    meta: ObjectMeta,
    first: Vec<u8>,
}

impl Download {
    pub fn open(connection: Arc<Connection>, path: ObjectPath) -> io::Result<Self> {
        let opened = connection.runtime.block_on(open(&*connection.store, &path));
        let (meta, first) = opened.map_err(to_io)?;
        Ok(Self { connection, path, meta, first })
    }
}

async fn open(store: &dyn ObjectStore, path: &ObjectPath) -> object_store::Result<(ObjectMeta, Vec<u8>)> {
    let options = GetOptions { range: Some(GetRange::Bounded(0..FIRST_BYTES)), ..GetOptions::default() };
    match store.get_opts(path, options).await {
        Ok(got) => {
            let meta = got.meta.clone();
            Ok((meta, got.bytes().await?.to_vec()))
        }
        Err(error @ (Error::NotFound { .. } | Error::PermissionDenied { .. })) => Err(error),
        // An empty object has no range.
        Err(_) => Ok((store.head(path).await?, Vec::new())),
    }
}

impl ReadFile for Download {
    fn length(&self) -> io::Result<u64> {
        Ok(self.meta.size)
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(out.len() as u64).filter(|end| *end <= self.meta.size);
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        if out.is_empty() {
            return Ok(());
        }
        if let Some(found) = self.first.get(offset as usize..end as usize) {
            out.copy_from_slice(found);
            return Ok(());
        }
        let options = GetOptions {
            range: Some(GetRange::Bounded(offset..end)),
            if_match: self.meta.e_tag.clone(),
            ..GetOptions::default()
        };
        let bytes =
            self.connection.wait(async { self.connection.store.get_opts(&self.path, options).await?.bytes().await })?;
        if bytes.len() != out.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        out.copy_from_slice(&bytes);
        Ok(())
    }
}
