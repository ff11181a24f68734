//! A prefix of a bucket: a store on S3, or on anything else that the `object_store` crate speaks to.
//!
//! Objects have no append, no rename, no locks and no open files, so each is made of what they have: whole objects that
//! appear at once, and conditional writes ("only if it is not there", "only if it is still what I read").
//!
//! - *create* puts an empty object, only if none is there; the bytes gather in memory and go up in parts of 8 MiB, a few
//!   at a time (upload.rs); the object is whole at `sync` or `hold`, and has the old bytes before.
//! - *rename* is a copy by the server, only if the new name is not taken, and then a removal. Between the two, and after a
//!   crash, both names are seen; of the pairs that the store renames, the one that counts decides (`.new` beside
//!   `.manifest`, `.failing` beside `.failed`), and the next attempt to begin removes the other.
//! - *locks and holds* are leases (lease.rs): objects that their holder changes every few seconds, and that others take
//!   over, or break, after they have seen them unchanged for the whole lease time (watch.rs). No two clocks are compared.
//! - *stamp* is a digest of the names; *sync_dir* has nothing to do, since what was answered is durable.
//!
//! Fencing. A writer that is paused for longer than its lease may be taken for dead, and its packs removed. So whoever
//! takes it for dead first changes its lease, then removes the manifest that waits for its rename, and only then the
//! packs; and the writer proves with a conditional write that its lease is its own right before it renames, gives up a
//! rename that takes half the lease time, and copies on the server, which fails when the source is gone. What remains
//! is a rename whose last request is already under way when the lease ends. Its checkpoint would be visible without
//! packs: reading it is an error and `ckpt verify` names it. Another checkpoint could only refer to them if its writer
//! looked in the moment between. A number is never given twice, because a row is renamed only to a name that is free.
//!
//! A connection is one small tokio runtime; its threads renew leases while the store's own threads wait for answers.

mod answer;
mod lease;
mod open;
mod read;
mod upload;
mod watch;

use std::{
    collections::{HashMap, hash_map::DefaultHasher},
    fmt,
    hash::{Hash, Hasher},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

pub use object_store::aws::AmazonS3Builder;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, path::Path as ObjectPath};
use tokio::runtime::Runtime;

use super::{Backend, ReadFile, WriteFile};
use answer::to_io;
use lease::{End, Lease, Taken};
use watch::Watch;

/// How long a lease lasts if nothing else is asked for. Locks wait for 30 seconds, so a dead holder's ends before.
const LEASE: Duration = Duration::from_secs(20);
/// Where holds are kept; no directory of the store.
const LEASES: &str = "leases";

/// A back end for a prefix of a bucket. Clones are the same connection.
#[derive(Clone)]
pub struct Object(Arc<Connection>);

/// What a back end, its files and its leases have in common.
struct Connection {
    root: PathBuf,
    prefix: ObjectPath,
    store: Arc<dyn ObjectStore>,
    runtime: Runtime,
    lease: Duration,
    /// The leases of files that this process holds, by the file's name.
    holds: Mutex<HashMap<String, Hold>>,
    watch: Mutex<Watch>,
}

/// The lease of a held file, which is another one after a rename. Empty when the file is not held.
type Hold = Arc<Mutex<Option<Lease>>>;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Object {
    /// The objects under `prefix` in `store`, which error messages call `root`. A lease lasts for `lease`.
    ///
    /// # Errors
    ///
    /// When no threads can be started.
    pub fn on(store: Arc<dyn ObjectStore>, root: &str, prefix: &str, lease: Option<Duration>) -> io::Result<Self> {
        let mut threads = tokio::runtime::Builder::new_multi_thread();
        let runtime = threads.worker_threads(2).thread_name("ckpt-object").enable_all().build()?;
        Ok(Self(Arc::new(Connection {
            root: root.trim_end_matches('/').into(),
            prefix: ObjectPath::from(prefix),
            store,
            runtime,
            lease: lease.unwrap_or(LEASE),
            holds: Mutex::default(),
            watch: Mutex::default(),
        })))
    }
}

impl Connection {
    fn path(&self, name: &str) -> ObjectPath {
        name.split('/').filter(|part| !part.is_empty()).fold(self.prefix.clone(), |path, part| path.join(part))
    }

    fn lease_path(&self, name: &str) -> ObjectPath {
        self.path(&format!("{LEASES}/{name}"))
    }

    /// Waits for an answer on a thread of the caller.
    fn wait<T>(&self, answer: impl Future<Output = object_store::Result<T>>) -> io::Result<T> {
        self.runtime.block_on(answer).map_err(to_io)
    }

    /// Waits no longer than `limit`. A process that slept beyond it sends no further request.
    fn wait_at_most<T>(&self, limit: Duration, answer: impl Future<Output = object_store::Result<T>>) -> io::Result<T> {
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                () = tokio::time::sleep(limit) => {
                    Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {limit:?}")))
                }
                answer = answer => answer.map_err(to_io),
            }
        })
    }

    /// Takes the lease at `path`; `None` when somebody else was quicker.
    fn take(self: &Arc<Self>, path: ObjectPath, mode: PutMode, end: End) -> io::Result<Option<Lease>> {
        let taken = self.runtime.block_on(lease::take(self.store.clone(), path, mode, self.lease));
        Ok(match taken.map_err(to_io)? {
            Taken::Ours(held) => Some(Lease::keep(self.clone(), held, end)),
            Taken::SomebodyElses => None,
        })
    }

    fn list(&self, dir: &str) -> io::Result<Vec<(String, Option<String>)>> {
        let path = self.path(dir);
        let found = self.wait(self.store.list_with_delimiter(Some(&path)))?;
        let last = |path: &ObjectPath| path.filename().unwrap_or_default().to_owned();
        let objects = found.objects.iter().map(|object| (last(&object.location), object.e_tag.clone()));
        let dirs = found.common_prefixes.iter().map(|dir| (last(dir), None));
        Ok(objects.chain(dirs).collect())
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({})", self.0.root.display())
    }
}

impl Backend for Object {
    fn root(&self) -> &Path {
        &self.0.root
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn WriteFile>> {
        let path = self.0.path(name);
        self.0.wait(self.0.store.put_opts(&path, Vec::new().into(), PutMode::Create.into()))?;
        Ok(Box::new(upload::Upload::new(self.0.clone(), name, path)))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn ReadFile>> {
        Ok(Box::new(read::Download::open(self.0.clone(), self.0.path(name))?))
    }

    fn create_dir(&self, _name: &str) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let names = self.0.list(dir)?.into_iter().map(|(name, _)| name);
        Ok(names.filter(|name| !dir.is_empty() || name != LEASES).collect())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let hold = locked(&self.0.holds).get(from).cloned();
        let moved = match &hold {
            Some(_) => {
                // Before the copy: nobody may ever see the new name without its lease.
                let taken = self.0.take(self.0.lease_path(to), PutMode::Create, End::Remove)?;
                Some(taken.ok_or(io::ErrorKind::AlreadyExists)?)
            }
            None => None,
        };
        let (old, new) = (self.0.path(from), self.0.path(to));
        self.0.wait_at_most(self.0.lease / 2, self.0.store.copy_if_not_exists(&old, &new))?;
        if let (Some(hold), Some(moved)) = (hold, moved) {
            let mut holds = locked(&self.0.holds);
            holds.remove(from);
            holds.insert(to.to_owned(), hold.clone());
            drop(holds);
            let before = locked(&hold).replace(moved);
            drop(before);
        }
        // The new name counts; an old one that stays is a leftover like that of a crash.
        let _ = self.0.wait(self.0.store.delete(&old));
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        locked(&self.0.watch).forget(name);
        // The lease first: what a crash leaves in between reads as held by nobody, and is removed again.
        self.0.wait(self.0.store.delete(&self.0.lease_path(name))).or_else(not_there_is_fine)?;
        self.0.wait(self.0.store.delete(&self.0.path(name)))
    }

    fn sync_dir(&self, _dir: &str) -> io::Result<()> {
        Ok(())
    }

    fn stamp(&self, dir: &str) -> io::Result<Option<u64>> {
        let mut names = self.0.list(dir)?;
        names.sort();
        let mut digest = DefaultHasher::new();
        names.hash(&mut digest);
        Ok(Some(digest.finish()))
    }

    fn locks_are_leases(&self) -> bool {
        true
    }

    fn try_lock(&self, name: &str) -> io::Result<Option<Box<dyn Send + Sync>>> {
        let Some(mode) = self.0.way_to_take(name)? else { return Ok(None) };
        let taken = self.0.take(self.0.path(name), mode, End::Release)?;
        Ok(taken.map(|lease| Box::new(lease) as Box<dyn Send + Sync>))
    }

    fn is_held(&self, name: &str) -> io::Result<bool> {
        if let Some(hold) = locked(&self.0.holds).get(name).cloned() {
            return Ok(locked(&hold).as_ref().is_some_and(|lease| !lease.is_lost()));
        }
        self.0.watch_until_sure(name)
    }
}

fn not_there_is_fine(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}
