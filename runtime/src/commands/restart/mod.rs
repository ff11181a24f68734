//! `ckpt restart`: brings a program back and is its parent.

mod detach;
mod stdio;

use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use ckpt_store::{Store, StoreOptions};
use ckpt_wire::ENV_DIR;
use clap::Args;

use super::progress_bar::{Progress, Unit};
use super::run::store_dir;
use super::{absolute, which_checkpoint};
use crate::error::{Error, Result, exit_code};
use crate::image::PathMap;
use crate::location::Location;
use crate::parent::Parent;
use crate::restore::{Rebuilt, RestoreOptions, Stage, Stdio, rebuild};

/// Bring a program back from its newest checkpoint
#[derive(Args)]
#[command(after_help = "\
The program's terminals and pipes become the standard input, output and error of this command; regular
files are opened again; --stdio chooses otherwise (a file that is called inherit is ./inherit, one that is
made is its owner's alone). The exit status is the program's own, or 128 + the number of the signal that ended
it; failures of ckpt itself are 121 (failed), 122 (usage), 123 (corrupt), 124 (not supported),
125 (environment).

With --detach the program belongs to nobody and this command ends at once. Standard output is then for the
pid alone: what the program writes to a terminal or a pipe goes to standard error, and it reads nothing
from a terminal.

Examples:
  ckpt restart ckpt-store
  ckpt restart ckpt-store --id 3
  ckpt restart ckpt-store --job heat
  ckpt restart ckpt-store --map /home/me/run=/scratch/run
  nohup ckpt restart ckpt-store --stdio heat.log &
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
    /// OLD=NEW: what was in directory OLD is in NEW now; may be given several times. Paths that the program itself
    /// remembers stay as they are
    #[arg(long = "map", value_name = "OLD=NEW", value_parser = parse_pair)]
    maps: Vec<(PathBuf, PathBuf)>,
    /// inherit: 0, 1 and 2 become those of this command, also where they were files. FILE: what the program writes to a
    /// terminal, pipe or socket is appended to FILE, and it reads nothing there
    #[arg(long, value_name = "inherit|FILE", value_parser = stdio::check_stdio)]
    stdio: Option<stdio::Choice>,
    /// Restart from a store that belongs to another user, who decides what runs
    #[arg(long)]
    trust_owner: bool,
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> Result<u8> {
    let stdio = stdio::chosen(arguments.stdio.as_ref())?;
    if arguments.detach {
        return detach::in_intermediate_process(|| {
            let rebuilt = rebuild_selected(arguments, stdio)?;
            let pid = rebuilt.pid();
            rebuilt.release()?;
            Ok(pid)
        });
    }
    let mut parent = Parent::prepare()?;
    // Until the program is complete, our end is its end.
    let rebuilt = parent.interruptible(|| rebuild_selected(arguments, stdio))?;
    let pid = rebuilt.pid();
    let modes = rebuilt.terminal_modes().cloned();
    parent.release(pid, modes, || rebuilt.release())?;
    parent.follow(pid)
}

/// Rebuilds the chosen checkpoint. The store is closed again: its descriptors are of no use to a parent.
fn rebuild_selected(arguments: &Arguments, stdio: Stdio) -> Result<Rebuilt> {
    let location = Location::of(&arguments.dir)?;
    let store_dir = next_store_dir(arguments, &location)?;
    let trust = StoreOptions { trust_owner: arguments.trust_owner, ..StoreOptions::default() };
    let store = location.open(&trust)?;
    let dir = &arguments.dir;
    let id = which_checkpoint::to_restart(dir, &store.attempts()?, arguments.id, arguments.job.as_deref())?;
    log::info!("restarting checkpoint {id} of {}", dir.display());
    let paths = path_map(&arguments.maps)?;
    let options = RestoreOptions { store_dir, force: arguments.force, paths, stdio };
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

fn parse_pair(text: &str) -> std::result::Result<(PathBuf, PathBuf), String> {
    match text.split_once('=') {
        Some((old, new)) if !old.is_empty() && !new.is_empty() => Ok((old.into(), new.into())),
        _ => Err("write OLD=NEW, two directories".to_owned()),
    }
}

fn path_map(pairs: &[(PathBuf, PathBuf)]) -> Result<PathMap> {
    let bytes = |path: &Path| absolute(path).map(|path| path.into_os_string().into_vec());
    let pairs: Vec<_> = pairs.iter().map(|(old, new)| Ok((bytes(old)?, bytes(new)?))).collect::<Result<_>>()?;
    Ok(PathMap::new(pairs))
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
