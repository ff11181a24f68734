//! `ckpt flatten`: gives a checkpoint packs of its own.

use std::path::PathBuf;

use clap::Args;

use super::print;
use crate::error::{Result, exit_code};
use crate::{audit, core_dumps, location, units};

/// Write a checkpoint's pages anew, one after another, so that it needs nothing of older ones
#[derive(Args)]
#[command(after_help = "\
A checkpoint refers to pages that older ones wrote. Flattened, it has them in files of its own, in the order
of memory: a restart reads those from front to back, and damage to older files cannot touch it. It keeps its
number. Older files that nobody needs any more are removed.

Examples:
  ckpt flatten ckpt-store 42")]
pub struct Arguments {
    /// The store, a directory
    dir: PathBuf,
    /// The checkpoint
    id: u64,
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> Result<u8> {
    core_dumps::forbid_and_close();
    let reclaimed = audit::of_store("flatten", &arguments.dir, |record| {
        record.number("checkpoint", arguments.id);
        Ok(location::open(&arguments.dir)?.flatten(arguments.id)?)
    })?;
    let (copied, removed) = (units::bytes(reclaimed.copied_bytes), units::bytes(reclaimed.removed_bytes));
    print(&format!("wrote {copied} anew, gave {removed} back\n"))?;
    Ok(exit_code::DONE)
}
