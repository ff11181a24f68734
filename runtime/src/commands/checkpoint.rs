//! `ckpt checkpoint`: takes one now.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use ckpt_store::Depth;
use clap::Args;

use super::interval::parse_time;
use super::method::check_method;
use super::print;
use super::progress_bar::{Progress as Bar, Unit};
use super::with_dir::with_dirs;
use crate::agent::{CheckpointRequest, Method, Progress, Trigger, request_checkpoint};
use crate::error::{Error, Result, exit_code};

/// Take a checkpoint of a running program and print its id
#[derive(Args)]
#[command(after_help = "\
The program needs libckpt.so: start it with `ckpt run`, or with LD_PRELOAD=libckpt.so.

Examples:
  ckpt checkpoint 4711                    returns when the checkpoint is sealed
  ckpt checkpoint --no-wait 4711          returns when the program runs again
  ckpt checkpoint --kill $(pidof heat)    the program ends exactly where the checkpoint is
  ckpt checkpoint --data 4711             what it has allocated, and no more: to be looked at, not restarted
  ckpt checkpoint --data --every 10ms --count 500 4711")]
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
    /// Store only what the program has allocated: memory of GPUs, and the large parts of its heap. That takes
    /// milliseconds; `ckpt extract` and `ckpt diff` read it, and no program can be restarted from it
    #[arg(long, conflicts_with_all = ["kill", "method"])]
    data: bool,
    /// Take one after the other, so far apart, until the program ends: 10ms, 2s, 1m. One that is not done by then
    /// delays the next
    #[arg(long, value_name = "TIME", requires = "data", value_parser = parse_time)]
    every: Option<Duration>,
    /// How many to take
    #[arg(long, value_name = "N", requires = "every", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// How large private memory is stored from now on, while the program's agent lives: pages, or tree (differences
    /// finer than a page) [default: as before]
    #[arg(long, value_parser = check_method)]
    method: Option<Method>,
    /// Capture a directory with all that is in it, as well, to be there again after a restart; may be given several times
    #[arg(long, value_name = "DIR", conflicts_with = "data")]
    with_dir: Vec<PathBuf>,
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> Result<u8> {
    match arguments.every {
        Some(every) => take_many(arguments, every)?,
        None => take(arguments)?,
    }
    Ok(exit_code::DONE)
}

fn take(arguments: &Arguments) -> Result<()> {
    let &Arguments { no_wait, kill, method, .. } = arguments;
    let depth = if arguments.data { Depth::Data } else { Depth::Full };
    let with_dirs = with_dirs(&arguments.with_dir)?;
    let by_command = CheckpointRequest::by(Trigger::Command);
    let request = CheckpointRequest { wait_for_seal: !no_wait, kill, method, depth, with_dirs, ..by_command };
    let mut bar = Bar::start();
    let id = request_checkpoint(arguments.pid, &request, &mut |progress| match progress {
        Progress::Resumed { stop_ms } => log::info!("process {} was stopped for {stop_ms:.1} ms", arguments.pid),
        Progress::Writing { done_bytes, total_bytes } => bar.update("writing", done_bytes, total_bytes, Unit::Bytes),
    })?;
    bar.end();
    print(&format!("{id}\n"))
}

/// One waits for the other: what the store or a device cannot keep up with comes later, and nothing piles up.
fn take_many(arguments: &Arguments, every: Duration) -> Result<()> {
    let (mut due, mut taken) = (Instant::now(), 0);
    while arguments.count.is_none_or(|count| taken < count) {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        match take(arguments) {
            Err(Error::ProgramGone { .. }) if taken > 0 && arguments.count.is_none() => break,
            outcome => outcome?,
        }
        taken += 1;
        due = (due + every).max(Instant::now());
    }
    Ok(())
}
