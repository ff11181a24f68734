//! Threads other than the ones that all stores of a process share.

use std::{io, path::PathBuf};

use crate::{Result, StoreError};

/// Does `work`, and all that it has stores do on many threads, on `threads` threads made for it; 0 is one for each processor.
///
/// In the child of a fork this is the only way: the threads that stores share are not there, and would be waited for.
///
/// # Errors
///
/// When no thread can be made.
pub fn on_own_threads<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> Result<T> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let failed =
        |error| StoreError::Io { path: PathBuf::from("threads"), operation: "make", source: io::Error::other(error) };
    Ok(pool.map_err(failed)?.install(work))
}
