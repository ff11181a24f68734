//! How a restart is asked for, and what is told of it while it is done.

use std::net::IpAddr;
use std::path::PathBuf;

use super::ascending::Ids;
use super::clocks::ClockWish;
use super::copy::Copied;
use super::on_restart::OnRestart;
use super::outside::Stdio;
use super::place::Place;
use crate::image::PathMap;

/// How to restart.
#[derive(Clone, Debug, Default)]
pub struct RestoreOptions {
    /// The store's directory, which the program's next checkpoints go to; none for a copy without a store.
    pub store_dir: Option<PathBuf>,
    /// Whether it becomes another job.
    pub copy: Option<Copied>,
    /// What is executed when the program is complete.
    pub on_restart: Option<OnRestart>,
    /// Accept files that have changed since the checkpoint.
    pub force: bool,
    /// Which directories are elsewhere now.
    pub paths: PathMap,
    /// Which internet addresses this host has in place of which.
    pub addresses: Vec<(IpAddr, IpAddr)>,
    /// What becomes of the standard streams.
    pub stdio: Stdio,
    /// Where this process is.
    pub place: Place,
    /// How it comes by its ids.
    pub ids: Ids,
    /// How the program's clocks go on.
    pub clocks: ClockWish,
    /// Time between automatic checkpoints from now on, 0 for none, if it is to be another.
    pub interval_ms: Option<u64>,
    /// Whether memory may come while the program runs.
    pub lazy: bool,
}

/// What is being done, for the progress callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Reading the manifest.
    Reading,
    /// Comparing the host and the files with the checkpoint; bytes are those of the mappings.
    Verifying,
    /// All processes are there, and their threads if [`Ids::Reached`]: from now on other ones can be made.
    Born,
    /// Filling the memory; bytes are those of its pages.
    Mapping,
    /// Making the threads; bytes are 0.
    Threads,
    /// Filling the memory of devices that comes from the store.
    Devices,
}

/// Is told the stage, the bytes done and the bytes in all.
pub type Progress<'a> = dyn FnMut(Stage, u64, u64) + 'a;
