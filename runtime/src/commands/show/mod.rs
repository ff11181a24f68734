//! `ckpt show`: what is in a checkpoint.

mod names;
mod text;
pub(super) mod view;

use std::path::PathBuf;

use clap::Args;

use super::{print, print_json, which_checkpoint};
use crate::error::{Result, exit_code};
use crate::{image, location};
use view::CheckpointView;

/// Show what is in a checkpoint: processes, threads, memory, descriptors
#[derive(Args)]
#[command(after_help = "\
Examples:
  ckpt show ckpt-store              the newest sealed checkpoint
  ckpt show ckpt-store 3
  ckpt show ckpt-store --job heat
  ckpt show ckpt-store --json | jq '.regions[] | select(.kind == \"heap\")'")]
pub struct Arguments {
    /// The store: a directory, or s3://BUCKET/PREFIX
    dir: PathBuf,
    /// The checkpoint [default: the newest sealed one]
    id: Option<u64>,
    /// The job, by id or name, where the store holds several
    #[arg(long)]
    job: Option<String>,
    /// One JSON object, for scripts
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> Result<u8> {
    let store = location::open(&arguments.dir)?;
    let id = which_checkpoint::select(&arguments.dir, &store.attempts()?, arguments.id, arguments.job.as_deref())?;
    let manifest = store.manifest(id)?;
    let image = image::decode(id, &manifest.state)?;
    let view = CheckpointView::new(&manifest.row, &image, store.digest());
    if arguments.json {
        print_json(&view)?
    } else {
        print(&text::render(&view))?
    }
    Ok(exit_code::DONE)
}
