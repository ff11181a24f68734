//! Whether a CUDA driver lets managed memory be taken away for a checkpoint and given back after, tried in a process of its own.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::apart;
use crate::error::Result;

/// The option of the command of [`apart`] that tries it.
const OPTION: &str = "--managed";

/// What a driver lets be done with managed memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagedTrial {
    /// Ordinary memory can take its place, and a checkpoint and a restore of the process leave that as it is.
    pub leaves: bool,
    /// It comes back at the same addresses afterwards.
    pub comes_back: bool,
    /// Ordinary memory can stay in its place for good, and devices use it there.
    pub can_be_registered: bool,
    /// The first step that was not as it is needed, and how, if there is one.
    pub why: Option<String>,
}

impl ManagedTrial {
    /// Tries it here, on the first device. The process is expendable: what the trial leaves behind ends with it.
    ///
    /// # Errors
    /// Without a driver or a device, or when it cannot be used at all.
    pub fn here(driver: &Path) -> Result<ManagedTrial> {
        let tried = ckpt_kernels::device::try_managed(driver, 0)?;
        let ckpt_kernels::device::ManagedTrial { leaves, comes_back, can_be_registered, why } = tried;
        Ok(ManagedTrial { leaves, comes_back, can_be_registered, why })
    }

    /// Tries it in a process of its own, on the first device of all. It is one of this user and group, if they are given: whoever
    /// has named the driver.
    ///
    /// # Errors
    /// When that cannot be tried, finds no driver, or does not come to an end, well or by a fault.
    pub fn apart(driver: &Path, owner: Option<(u32, u32)>) -> Result<ManagedTrial> {
        apart::ask(driver, owner, &[OPTION])
    }
}
