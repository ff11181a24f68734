//! CKPT_KEEP: a program's older checkpoints go when a new one is sealed.
//!
//! On a thread of its own, so that the agent answers meanwhile; the store keeps what a checkpoint needs that is taken at
//! the same time. When it takes longer than until the next seal, it begins again afterwards.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use ckpt_store::{AttemptRow, Store};

/// How many checkpoints stay.
pub struct Retention {
    /// 0 for all.
    keep: usize,
    work: Arc<Mutex<Work>>,
    thread: Option<JoinHandle<()>>,
}

/// What there is to do. A thread that finds nothing says so under the same lock, so nothing is left undone.
#[derive(Default)]
struct Work {
    is_running: bool,
    is_wanted: bool,
}

impl Retention {
    /// Keeps the newest `keep` of a job, or all for 0.
    pub fn new(keep: u64) -> Retention {
        Retention { keep: usize::try_from(keep).unwrap_or(usize::MAX), work: Arc::default(), thread: None }
    }

    /// Drops what `sealed` makes one too many.
    pub fn after(&mut self, sealed: &AttemptRow, store: &Store) {
        if self.keep == 0 {
            return;
        }
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        work.is_wanted = true;
        if work.is_running {
            return;
        }
        let (store, job, keep, shared) = (store.clone(), sealed.job.clone(), self.keep, self.work.clone());
        match Builder::new().name("prune".to_owned()).spawn(move || work_off(&shared, || prune(&store, &job, keep))) {
            Ok(thread) => (work.is_running, self.thread) = (true, Some(thread)),
            Err(error) => log::warn!("cannot start a thread to prune {}: {error}", sealed.job),
        }
    }
}

fn work_off(work: &Mutex<Work>, mut step: impl FnMut()) {
    loop {
        {
            let mut work = work.lock().unwrap_or_else(PoisonError::into_inner);
            if !std::mem::take(&mut work.is_wanted) {
                work.is_running = false;
                return;
            }
        }
        step();
    }
}

impl Drop for Retention {
    /// The agent ends after its program; what it has begun to give back is given back.
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn prune(store: &Store, job: &str, keep: usize) {
    match store.prune(keep, Some(job)) {
        Ok(reclaimed) => {
            let (dropped, bytes) = (reclaimed.checkpoints.len(), reclaimed.removed_bytes);
            log::info!("dropped {dropped} older checkpoints of job {job}, {bytes} bytes given back");
            reclaimed.problems.iter().for_each(|problem| log::warn!("{problem}"));
        }
        Err(error) => log::warn!("older checkpoints of job {job} stay: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_while_work_is_done_is_done_afterwards() {
        let work = Mutex::new(Work { is_running: true, is_wanted: true });
        let mut steps = 0;
        work_off(&work, || {
            steps += 1;
            work.lock().unwrap().is_wanted = steps < 3;
        });
        assert_eq!(steps, 3);
        assert!(!work.lock().unwrap().is_running);
    }
}
