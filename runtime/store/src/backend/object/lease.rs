//! Leases: locks and holds that end some time after their holder, without any clock that two machines share.
//!
//! A lease is a small object with its holder's random number and a count. The holder adds one to the count several
//! times in each lease time, always on the condition that the object is still what it wrote last; so it learns at once
//! when somebody has taken or broken its lease, and a write that succeeds proves that nobody had until then.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use object_store::{
    Error, ObjectStore, ObjectStoreExt, PutMode, PutResult, Result, UpdateVersion, path::Path as ObjectPath,
};
use serde::{Deserialize, Serialize};
use tokio::{sync::Mutex, task::JoinHandle};

use super::{Connection, answer::is_refused, answer::to_io};

/// A lease is renewed so often in its time that a few lost renewals do not end it.
const RENEWALS: u32 = 5;
/// Giving a lease back is a courtesy: it ends by itself.
const RELEASE_LIMIT: Duration = Duration::from_secs(5);

/// What is in a lease's object.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub(super) struct Record {
    /// Random, another one for each lease.
    holder: String,
    count: u64,
    pub lease_ms: u64,
    pub state: State,
}

#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    Held,
    /// Given back; the next one may take it.
    Released,
    /// Taken for dead by another.
    Broken,
}

/// What happens to the object when its holder is done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// It stays, released: others may be about to take it, and a removal cannot be made conditional.
    Release,
    /// It is removed: no other ever takes it.
    Remove,
}

/// A lease as its holder wrote it last.
pub(super) struct Held {
    store: Arc<dyn ObjectStore>,
    path: ObjectPath,
    record: Record,
    version: UpdateVersion,
}

pub(super) enum Taken {
    Ours(Held),
    SomebodyElses,
}

/// The lease's record and its version; `None` when there is none.
pub(super) async fn look(store: &dyn ObjectStore, path: &ObjectPath) -> Result<Option<(Record, UpdateVersion)>> {
    let got = match store.get(path).await {
        Err(Error::NotFound { .. }) => return Ok(None),
        got => got?,
    };
    let version = UpdateVersion { e_tag: got.meta.e_tag.clone(), version: got.meta.version.clone() };
    let bytes = got.bytes().await?;
    if bytes.is_empty() {
        // The lock of a store that was copied from a directory.
        let record = Record { holder: String::new(), count: 0, lease_ms: 0, state: State::Released };
        return Ok(Some((record, version)));
    }
    let record = serde_json::from_slice(&bytes)
        .map_err(|error| Error::Generic { store: "lease", source: format!("{path} is no lease: {error}").into() })?;
    Ok(Some((record, version)))
}

async fn put(store: &dyn ObjectStore, path: &ObjectPath, record: &Record, mode: PutMode) -> Result<UpdateVersion> {
    let bytes =
        serde_json::to_vec(record).map_err(|error| Error::Generic { store: "lease", source: Box::new(error) })?;
    let PutResult { e_tag, version, .. } = store.put_opts(path, bytes.into(), mode.into()).await?;
    Ok(UpdateVersion { e_tag, version })
}

/// Takes the lease at `path`, if `mode` still allows it.
pub(super) async fn take(
    store: Arc<dyn ObjectStore>,
    path: ObjectPath,
    mode: PutMode,
    lease: Duration,
) -> Result<Taken> {
    let record = Record { holder: random()?, count: 0, lease_ms: lease.as_millis() as u64, state: State::Held };
    match put(&*store, &path, &record, mode).await {
        Ok(version) => Ok(Taken::Ours(Held { store, path, record, version })),
        // A first answer that was lost on the way makes the second one a refusal.
        Err(error) if is_refused(&error) => Ok(match look(&*store, &path).await? {
            Some((found, version)) if found == record => Taken::Ours(Held { store, path, record, version }),
            _ => Taken::SomebodyElses,
        }),
        Err(error) => Err(error),
    }
}

/// Breaks a lease whose holder seems to be dead. False when it has been renewed meanwhile.
pub(super) async fn break_dead(store: &dyn ObjectStore, path: &ObjectPath, e_tag: &str) -> Result<bool> {
    let Some((mut record, version)) = look(store, path).await? else { return Ok(true) };
    if version.e_tag.as_deref() != Some(e_tag) {
        return Ok(record.state != State::Held);
    }
    record.state = State::Broken;
    match put(store, path, &record, PutMode::Update(version)).await {
        Ok(_) => Ok(true),
        Err(error) if is_refused(&error) => Ok(false),
        // Whoever may only read can see that it is dead, and cannot remove anything either.
        Err(Error::PermissionDenied { .. } | Error::Unauthenticated { .. }) => Ok(true),
        Err(error) => Err(error),
    }
}

fn random() -> Result<String> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| Error::Generic { store: "lease", source: Box::new(io::Error::from(errno)) })?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl Held {
    /// Writes the record with the next count. False: the lease is no longer ours.
    async fn write(&mut self, state: State) -> Result<bool> {
        // Twice: a write that was given up on the way may have arrived all the same.
        for _ in 0..2 {
            let next = Record { count: self.record.count + 1, state, ..self.record.clone() };
            match put(&*self.store, &self.path, &next, PutMode::Update(self.version.clone())).await {
                Ok(version) => {
                    (self.record, self.version) = (next, version);
                    return Ok(true);
                }
                Err(error) if is_refused(&error) || matches!(error, Error::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
            match look(&*self.store, &self.path).await? {
                Some((found, version)) if found.holder == self.record.holder && found.state == State::Held => {
                    (self.record, self.version) = (found, version);
                }
                _ => return Ok(false),
            }
        }
        Ok(false)
    }
}

/// A lease that is renewed until it is dropped.
pub(super) struct Lease {
    connection: Arc<Connection>,
    held: Arc<Mutex<Held>>,
    lost: Arc<AtomicBool>,
    renewals: JoinHandle<()>,
    end: End,
}

impl Lease {
    pub fn keep(connection: Arc<Connection>, held: Held, end: End) -> Self {
        let (held, lost) = (Arc::new(Mutex::new(held)), Arc::new(AtomicBool::new(false)));
        let every = connection.lease / RENEWALS;
        let renewals = connection.runtime.spawn(renew_until_lost(held.clone(), lost.clone(), every));
        Self { connection, held, lost, renewals, end }
    }

    /// Whether a renewal has found that somebody took or broke it.
    pub fn is_lost(&self) -> bool {
        self.lost.load(SeqCst)
    }

    /// Proves by a renewal that the lease is ours.
    pub fn check(&self) -> io::Result<()> {
        let ours = self.connection.wait_at_most(self.connection.lease, async {
            Ok(!self.is_lost() && self.held.lock().await.write(State::Held).await?)
        })?;
        if ours {
            return Ok(());
        }
        self.lost.store(true, SeqCst);
        let why = "its lease ran out before it was renewed, and another process has taken this one for dead";
        Err(io::Error::new(io::ErrorKind::TimedOut, why))
    }
}

/// An answer that does not come says nothing about the lease: the next renewal will tell.
async fn renew_until_lost(held: Arc<Mutex<Held>>, lost: Arc<AtomicBool>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        if let Ok(false) = held.lock().await.write(State::Held).await {
            lost.store(true, SeqCst);
            return;
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.renewals.abort();
        if self.is_lost() {
            return;
        }
        // Best effort: a lease that is not given back ends by itself.
        let _ = self.connection.wait_at_most(RELEASE_LIMIT, async {
            let mut held = self.held.lock().await;
            match self.end {
                End::Release => held.write(State::Released).await.map(drop),
                End::Remove => held.store.delete(&held.path).await,
            }
        });
    }
}

/// What the store makes of an error of [`look`].
pub(super) fn look_now(connection: &Connection, path: &ObjectPath) -> io::Result<Option<(Record, UpdateVersion)>> {
    connection.runtime.block_on(look(&*connection.store, path)).map_err(to_io)
}
