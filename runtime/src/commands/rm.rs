//! `ckpt rm`: drops checkpoints by their numbers.

use std::ffi::OsString;

use clap::Args;

use super::{default_store, print, print_json, prune};
use crate::error::{Result, exit_code};
use crate::{audit, core_dumps, location};

/// Drop checkpoints by their numbers, and give back their space
#[derive(Args)]
#[command(override_usage = "ckpt rm [DIR] N...")]
#[command(after_help = "\
What other checkpoints share with them stays. Programs may write checkpoints into the store and be restarted from it meanwhile.

Examples:
  ckpt rm 3                  of ./ckpt-store
  ckpt rm /scratch/heat 3 4")]
pub struct Arguments {
    /// The store, a directory [default: $CKPT_DIR or ./ckpt-store], and the checkpoints
    #[arg(required = true, value_name = "[DIR] N...")]
    place: Vec<OsString>,
    /// One JSON object, for scripts
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> Result<u8> {
    core_dumps::forbid_and_close();
    let (dir, ids) = default_store::with_checkpoints(&arguments.place, 1)?;
    let reclaimed = audit::of_store("rm", &dir, |record| {
        for &id in &ids {
            record.number("checkpoint", id);
        }
        Ok(location::open(&dir)?.remove(&ids)?)
    })?;
    if arguments.json {
        print_json(&prune::Report::from(&reclaimed))?;
    } else {
        print(&prune::text(&reclaimed, false))?;
    }
    prune::say_problems(&reclaimed);
    Ok(exit_code::DONE)
}
