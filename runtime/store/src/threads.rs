//! Threads other than the ones that all stores of a process share.

use std::{io, path::PathBuf, sync::OnceLock};

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::{Result, StoreError};

/// Does `work`, and all that it has stores do on many threads, on `threads` threads made for it; 0 is one for each processor.
///
/// In the child of a fork this is the only way: the threads that stores share are not there, and would be waited for.
///
/// # Errors
///
/// When no thread can be made.
pub fn on_own_threads<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> Result<T> {
    let pool = ThreadPoolBuilder::new().num_threads(threads).build();
    Ok(pool.map_err(not_made)?.install(work))
}

/// Threads that were made late: see [`keep_to_this_thread`].
static LATE: OnceLock<ThreadPool> = OnceLock::new();

/// Has all stores of this process work on the calling thread alone, so that none takes an id. To be called before there is a store,
/// and [`use_all_processors`] when ids matter no more.
///
/// # Errors
///
/// When stores have threads already.
pub fn keep_to_this_thread() -> Result<()> {
    ThreadPoolBuilder::new().num_threads(1).use_current_thread().build_global().map_err(not_made)
}

/// Ends what [`keep_to_this_thread`] has begun, for what takes time: reading pages.
///
/// # Errors
///
/// When no thread can be made.
pub fn use_all_processors() -> Result<()> {
    if LATE.get().is_none() {
        let _ = LATE.set(ThreadPoolBuilder::new().build().map_err(not_made)?);
    }
    Ok(())
}

/// Does `work` on the threads that were made late, if there are some.
pub fn on_late_ones<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    match LATE.get() {
        Some(threads) => threads.install(work),
        None => work(),
    }
}

fn not_made(error: rayon::ThreadPoolBuildError) -> StoreError {
    StoreError::Io { path: PathBuf::from("threads"), operation: "make", source: io::Error::other(error) }
}
