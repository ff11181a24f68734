//! `ckpt show`: what is in a checkpoint.

mod names;
mod text;
mod view;

use std::path::PathBuf;

use ckpt_store::{AttemptState, Store};
use clap::Args;

use super::{print, print_json};
use crate::error::{Error, Result, exit_code};
use crate::{image, location};
use view::CheckpointView;

/// Show what is in a checkpoint: processes, threads, memory, descriptors
#[derive(Args)]
#[command(after_help = "\
Examples:
  ckpt show ckpt-store              the newest sealed checkpoint
  ckpt show ckpt-store 3
  ckpt show ckpt-store --json | jq '.regions[] | select(.kind == \"heap\")'")]
pub struct Arguments {
    /// The store: a directory, or s3://BUCKET/PREFIX
    dir: PathBuf,
    /// The checkpoint [default: the newest sealed one of all jobs]
    id: Option<u64>,
    /// One JSON object, for scripts
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> Result<u8> {
    let store = location::open(&arguments.dir)?;
    let id = match arguments.id {
        Some(id) => id,
        None => newest(&store, arguments)?,
    };
    refuse_unsealed(&store, arguments, id)?;
    let manifest = store.manifest(id)?;
    let image = image::decode(id, &manifest.state)?;
    let view = CheckpointView::new(&manifest.row, &image);
    if arguments.json {
        print_json(&view)?
    } else {
        print(&text::render(&view))?
    }
    Ok(exit_code::DONE)
}

fn newest(store: &Store, arguments: &Arguments) -> Result<u64> {
    store.newest_sealed(None)?.ok_or_else(|| {
        let why = std::io::Error::other("there is none; `ckpt list` tells what was attempted");
        Error::io("find a sealed checkpoint in", &arguments.dir, why)
    })
}

/// A failed attempt has no content, but a reason.
fn refuse_unsealed(store: &Store, arguments: &Arguments, id: u64) -> Result<()> {
    let attempts = store.attempts()?;
    match attempts.iter().find(|row| row.id == id && row.state != AttemptState::Sealed) {
        None => Ok(()),
        Some(row) => {
            let why = format!("attempt {id} is {} {}", super::list::state_word(row.state), row.reason);
            Err(Error::io("show", &arguments.dir, std::io::Error::other(why.trim_end().to_owned())))
        }
    }
}
