//! `ckpt copy`: brings checkpoints into another store; only what is missing there is written.

use std::path::{Path, PathBuf};

use ckpt_store::{AttemptState, Copied, PAGE_BYTES, Store, StoreOptions};
use clap::Args;
use serde::Serialize;

use super::progress_bar::{Progress, Unit};
use super::{print, print_json};
use crate::error::{Error, Result, exit_code};
use crate::units;

/// Copy checkpoints to another store; only what is missing there is written
#[derive(Args)]
#[command(after_help = "\
Checkpoints get new numbers in the other store and keep their job, name and time. One that is there already is
not copied again, so a copy that was interrupted is simply repeated.

Examples:
  ckpt copy ckpt-store /mnt/backup/heat       every checkpoint, oldest first
  ckpt copy ckpt-store:42 /mnt/backup/heat    this one
  ckpt copy ckpt-store /mnt/backup/heat --job heat")]
pub struct Arguments {
    /// The store, or one checkpoint in it: DIR or DIR:N
    #[arg(value_name = "DIR[:N]")]
    from: String,
    /// The store to copy to, which is made when nothing is there
    #[arg(value_name = "DIR2")]
    to: PathBuf,
    /// Only this job, by id or name
    #[arg(long)]
    job: Option<String>,
    /// One JSON array, for scripts
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> Result<u8> {
    let (dir, id) = directory_and_number(&arguments.from);
    let from = Store::open(&dir)?;
    let ids = chosen(&from, &dir, id, arguments.job.as_deref())?;
    let options = StoreOptions { digest: from.digest(), ..StoreOptions::default() };
    let to = Store::create_or_open_with(&arguments.to, &options)?;
    let mut progress = Progress::start();
    let mut lines = Vec::new();
    for id in ids {
        let total_bytes = from.manifest(id)?.row.memory_bytes;
        let mut done_bytes = 0;
        let copied = from.copy_checkpoint(id, &to, &mut |pages| {
            done_bytes += pages * PAGE_BYTES as u64;
            progress.update("copying", done_bytes, total_bytes, Unit::Bytes);
        })?;
        let line = Line::new(id, &copied);
        if !arguments.json {
            progress.end();
            print(&text(&line))?;
        }
        lines.push(line);
    }
    if arguments.json {
        print_json(&lines)?;
    }
    Ok(exit_code::DONE)
}

/// `DIR` or `DIR:N`. A directory whose own name ends like that is meant itself.
fn directory_and_number(from: &str) -> (PathBuf, Option<u64>) {
    let split = from.rsplit_once(':').and_then(|(dir, number)| Some((dir, number.parse().ok()?)));
    match split {
        Some((dir, number)) if !Path::new(from).exists() => (dir.into(), Some(number)),
        _ => (from.into(), None),
    }
}

fn chosen(store: &Store, dir: &Path, id: Option<u64>, job: Option<&str>) -> Result<Vec<u64>> {
    let rows = store.attempts()?;
    let sealed = rows.iter().filter(|row| row.state == AttemptState::Sealed);
    let ids: Vec<u64> = sealed
        .filter(|row| id.is_none_or(|id| row.id == id) && job.is_none_or(|job| row.job == job || row.name == job))
        .map(|row| row.id)
        .collect();
    match (ids.as_slice(), id) {
        // The store says best what there is instead.
        ([], Some(id)) => store.manifest(id).map(|manifest| vec![manifest.id]).map_err(Error::from),
        ([], None) => {
            let why = std::io::Error::other("there is none to copy; `ckpt list` tells what was attempted");
            Err(Error::io("find a sealed checkpoint in", dir, why))
        }
        _ => Ok(ids),
    }
}

/// A row of `--json`. Scripts depend on the names.
#[derive(Serialize)]
struct Line {
    from: u64,
    to: u64,
    new_bytes: u64,
    was_there: bool,
}

impl Line {
    fn new(from: u64, copied: &Copied) -> Line {
        let new_bytes = if copied.was_there { 0 } else { copied.row.new_bytes };
        Line { from, to: copied.row.id, new_bytes, was_there: copied.was_there }
    }
}

fn text(line: &Line) -> String {
    let what = if line.was_there { "was there".to_owned() } else { format!("{} new", units::bytes(line.new_bytes)) };
    format!("{} -> {}  {what}\n", line.from, line.to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_behind_a_colon_is_a_checkpoint_unless_a_directory_has_that_name() {
        let scene = tempfile::tempdir().unwrap();
        let dir = scene.path().join("store");
        let named = format!("{}:3", dir.display());
        assert_eq!(directory_and_number(&named), (dir.clone(), Some(3)));
        assert_eq!(directory_and_number("store:x"), ("store:x".into(), None));
        std::fs::create_dir(&named).unwrap();
        assert_eq!(directory_and_number(&named), (named.into(), None));
    }
}
