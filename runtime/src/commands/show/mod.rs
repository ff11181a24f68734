//! `ckpt show`: what is in a checkpoint, or in a running program.

pub(super) mod allocations;
pub(super) mod call_site;
mod family;
mod live;
mod names;
mod sockets;
mod text;
pub(super) mod view;

use std::path::PathBuf;

use clap::Args;

use super::store_owner::read_as_owner;
use super::{default_store, print, print_json, which_checkpoint, which_program};
use crate::error::{Result, exit_code};
use crate::image::Image;
use crate::{audit, core_dumps, location};
use live::LiveView;
use view::CheckpointView;

/// Show what is in a checkpoint (processes, threads, memory, descriptors), or what a running program has allocated
#[derive(Args)]
#[command(after_help = "\
Examples:
  ckpt show ckpt-store              the newest sealed checkpoint
  ckpt show ckpt-store 3
  ckpt show ckpt-store --job heat
  ckpt show ckpt-store --json | jq '.regions[] | select(.kind == \"heap\")'
  ckpt show 4711                    the large allocations of process 4711, and what asked for them

A number is a process unless there is a directory of that name; ./4711 is always the directory.")]
pub struct Arguments {
    /// The store (a directory, or s3://BUCKET/PREFIX), or the pid of a running program
    #[arg(value_name = "DIR|PID", default_value_os_t = default_store::dir())]
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
    core_dumps::forbid_and_close();
    match running_program(arguments) {
        Some(pid) => audit::of_process("show", pid, |_| show_program(arguments, pid)).map(|()| exit_code::DONE),
        None => {
            let dir = &arguments.dir;
            let show = || show_checkpoint(arguments).map(|()| exit_code::DONE);
            audit::of_store("show", dir, |_| read_as_owner(dir, show))
        }
    }
}

fn show_program(arguments: &Arguments, pid: i32) -> Result<()> {
    let view = LiveView::of(pid)?;
    if arguments.json { print_json(&view) } else { print(&view.render()) }
}

fn show_checkpoint(arguments: &Arguments) -> Result<()> {
    let store = location::open(&arguments.dir)?;
    let id = which_checkpoint::select(&arguments.dir, &store.attempts()?, arguments.id, arguments.job.as_deref())?;
    let manifest = store.manifest(id)?;
    let image = Image::of(&manifest)?;
    let view = CheckpointView::new(&manifest.row, &image, store.digest());
    if arguments.json { print_json(&view) } else { print(&text::render(&view)) }
}

/// The process that is meant, if it is one.
fn running_program(arguments: &Arguments) -> Option<i32> {
    let alone = arguments.id.is_none() && arguments.job.is_none();
    which_program::by_number(&arguments.dir).filter(|_| alone)
}
