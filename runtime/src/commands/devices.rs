//! `ckpt devices`: which CUDA devices a driver has, as JSON. It is what other commands ask, in a process of its own.

use std::path::PathBuf;

use clap::Args;

use super::print;
use crate::error::{Result, exit_code};
use crate::survey::Survey;

/// List the devices of a CUDA driver
#[derive(Args)]
pub struct Arguments {
    /// The driver
    #[arg(long, default_value = "libcuda.so.1")]
    driver: PathBuf,
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> Result<u8> {
    let survey = Survey::here(&arguments.driver)?;
    print(&format!("{}\n", serde_json::json!(survey)))?;
    Ok(exit_code::DONE)
}
