//! Which CUDA devices there are, asked in a process of its own.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::apart;
use crate::error::Result;

/// What a driver has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Survey {
    /// Its devices, in its order.
    pub devices: Vec<Device>,
    /// Whether it has calls that checkpoint a process.
    pub can_checkpoint: bool,
}

/// A device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// How the driver names it in every process.
    pub uuid: [u8; 16],
    /// Its model.
    pub model: String,
    /// What code it runs: 9, 0 for sm_90.
    pub capability: (u32, u32),
    /// How much memory it has.
    pub bytes: u64,
}

impl Survey {
    /// What this driver has, asked here.
    ///
    /// # Errors
    /// Without a driver, or when it does not know.
    pub fn here(driver: &Path) -> Result<Survey> {
        let (found, can_checkpoint) = ckpt_kernels::device::survey(driver)?;
        let devices = found.into_iter().map(|one| Device {
            uuid: one.uuid,
            model: one.model,
            capability: one.capability,
            bytes: one.bytes,
        });
        Ok(Survey { devices: devices.collect(), can_checkpoint })
    }

    /// What this driver has, asked in a process of its own, which sees all devices. It is one of this user and group, if they are
    /// given: whoever has named the driver.
    ///
    /// # Errors
    /// When that cannot be asked, or finds no driver.
    pub fn apart(driver: &Path, owner: Option<(u32, u32)>) -> Result<Survey> {
        apart::ask(driver, owner, &[])
    }
}
