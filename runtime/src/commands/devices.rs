//! `ckpt devices`: which CUDA devices a driver has, or what it lets be done with managed memory, as JSON. It is what other commands
//! ask, in a process of its own.

use std::path::PathBuf;

use clap::Args;

use super::print_raw;
use crate::error::{Result, exit_code};
use crate::managed_trial::ManagedTrial;
use crate::survey::Survey;

/// List the devices of a CUDA driver
#[derive(Args)]
pub struct Arguments {
    /// The driver
    #[arg(long, default_value = "libcuda.so.1")]
    driver: PathBuf,
    /// Try in place of that whether managed memory can be taken away and given back
    #[arg(long)]
    managed: bool,
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> Result<u8> {
    let answer = if arguments.managed {
        serde_json::json!(ManagedTrial::here(&arguments.driver)?)
    } else {
        serde_json::json!(Survey::here(&arguments.driver)?)
    };
    print_raw(&format!("{answer}\n"))?;
    Ok(exit_code::DONE)
}
