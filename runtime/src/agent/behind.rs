//! What checkpoints lack is stored behind their seals, on a thread that runs after all programs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use ckpt_store::Store;

use super::news::{self, News};
use crate::capture::{self, Lineage, Unstored};
use crate::mapped_files::{StoredFiles, complete};
use crate::units;

/// The thread, once there is anything to do, and what it has done.
#[derive(Debug, Default)]
pub struct Behind {
    at_work: Option<(Sender<Unstored>, JoinHandle<()>)>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    stored: Mutex<StoredFiles>,
    /// How many checkpoints are not complete.
    left: AtomicUsize,
}

impl Behind {
    /// Completes a checkpoint of `store`, behind those that are not complete yet.
    pub fn store(&mut self, store: &Store, unstored: Unstored) {
        if self.at_work.is_none() {
            let (sender, receiver) = channel();
            let (store, shared) = (store.clone(), self.shared.clone());
            let work = move || store_each(&store, &receiver, &shared);
            match Builder::new().name("behind".to_owned()).spawn(work) {
                Ok(thread) => self.at_work = Some((sender, thread)),
                Err(error) => return log::error!("checkpoint {} stays incomplete: {error}", unstored.id),
            }
        }
        if let Some((sender, _)) = &self.at_work {
            self.shared.left.fetch_add(1, Ordering::Relaxed);
            news::tell(&News::Incomplete);
            // The thread ends when the sender does.
            let _ = sender.send(unstored);
        }
    }

    /// Lets the next checkpoint build on what has been stored.
    pub fn tell(&self, lineage: &mut Lineage) {
        let is_idle = self.shared.left.load(Ordering::Acquire) == 0;
        let mut stored = self.shared.stored.lock().unwrap_or_else(PoisonError::into_inner);
        if !stored.is_empty() {
            lineage.know_stored(&stored);
        }
        if is_idle {
            stored.clear();
        }
    }

    /// Waits until all checkpoints are complete, as far as they can be.
    pub fn finish(self) {
        let Some((sender, thread)) = self.at_work else { return };
        drop(sender);
        // A panic aborts the process (see Cargo.toml).
        let _ = thread.join();
    }
}

fn store_each(store: &Store, work: &Receiver<Unstored>, shared: &Shared) {
    capture::after_the_program();
    let mut known = StoredFiles::default();
    for Unstored { id, completion, files } in work {
        match complete(store, completion, id, &files, &mut known, &mut |_, _| {}) {
            Ok(Some(row)) => {
                let bytes = units::bytes(row.behind_bytes);
                log::info!(
                    "checkpoint {id} is complete: {bytes} of files that the program has mapped are new in the store"
                );
                shared.stored.lock().unwrap_or_else(PoisonError::into_inner).extend(known.clone());
            }
            Ok(None) => log::debug!("checkpoint {id} was dropped before it was complete"),
            Err(error) => {
                known.clear();
                log::error!("{error}");
            }
        }
        if shared.left.fetch_sub(1, Ordering::Release) == 1 {
            // The next one may be far away, and reads what it needs.
            known.clear();
            news::tell(&News::Complete);
        }
    }
}
