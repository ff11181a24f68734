//! `ckpt flatten`: gives a checkpoint packs of its own.

use std::ffi::OsString;

use clap::Args;

use super::{default_store, print};
use crate::error::{Result, exit_code};
use crate::{audit, core_dumps, location, mapped_files, units};

/// Write a checkpoint's pages anew, one after another, so that it needs nothing of older ones
#[derive(Args)]
#[command(override_usage = "ckpt flatten [DIR] N")]
#[command(after_help = "\
A checkpoint refers to pages that older ones wrote. Flattened, it has them in files of its own, in the order
of memory: a restart reads those from front to back, and damage to older files cannot touch it. It keeps its
number. Older files that nobody needs any more are removed.

Examples:
  ckpt flatten ckpt-store 42")]
pub struct Arguments {
    /// The store, a directory [default: $CKPT_DIR or ./ckpt-store], and the checkpoint
    #[arg(required = true, num_args = 1..=2, value_name = "[DIR] N")]
    place: Vec<OsString>,
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> Result<u8> {
    core_dumps::forbid_and_close();
    let (dir, ids) = default_store::with_checkpoints(&arguments.place, 1)?;
    let reclaimed = audit::of_store("flatten", &dir, |record| {
        record.number("checkpoint", ids[0]);
        let store = location::open(&dir)?;
        // Of what is not in the store nothing can be written anew.
        mapped_files::settle(&store, ids[0])?;
        Ok(store.flatten(ids[0])?)
    })?;
    let (copied, removed) = (units::bytes(reclaimed.copied_bytes), units::bytes(reclaimed.removed_bytes));
    print(&format!("wrote {copied} anew, gave {removed} back\n"))?;
    Ok(exit_code::DONE)
}
