//! Where a command counts and takes checkpoints.

use std::path::PathBuf;

use ckpt_kernels::device::{Result, bound_from_environment};
use graphlets::machinery::Machinery;

#[derive(clap::Args)]
pub struct ChosenMachinery {
    /// Runs on a GPU by this CUDA driver: libcuda.so.1, or a path to it.
    #[arg(long)]
    driver: Option<PathBuf>,
}

impl ChosenMachinery {
    /// # Errors
    /// When CKPT_DEVICE_MEMORY is no bound.
    pub fn find(&self) -> Result<Machinery> {
        Ok(match &self.driver {
            None => Machinery::Cores,
            Some(driver) => Machinery::Device { driver: driver.clone(), bytes_max: bound_from_environment()? },
        })
    }
}
