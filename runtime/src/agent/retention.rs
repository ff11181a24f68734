//! CKPT_KEEP: a program's older checkpoints go when a new one is sealed.
//!
//! On a thread of its own, so that the agent answers meanwhile; the store keeps what a checkpoint needs that is taken at
//! the same time. When it takes longer than until the next seal, that one leaves the work to the one after it.

use std::thread::{Builder, JoinHandle};

use ckpt_store::{AttemptRow, Store};

/// How many checkpoints stay.
pub struct Retention {
    /// 0 for all.
    keep: usize,
    running: Option<JoinHandle<()>>,
}

impl Retention {
    /// Keeps the newest `keep` of a job, or all for 0.
    pub fn new(keep: u64) -> Retention {
        Retention { keep: usize::try_from(keep).unwrap_or(usize::MAX), running: None }
    }

    /// Drops what `sealed` makes one too many.
    pub fn after(&mut self, sealed: &AttemptRow, store: &Store) {
        if self.keep == 0 || self.running.as_ref().is_some_and(|running| !running.is_finished()) {
            return;
        }
        let (store, job, keep) = (store.clone(), sealed.job.clone(), self.keep);
        match Builder::new().name("prune".to_owned()).spawn(move || prune(&store, &job, keep)) {
            Ok(running) => self.running = Some(running),
            Err(error) => log::warn!("cannot start a thread to prune {}: {error}", sealed.job),
        }
    }
}

impl Drop for Retention {
    /// The agent ends after its program; what it has begun to give back is given back.
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            let _ = running.join();
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
