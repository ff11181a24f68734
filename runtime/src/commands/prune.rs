//! `ckpt prune`: drops old checkpoints and gives back the space that nobody needs any more.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use ckpt_store::{AttemptRow, Reclaimed};
use clap::Args;
use serde::Serialize;

use super::{default_store, print, print_json, which_checkpoint};
use crate::error::{Result, exit_code};
use crate::units::printable;
use crate::{audit, core_dumps, location, units};

/// Drop all but the newest checkpoints of each job, and give back their space
#[derive(Args)]
#[command(after_help = "\
Programs may write checkpoints into the store and be restarted from it meanwhile. Space that a checkpoint
which is just being written may share comes back with the next prune. With CKPT_KEEP=N in its environment a
program's own older checkpoints are dropped after each new one.

Examples:
  ckpt prune ckpt-store --keep 3
  ckpt prune ckpt-store --keep 1 --job heat
  ckpt prune ckpt-store --keep 3 --dry-run    say what would go")]
pub struct Arguments {
    /// The store, a directory
    #[arg(default_value_os_t = default_store::dir())]
    dir: PathBuf,
    /// How many sealed checkpoints of each job stay, the newest ones
    #[arg(long)]
    keep: NonZeroUsize,
    /// Only this job, by id or name
    #[arg(long)]
    job: Option<String>,
    /// Only say which checkpoints would be dropped
    #[arg(long)]
    dry_run: bool,
    /// One JSON object, for scripts
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> Result<u8> {
    core_dumps::forbid_and_close();
    let reclaimed = match arguments.dry_run {
        true => prune(arguments),
        false => audit::of_store("prune", &arguments.dir, |record| {
            record.number("keep", arguments.keep.get() as u64);
            let reclaimed = prune(arguments)?;
            record.number("dropped", reclaimed.checkpoints.len() as u64);
            Ok(reclaimed)
        }),
    }?;
    if arguments.json {
        print_json(&Report::from(&reclaimed))?;
    } else {
        print(&text(&reclaimed, arguments.dry_run))?;
    }
    say_problems(&reclaimed);
    Ok(exit_code::DONE)
}

/// Says what could not be given back.
pub fn say_problems(reclaimed: &Reclaimed) {
    for problem in &reclaimed.problems {
        crate::say!("a pack that is mostly not needed stays: {problem}");
    }
}

fn prune(arguments: &Arguments) -> Result<Reclaimed> {
    let store = location::open(&arguments.dir)?;
    let job = arguments.job.as_deref();
    which_checkpoint::attempts_of(&arguments.dir, store.attempts()?, job)?;
    let keep = arguments.keep.get();
    Ok(match arguments.dry_run {
        true => Reclaimed { checkpoints: store.prunable(keep, job)?, ..Reclaimed::default() },
        false => store.prune(keep, job)?,
    })
}

/// `--json`. Scripts depend on the names.
#[derive(Serialize)]
pub struct Report<'a> {
    /// Numbers of the checkpoints that were dropped.
    checkpoints: Vec<u64>,
    removed_bytes: u64,
    copied_bytes: u64,
    waiting_bytes: u64,
    problems: &'a [String],
}

impl<'a> From<&'a Reclaimed> for Report<'a> {
    fn from(reclaimed: &'a Reclaimed) -> Self {
        Report {
            checkpoints: reclaimed.checkpoints.iter().map(|row| row.id).collect(),
            removed_bytes: reclaimed.removed_bytes,
            copied_bytes: reclaimed.copied_bytes,
            waiting_bytes: reclaimed.waiting_bytes,
            problems: &reclaimed.problems,
        }
    }
}

/// The same for people.
pub fn text(reclaimed: &Reclaimed, dry_run: bool) -> String {
    let line = |row: &AttemptRow| {
        let (job, name) = (printable(&row.job), printable(&row.name));
        format!("{}  {job}  {name}  {}\n", row.id, super::row_words::time(row))
    };
    let mut text: String = reclaimed.checkpoints.iter().map(line).collect();
    let count = reclaimed.checkpoints.len();
    if dry_run {
        return text + &format!("would drop {count} checkpoints\n");
    }
    text += &format!("dropped {count} checkpoints: {} given back", units::bytes(reclaimed.removed_bytes));
    if reclaimed.copied_bytes > 0 {
        text += &format!(", {} of them copied first", units::bytes(reclaimed.copied_bytes));
    }
    if reclaimed.waiting_bytes > 0 {
        let waiting = units::bytes(reclaimed.waiting_bytes);
        text += &format!("; {waiting} wait for checkpoints that are just being written");
    }
    text + "\n"
}
