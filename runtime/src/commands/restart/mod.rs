//! `ckpt restart`: brings a program back and is its parent.

mod detach;

use std::path::PathBuf;

use ckpt_store::{Store, StoreOptions};
use ckpt_wire::ENV_DIR;
use clap::Args;

use super::interval::{check_interval, interval_ms};
use super::pid_file::PidFile;
use super::progress_bar::{Progress, Unit};
use super::run::store_dir;
use super::{absolute, which_checkpoint};
use crate::agent;
use crate::capture::Program;
use crate::error::{Error, Result, exit_code};
use crate::location::Location;
use crate::parent::Parent;
use crate::restore::{Rebuilt, RestoreOptions, Stage, rebuild};

/// Bring a program back from its newest checkpoint
#[derive(Args)]
#[command(after_help = "\
The program's terminals and pipes become the standard input, output and error of this command; regular
files are opened again. The exit status is the program's own, or 128 + the number of the signal that ended
it; failures of ckpt itself are 121 (failed), 122 (usage), 123 (corrupt), 124 (not supported),
125 (environment).

With --detach the program belongs to nobody and this command ends at once. Standard output is then for the
pid alone: what the program writes to a terminal or a pipe goes to standard error, and it reads nothing
from a terminal.

Examples:
  ckpt restart ckpt-store
  ckpt restart ckpt-store --id 3
  ckpt restart ckpt-store --job heat
  ckpt restart s3://bucket/heat --dir /scratch/heat
  pid=$(ckpt restart ckpt-store --detach)")]
pub struct Arguments {
    /// The store: a directory, or s3://BUCKET/PREFIX
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// The directory for the program's next checkpoints [default: the store, if it is a directory, or $CKPT_DIR]
    #[arg(long = "dir", value_name = "NEXT_DIR")]
    next_dir: Option<PathBuf>,
    /// The checkpoint [default: the newest sealed one]
    #[arg(long)]
    id: Option<u64>,
    /// The job, by id or name, where the store holds several
    #[arg(long)]
    job: Option<String>,
    /// Leave the program alone once it runs, and print its pid
    #[arg(long)]
    detach: bool,
    /// Restart even if files have changed that were not captured
    #[arg(long)]
    force: bool,
    /// Restart from a store that belongs to another user, who decides what runs
    #[arg(long)]
    trust_owner: bool,
    /// Time between automatic checkpoints: 30s, 10m, 2h; a bare number is seconds; 0 is none [default: as before]
    #[arg(long, value_parser = check_interval)]
    interval: Option<String>,
    /// Write the program's pid to this file, before it runs on
    #[arg(long, value_name = "FILE")]
    pid_file: Option<PathBuf>,
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> Result<u8> {
    let pid_file = arguments.pid_file.as_deref().map(PidFile::prepare).transpose()?;
    if arguments.detach {
        return detach::in_intermediate_process(|| {
            let rebuilt = rebuild_selected(arguments)?;
            let pid = rebuilt.pid();
            release(rebuilt, pid_file.as_ref())?;
            keep_interval(pid);
            Ok(pid)
        });
    }
    let mut parent = Parent::prepare()?;
    // Until the program is complete, our end is its end.
    let rebuilt = parent.interruptible(|| rebuild_selected(arguments))?;
    let pid = rebuilt.pid();
    parent.release(pid, || release(rebuilt, pid_file.as_ref()))?;
    keep_interval(pid);
    parent.follow(pid)
}

/// Lets the program run, and says before where.
fn release(rebuilt: Rebuilt, pid_file: Option<&PidFile>) -> Result<()> {
    if let Some(file) = pid_file {
        file.write(rebuilt.pid())?;
    }
    let released = rebuilt.release();
    if released.is_err() {
        pid_file.into_iter().for_each(PidFile::remove);
    }
    released
}

/// Automatic checkpoints go on. In the first life libckpt.so sees to that from the program's start; here there is none.
fn keep_interval(pid: i32) {
    let interval_ms = Program::find(pid).and_then(|program| program.control()).map(|control| control.interval_ms);
    // A program that has ended meanwhile, or had no libckpt.so, has no interval either.
    if interval_ms.is_ok_and(|interval_ms| interval_ms > 0)
        && let Err(error) = agent::start(pid)
        && !matches!(error, Error::ProgramGone { .. })
    {
        eprintln!("ckpt: the program runs without its automatic checkpoints: {error}");
    }
}

/// Rebuilds the chosen checkpoint. The store is closed again: its descriptors are of no use to a parent.
fn rebuild_selected(arguments: &Arguments) -> Result<Rebuilt> {
    let location = Location::of(&arguments.dir)?;
    let store_dir = next_store_dir(arguments, &location)?;
    let trust = StoreOptions { trust_owner: arguments.trust_owner, ..StoreOptions::default() };
    let store = location.open(&trust)?;
    let dir = &arguments.dir;
    let id = which_checkpoint::to_restart(dir, &store.attempts()?, arguments.id, arguments.job.as_deref())?;
    log::info!("restarting checkpoint {id} of {}", dir.display());
    let interval_ms = arguments.interval.as_deref().and_then(interval_ms);
    let options = RestoreOptions { store_dir, force: arguments.force, interval_ms };
    rebuild_with_progress(&store, id, &options)
}

/// Where the program's next checkpoints go: into the store it comes from, if that is a directory. From a URL the choice
/// is the user's, and there is no default: a directory of the program's first host may not even exist on this one.
fn next_store_dir(arguments: &Arguments, location: &Location) -> Result<PathBuf> {
    match (location, &arguments.next_dir) {
        (Location::Directory(dir), None) => absolute(dir),
        (Location::Url(url), None) if std::env::var_os(ENV_DIR).is_none_or(|dir| dir.is_empty()) => {
            Err(Error::Usage(format!(
                "{url} cannot hold the program's next checkpoints; name a local directory for them with --dir or CKPT_DIR"
            )))
        }
        (_, next) => {
            let dir = store_dir(next.as_deref())?;
            // The program is told the path only if it is there.
            Store::create_or_open(&dir)?;
            Ok(dir)
        }
    }
}

fn rebuild_with_progress(store: &Store, id: u64, options: &RestoreOptions) -> Result<Rebuilt> {
    let mut bar = Progress::start();
    let rebuilt = rebuild(store, id, options, &mut |stage, done, total| match stage {
        Stage::Reading => bar.update("reading", done, total, Unit::Bytes),
        Stage::Verifying => bar.update("comparing files", done, total, Unit::Bytes),
        Stage::Mapping => bar.update("filling memory", done, total, Unit::Bytes),
        Stage::Threads => bar.update("threads", done, total, Unit::Count),
    });
    bar.end();
    rebuilt.map_err(|error| which_checkpoint::or_dropped(store, id, error))
}

/// The exit status of a command that only started the program.
const DETACHED: u8 = exit_code::DONE;
