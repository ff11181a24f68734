//! `ckpt checkpoint`: takes one now.

use clap::Args;

use super::method::check_method;
use super::print;
use super::progress_bar::{Progress as Bar, Unit};
use crate::agent::{CheckpointRequest, Method, Progress, Trigger, request_checkpoint};
use crate::error::{Result, exit_code};

/// Take a checkpoint of a running program and print its id
#[derive(Args)]
#[command(after_help = "\
The program needs libckpt.so: start it with `ckpt run`, or with LD_PRELOAD=libckpt.so.

Examples:
  ckpt checkpoint 4711                    returns when the checkpoint is sealed
  ckpt checkpoint --no-wait 4711          returns when the program runs again
  ckpt checkpoint --kill $(pidof heat)    the program ends exactly where the checkpoint is")]
pub struct Arguments {
    /// The program
    #[arg(value_parser = clap::value_parser!(i32).range(1..))]
    pid: i32,
    /// Return as soon as the program runs again; the checkpoint is written meanwhile
    #[arg(long, conflicts_with = "kill")]
    no_wait: bool,
    /// End the program once the checkpoint is sealed, without letting it run on
    #[arg(long)]
    kill: bool,
    /// How large private memory is stored from now on, while the program's agent lives: pages, or tree (differences
    /// finer than a page) [default: as before]
    #[arg(long, value_parser = check_method)]
    method: Option<Method>,
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> Result<u8> {
    let &Arguments { no_wait, kill, method, .. } = arguments;
    let request = CheckpointRequest { trigger: Trigger::Command, wait_for_seal: !no_wait, kill, method };
    let mut bar = Bar::start();
    let id = request_checkpoint(arguments.pid, &request, &mut |progress| match progress {
        Progress::Resumed { stop_ms } => log::info!("process {} was stopped for {stop_ms:.1} ms", arguments.pid),
        Progress::Writing { done_bytes, total_bytes } => bar.update("writing", done_bytes, total_bytes, Unit::Bytes),
    })?;
    bar.end();
    print(&format!("{id}\n"))?;
    Ok(exit_code::DONE)
}
