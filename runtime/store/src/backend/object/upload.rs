//! A file being written: its bytes gather in memory and go up in parts.
//!
//! Up to one part, it is put as a whole at `sync`. Beyond, an upload in parts begins, with so few under way at once that
//! memory stays bounded; the object appears, whole, when the last part is confirmed. An upload that is dropped is given
//! up, which removes its parts; those of a killed process stay until the bucket's own rule for them ends (FORMAT.md).

use std::{
    io, mem,
    sync::{Arc, Mutex},
    time::Duration,
};

use object_store::{ObjectStoreExt, PutMode, WriteMultipart, path::Path as ObjectPath};

use super::{Connection, Hold, lease::End, locked};
use crate::backend::WriteFile;

const PART_BYTES: usize = 8 << 20;
/// With the part that gathers, a file takes 40 MiB at most.
const PARTS_AT_ONCE: usize = 4;
const GIVE_UP_LIMIT: Duration = Duration::from_secs(5);

pub(super) struct Upload {
    connection: Arc<Connection>,
    path: ObjectPath,
    name: String,
    /// For `Sync` alone: an upload in parts belongs to one thread at a time, and only `&mut self` gets at it.
    stage: Mutex<Stage>,
    hold: Hold,
}

enum Stage {
    Gathering(Vec<u8>),
    InParts(WriteMultipart),
    /// The object is whole.
    Complete,
    Failed,
}

impl Upload {
    pub fn new(connection: Arc<Connection>, name: &str, path: ObjectPath) -> Self {
        let hold = Arc::new(Mutex::new(None));
        Self { connection, path, name: name.into(), stage: Mutex::new(Stage::Gathering(Vec::new())), hold }
    }

    fn begin_parts(&self, gathered: &[u8]) -> io::Result<Stage> {
        let upload = self.connection.wait(self.connection.store.put_multipart(&self.path))?;
        let mut parts = WriteMultipart::new_with_chunk_size(upload, PART_BYTES);
        self.write_parts(&mut parts, gathered)?;
        Ok(Stage::InParts(parts))
    }

    fn write_parts(&self, parts: &mut WriteMultipart, bytes: &[u8]) -> io::Result<()> {
        for bytes in bytes.chunks(PART_BYTES) {
            self.connection.wait(async {
                parts.wait_for_capacity(PARTS_AT_ONCE).await?;
                parts.write(bytes);
                Ok(())
            })?;
        }
        Ok(())
    }

    fn take_stage(&mut self) -> Stage {
        mem::replace(&mut *locked(&self.stage), Stage::Failed)
    }

    fn give_up(&self, parts: WriteMultipart) {
        // Best effort: the bucket's rule for unfinished uploads removes what stays.
        let _ = self.connection.wait_at_most(GIVE_UP_LIMIT, parts.abort());
    }
}

impl WriteFile for Upload {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let stage = match self.take_stage() {
            Stage::Gathering(mut gathered) => {
                gathered.extend_from_slice(bytes);
                if gathered.len() <= PART_BYTES { Stage::Gathering(gathered) } else { self.begin_parts(&gathered)? }
            }
            Stage::InParts(mut parts) => match self.write_parts(&mut parts, bytes) {
                Ok(()) => Stage::InParts(parts),
                Err(error) => {
                    self.give_up(parts);
                    return Err(error);
                }
            },
            Stage::Complete | Stage::Failed => {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "an object cannot be appended to"));
            }
        };
        *locked(&self.stage) = stage;
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        match self.take_stage() {
            Stage::Gathering(gathered) => {
                drop(self.connection.wait(self.connection.store.put(&self.path, gathered.into()))?);
            }
            Stage::InParts(parts) => drop(self.connection.wait(parts.finish())?),
            Stage::Complete => {}
            Stage::Failed => return Err(io::Error::other("an earlier write of this object failed")),
        }
        *locked(&self.stage) = Stage::Complete;
        Ok(())
    }

    fn hold(&mut self) -> io::Result<()> {
        self.sync()?;
        let taken = self.connection.take(self.connection.lease_path(&self.name), PutMode::Create, End::Remove)?;
        *locked(&self.hold) = Some(taken.ok_or(io::ErrorKind::AlreadyExists)?);
        locked(&self.connection.holds).insert(self.name.clone(), self.hold.clone());
        Ok(())
    }

    fn check_hold(&self) -> io::Result<()> {
        match &*locked(&self.hold) {
            Some(lease) => lease.check(),
            None => Err(io::Error::other("it is not held")),
        }
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Stage::InParts(parts) = self.take_stage() {
            self.give_up(parts);
        }
        locked(&self.connection.holds).retain(|_, hold| !Arc::ptr_eq(hold, &self.hold));
        let lease = locked(&self.hold).take();
        drop(lease);
    }
}
