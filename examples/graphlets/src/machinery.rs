//! What counts, and what finds differences: the cores of this machine, or a device.

use std::path::PathBuf;

use ckpt_kernels::device::Result;

use crate::{
    counting::{Counter, Device, Threads},
    graph::Graph,
};

/// Cores or a device.
#[derive(Clone, Debug)]
pub enum Machinery {
    /// All cores of this machine.
    Cores,
    /// The first device of a driver.
    Device {
        /// The library of the CUDA driver.
        driver: PathBuf,
        /// The most bytes of its memory that an engine may take, the counters not among them.
        bytes_max: Option<u64>,
    },
}

impl Machinery {
    /// A counter there, with all counters at zero.
    ///
    /// # Errors
    /// When there is no such device, or it has too little memory.
    pub fn counter<'a>(&self, graph: &'a Graph) -> Result<Box<dyn Counter + 'a>> {
        Ok(match self {
            Self::Cores => Box::new(Threads::new(graph)),
            Self::Device { driver, .. } => Box::new(Device::new(driver, graph)?),
        })
    }
}
