//! `ckpt verify`: reads checkpoints whole and says which of them could be restored.

use std::io;
use std::path::{Path, PathBuf};

use ckpt_store::{AttemptRow, PAGE_BYTES, Store, StoreError, Verifier};
use clap::Args;
use serde::Serialize;

use super::progress_bar::{Progress, Unit};
use super::store_owner::read_as_owner;
use super::table::{Align, Table};
use super::{default_store, print, print_json, which_checkpoint};
use crate::differences::Differences;
use crate::error::{Error, Result, exit_code};
use crate::image::Image;
use crate::stored_content::StoredData;
use crate::{audit, core_dumps, location, restore, units};

/// Read checkpoints whole, and say which are damaged and where
#[derive(Args)]
#[command(after_help = "\
Examples:
  ckpt verify ckpt-store            every checkpoint in the store
  ckpt verify ckpt-store 3
  ckpt verify ckpt-store --job heat
  ckpt verify ckpt-store --json | jq '.[] | select(.state == \"damaged\") | .id'

The exit code is 0 when all are whole and 3 when one is damaged.")]
pub struct Arguments {
    /// The store: a directory, or s3://BUCKET/PREFIX
    #[arg(default_value_os_t = default_store::dir())]
    dir: PathBuf,
    /// The checkpoint [default: every one]
    id: Option<u64>,
    /// The checkpoints of this job alone, by its id or name, and those too damaged to say whose they are
    #[arg(long)]
    job: Option<String>,
    /// One JSON array, for scripts
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> Result<u8> {
    core_dumps::forbid_and_close();
    let (dir, id) = default_store::with_checkpoint(&arguments.dir, arguments.id);
    audit::of_store("verify", &dir, |_| read_as_owner(&dir, || verify(arguments, &dir, id)))
}

fn verify(arguments: &Arguments, dir: &Path, id: Option<u64>) -> Result<u8> {
    let store = location::open(dir)?;
    let rows = store.attempts()?;
    let ids = asked_for((dir, id, arguments.job.as_deref()), &rows, store.sealed()?)?;
    let verdicts = verdicts(&store, &rows, &ids, id.is_none())?;
    if arguments.json {
        print_json(&verdicts)?;
    } else if verdicts.is_empty() {
        crate::say!("no checkpoint has been taken into {}", dir.display());
    } else {
        print(&table(&verdicts).to_string())?;
    }
    match verdicts.iter().filter(|verdict| verdict.state == State::Damaged).count() {
        0 => Ok(exit_code::DONE),
        damaged => {
            crate::say!("{damaged} of {} checkpoints damaged; restart from another, or from a copy", ids.len());
            Ok(exit_code::CORRUPT)
        }
    }
}

/// The checkpoints to verify, of those that are sealed.
fn asked_for(
    (dir, id, job): (&Path, Option<u64>, Option<&str>),
    rows: &[AttemptRow],
    sealed: Vec<u64>,
) -> Result<Vec<u64>> {
    let row = |id| rows.iter().find(|row| row.id == id);
    let Some(id) = id else {
        let of_job = which_checkpoint::attempts_of(dir, rows.to_vec(), job)?;
        // What cannot be read may be the job's, so it is not passed by.
        let is_asked_for =
            |id: &u64| of_job.iter().any(|row| row.id == *id) || row(*id).is_none_or(which_checkpoint::is_unreadable);
        return Ok(sealed.into_iter().filter(is_asked_for).collect());
    };
    if let Some(row) = row(id) {
        if !which_checkpoint::is_unreadable(row) {
            which_checkpoint::refuse_other_job(row, job)?;
        }
        if !sealed.contains(&id) {
            let why = format!("attempt {id} is {} {}", super::row_words::state_word(row.state), row.reason);
            return Err(Error::io("verify", dir, io::Error::other(why.trim_end().to_owned())));
        }
    }
    Ok(vec![id])
}

/// What has been found out about a checkpoint; a row of `--json`. Scripts depend on the names.
#[derive(Serialize)]
struct Verdict {
    id: u64,
    job: String,
    name: String,
    memory_bytes: u64,
    pending_bytes: u64,
    state: State,
    reason: String,
}

impl Verdict {
    fn new(id: u64, row: Option<&AttemptRow>, damage: Option<String>) -> Verdict {
        let (job, name, memory_bytes) =
            row.map_or_else(Default::default, |row| (row.job.clone(), row.name.clone(), row.memory_bytes));
        let state = if damage.is_none() { State::Whole } else { State::Damaged };
        let pending_bytes = row.map_or(0, |row| row.pending_bytes);
        let pending = || match pending_bytes {
            0 => String::new(),
            bytes => format!(
                "{} of its files are not stored: it needs them unchanged until it is complete",
                units::bytes(bytes)
            ),
        };
        Verdict { id, job, name, memory_bytes, pending_bytes, state, reason: damage.unwrap_or_else(pending) }
    }
}

#[derive(Serialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum State {
    Whole,
    Damaged,
}

/// `all`: these are all that there were, and not one that was asked for.
fn verdicts(store: &Store, rows: &[AttemptRow], ids: &[u64], all: bool) -> Result<Vec<Verdict>> {
    let row = |id| rows.iter().find(|row| row.id == id);
    let total_bytes = ids.iter().filter_map(|&id| row(id)).map(|row| row.memory_bytes).sum();
    let mut done_bytes = 0;
    let mut progress = Progress::start();
    let mut verifier = store.verifier();
    ids.iter()
        .filter_map(|&id| {
            let mut verified = |pages: u64| {
                done_bytes += pages * PAGE_BYTES as u64;
                progress.update("verifying", done_bytes, total_bytes, Unit::Bytes);
            };
            match damage(store, &mut verifier, id, &mut verified) {
                Ok(damage) => Some(Ok(Verdict::new(id, row(id), damage))),
                // Nobody asked for this one, and it was dropped since the list was made.
                Err(Error::Store(StoreError::NoSuchCheckpoint { .. })) if all => None,
                Err(error) => Some(Err(error)),
            }
        })
        .collect()
}

/// What is wrong with checkpoint `id`, and where; `None` when it is whole.
fn damage(
    store: &Store,
    verifier: &mut Verifier<'_>,
    id: u64,
    verified: &mut dyn FnMut(u64),
) -> Result<Option<String>> {
    let whole = verifier.checkpoint(id, verified).map_err(Error::from);
    let image = whole.and_then(|manifest| Image::of(&manifest));
    let checked = image.and_then(|image| match &image {
        Image::Job(image) => {
            restore::check_shape(id, image)?;
            image.processes.iter().try_for_each(|process| Differences::of(process, store).map(drop))
        }
        Image::Data(image) => StoredData::of(image, store).map(drop),
    });
    match checked.map_err(|error| which_checkpoint::or_dropped(store, id, error)) {
        Ok(()) => Ok(None),
        Err(error) if error.exit_code() == exit_code::CORRUPT => Ok(Some(error.to_string())),
        Err(error) => Err(error),
    }
}

fn table(verdicts: &[Verdict]) -> Table {
    let mut table = Table::new(&[
        ("id", Align::Right),
        ("job", Align::Left),
        ("name", Align::Left),
        ("memory", Align::Right),
        ("state", Align::Left),
        ("reason", Align::Left),
    ]);
    for verdict in verdicts {
        table.row([
            verdict.id.to_string(),
            verdict.job.clone(),
            verdict.name.clone(),
            units::bytes(verdict.memory_bytes),
            match verdict.state {
                State::Whole => "whole".to_owned(),
                State::Damaged => "damaged".to_owned(),
            },
            verdict.reason.clone(),
        ]);
    }
    table
}
