//! `ckpt copy`: brings checkpoints into another store; only what is missing there is written.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use ckpt_store::{AttemptRow, AttemptState, Copied, Key, PAGE_BYTES, StoreOptions};
use clap::Args;
use serde::Serialize;

use super::progress_bar::{Progress, Unit};
use super::{print, print_json, which_checkpoint};
use crate::error::{Error, Result, exit_code};
use crate::location::Location;
use crate::mapped_files;
use crate::{audit, core_dumps, store_key, units};

/// Copy checkpoints to another store; only what is missing there is written
#[derive(Args)]
#[command(after_help = "\
Checkpoints get new numbers in the other store and keep their job, name and time. One that is there already is
not copied again, so a copy that was interrupted is simply repeated.

Examples:
  ckpt copy ckpt-store /mnt/backup/heat       every checkpoint, oldest first
  ckpt copy ckpt-store:42 /mnt/backup/heat    this one
  ckpt copy ckpt-store /mnt/backup/heat --job heat
  ckpt copy ckpt-store s3://bucket/heat       into a bucket
  CKPT_KEY=key ckpt copy ckpt-store s3://bucket/heat              an encrypted copy of a store, encrypted or not
  CKPT_KEY=key ckpt copy ckpt-store /mnt/other --key other-key    a copy that another key opens
  CKPT_KEY=key ckpt copy ckpt-store /mnt/plain --key none         a copy that is not encrypted")]
pub struct Arguments {
    /// The store, or one checkpoint in it: DIR or DIR:N; DIR can be s3://BUCKET/PREFIX
    #[arg(value_name = "DIR[:N]")]
    from: String,
    /// The store to copy to, which is made when nothing is there: a directory, or s3://BUCKET/PREFIX
    #[arg(value_name = "DIR2")]
    to: PathBuf,
    /// Only this job, by id or name
    #[arg(long)]
    job: Option<String>,
    /// The key of the store to copy to: a file, command:COMMAND, or none [default: $CKPT_KEY]
    #[arg(long, value_name = "KEY")]
    key: Option<OsString>,
    /// One JSON array, for scripts
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> Result<u8> {
    core_dumps::forbid_and_close();
    let (dir, id) = directory_and_number(&arguments.from);
    audit::of_store("copy", &dir, |record| {
        record.text("to", &arguments.to.to_string_lossy());
        audit::of_store("copy-to", &arguments.to, |_| copy(arguments, &dir, id))
    })
}

fn copy(arguments: &Arguments, dir: &Path, id: Option<u64>) -> Result<u8> {
    let from = Location::of(dir)?.open(&StoreOptions { accept_plain: true, ..StoreOptions::default() })?;
    let attempts = from.attempts()?;
    let ids = chosen(dir, &attempts, id, arguments.job.as_deref())?;
    let options = StoreOptions { digest: from.digest(), key: key_of(arguments)?, ..StoreOptions::default() };
    let to = Location::of(&arguments.to)?.create_or_open(&options)?;
    let mut progress = Progress::start();
    let mut lines = Vec::new();
    for id in ids {
        let total_bytes = attempts.iter().find(|row| row.id == id).map_or(0, |row| row.memory_bytes);
        let mut done_bytes = 0;
        // Another host may not have its files.
        mapped_files::settle(&from, id)?;
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

/// The key of the store to copy to.
fn key_of(arguments: &Arguments) -> Result<Option<Key>> {
    match arguments.key.as_deref() {
        None => store_key::of_environment(),
        Some(none) if none == "none" => Ok(None),
        Some(key) => store_key::read(key, Path::new(".")).map(Some),
    }
}

/// `DIR` or `DIR:N`. A directory whose own name ends like that is meant itself.
fn directory_and_number(from: &str) -> (PathBuf, Option<u64>) {
    let split = from.rsplit_once(':').and_then(|(dir, number)| Some((dir, number.parse().ok()?)));
    match split {
        Some((dir, number)) if !Path::new(from).exists() => (dir.into(), Some(number)),
        _ => (from.into(), None),
    }
}

fn chosen(dir: &Path, attempts: &[AttemptRow], id: Option<u64>, job: Option<&str>) -> Result<Vec<u64>> {
    if let Some(id) = id {
        return Ok(vec![which_checkpoint::select(dir, attempts, Some(id), job)?]);
    }
    let of_job = which_checkpoint::attempts_of(dir, attempts.to_vec(), job)?;
    let ids: Vec<u64> = of_job.iter().filter(|row| row.state == AttemptState::Sealed).map(|row| row.id).collect();
    if ids.is_empty() {
        let why = std::io::Error::other("there is none to copy; `ckpt list` tells what was attempted");
        return Err(Error::io("find a sealed checkpoint in", dir, why));
    }
    Ok(ids)
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
