//! A back end that fails when a test says so: the n-th operation, all from there on, every one of a kind; or is slow.
//!
//! It stands in front of any other back end and changes nothing while no fault is set. A write that fails leaves a part
//! of its bytes, as a full disk does. Reading fails only where a kind is named: `fail_at` counts what changes something.

use std::{
    fmt, io,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{Backend, ReadFile, Room, WriteFile};

/// What a back end can be asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each is the back-end operation of the same name")]
pub enum Operation {
    Create,
    Open,
    CreateDir,
    List,
    Rename,
    Remove,
    SyncDir,
    Stamp,
    TryLock,
    Room,
    IsHeld,
    Append,
    Sync,
    Hold,
    CheckHold,
    Length,
    Read,
}

impl Operation {
    /// Whether `fail_at` counts it. Removing is left out: it is how a failed attempt gives its space back.
    fn counts(self) -> bool {
        use Operation::{Append, Create, CreateDir, Hold, Rename, Sync, SyncDir, TryLock};
        matches!(self, Create | CreateDir | Rename | SyncDir | TryLock | Append | Sync | Hold)
    }
}

#[derive(Debug, Default)]
struct Plan {
    done: usize,
    at: Option<(usize, bool, i32)>,
    kind: Option<(Operation, i32)>,
    delay: Duration,
    free_bytes: Option<u64>,
}

/// The faults of one [`Faulty`] back end, to be set while it is in use. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Mutex<Plan>>);

impl Faults {
    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on the `at`-th operation that changes something (from 0) fails with `errno`, and if `goes_on` all after
    /// it do.
    pub fn fail_at(&self, at: usize, goes_on: bool, errno: i32) {
        let mut plan = self.plan();
        (plan.done, plan.at) = (0, Some((at, goes_on, errno)));
    }

    /// Every operation of this kind fails with `errno`.
    pub fn fail_every(&self, operation: Operation, errno: i32) {
        self.plan().kind = Some((operation, errno));
    }

    /// Every operation takes this much longer.
    pub fn delay(&self, delay: Duration) {
        self.plan().delay = delay;
    }

    /// The file system says that it is one of so many bytes, and empty, whatever is written.
    pub fn leave_room(&self, free_bytes: u64) {
        self.plan().free_bytes = Some(free_bytes);
    }

    /// Nothing fails and nothing is slow any more.
    pub fn clear(&self) {
        let mut plan = self.plan();
        *plan = Plan { done: plan.done, ..Plan::default() };
    }

    /// How many operations that change something there were since `fail_at`, or since the beginning.
    pub fn done(&self) -> usize {
        self.plan().done
    }

    fn pass(&self, operation: Operation) -> io::Result<()> {
        let delay = self.plan().delay;
        if !delay.is_zero() {
            std::thread::sleep(delay);
        }
        let mut plan = self.plan();
        if let Some((kind, errno)) = plan.kind
            && kind == operation
        {
            return Err(io::Error::from_raw_os_error(errno));
        }
        if !operation.counts() {
            return Ok(());
        }
        let now = plan.done;
        plan.done += 1;
        match plan.at {
            Some((at, goes_on, errno)) if now == at || (goes_on && now > at) => {
                Err(io::Error::from_raw_os_error(errno))
            }
            _ => Ok(()),
        }
    }
}

/// A back end with faults in front of it.
pub struct Faulty<B> {
    inner: B,
    faults: Faults,
}

impl<B: Backend> Faulty<B> {
    /// Puts `faults` in front of `inner`.
    pub fn new(inner: B, faults: Faults) -> Self {
        Self { inner, faults }
    }
}

impl<B: fmt::Debug> fmt::Debug for Faulty<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Faulty({:?})", self.inner)
    }
}

impl<B: Backend> Backend for Faulty<B> {
    fn root(&self) -> &Path {
        self.inner.root()
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn WriteFile>> {
        self.faults.pass(Operation::Create)?;
        Ok(Box::new(FaultyFile { inner: self.inner.create(name)?, faults: self.faults.clone() }))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn ReadFile>> {
        self.faults.pass(Operation::Open)?;
        Ok(Box::new(FaultyFile { inner: self.inner.open(name)?, faults: self.faults.clone() }))
    }

    fn create_dir(&self, name: &str) -> io::Result<()> {
        self.faults.pass(Operation::CreateDir)?;
        self.inner.create_dir(name)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.faults.pass(Operation::List)?;
        self.inner.list(dir)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.faults.pass(Operation::Rename)?;
        self.inner.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.faults.pass(Operation::Remove)?;
        self.inner.remove(name)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.faults.pass(Operation::SyncDir)?;
        self.inner.sync_dir(dir)
    }

    fn stamp(&self, dir: &str) -> io::Result<Option<u64>> {
        self.faults.pass(Operation::Stamp)?;
        self.inner.stamp(dir)
    }

    fn try_lock(&self, name: &str) -> io::Result<Option<Box<dyn Send + Sync>>> {
        self.faults.pass(Operation::TryLock)?;
        self.inner.try_lock(name)
    }

    fn locks_are_leases(&self) -> bool {
        self.inner.locks_are_leases()
    }

    fn room(&self) -> io::Result<Option<Room>> {
        self.faults.pass(Operation::Room)?;
        match self.faults.plan().free_bytes {
            Some(free_bytes) => Ok(Some(Room { free_bytes, total_bytes: free_bytes })),
            None => self.inner.room(),
        }
    }

    fn is_held(&self, name: &str) -> io::Result<bool> {
        self.faults.pass(Operation::IsHeld)?;
        self.inner.is_held(name)
    }
}

struct FaultyFile<F> {
    inner: F,
    faults: Faults,
}

impl WriteFile for FaultyFile<Box<dyn WriteFile>> {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = self.faults.pass(Operation::Append) {
            self.inner.append(&bytes[..bytes.len() / 3])?;
            return Err(error);
        }
        self.inner.append(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.faults.pass(Operation::Sync)?;
        self.inner.sync()
    }

    fn hold(&mut self) -> io::Result<()> {
        self.faults.pass(Operation::Hold)?;
        self.inner.hold()
    }

    fn check_hold(&self) -> io::Result<()> {
        self.faults.pass(Operation::CheckHold)?;
        self.inner.check_hold()
    }
}

impl ReadFile for FaultyFile<Box<dyn ReadFile>> {
    fn length(&self) -> io::Result<u64> {
        self.faults.pass(Operation::Length)?;
        self.inner.length()
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.faults.pass(Operation::Read)?;
        self.inner.read_exact_at(offset, out)
    }

    fn is_at_hand(&self, offset: u64) -> bool {
        self.inner.is_at_hand(offset)
    }

    fn will_be_read(&self, offset: u64, length: u64) {
        self.inner.will_be_read(offset, length);
    }
}
