//! `ckpt ps`: the programs that can be checkpointed, and how far they are.

use ckpt_store::{AttemptRow, AttemptState, Depth};
use clap::Args;
use nix::unistd::geteuid;
use serde::Serialize;

use super::table::{Align, Table};
use super::which_program::{self, Running};
use super::{print, print_json};
use crate::error::{Result, exit_code};
use crate::{location, units};

/// List the programs that run under ckpt, each job once
#[derive(Args)]
#[command(after_help = "\
Examples:
  ckpt ps
  ckpt ps --json | jq '.[].pid'")]
pub struct Arguments {
    /// One JSON array, for scripts
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> Result<u8> {
    let programs: Vec<Listed> = which_program::all()?.into_iter().map(Listed::of).collect();
    if arguments.json {
        print_json(&programs)?;
    } else if programs.is_empty() {
        crate::say!("no program of yours runs under ckpt");
    } else {
        print(&table(&programs).to_string())?;
    }
    Ok(exit_code::DONE)
}

/// A program in `--json`. Scripts depend on the names.
#[derive(Serialize)]
struct Listed {
    pid: i32,
    user: u32,
    job: String,
    name: String,
    store: String,
    interval_ms: u64,
    /// The process that takes its checkpoints; none is running before the first.
    agent: Option<i32>,
    newest: Option<u64>,
    newest_unix_s: Option<u64>,
    /// Why the last attempt failed, if it is newer than that.
    failure: Option<String>,
}

impl Listed {
    fn of(program: Running) -> Listed {
        // Stores of others are not opened: their owners decide what is there.
        let rows = if program.user == geteuid().as_raw() { attempts(&program) } else { Vec::new() };
        let newest = rows.iter().rfind(|row| row.state == AttemptState::Sealed && row.depth == Depth::Full);
        let last = rows.last().filter(|row| row.state == AttemptState::Failed);
        Listed {
            pid: program.pid,
            user: program.user,
            job: format!("{:016x}", program.job),
            name: program.name,
            store: program.store.display().to_string(),
            interval_ms: program.interval_ms,
            agent: program.agent,
            newest: newest.map(|row| row.id),
            newest_unix_s: newest.and_then(|row| row.sealed_unix_s),
            failure: last.map(|row| row.reason.clone()),
        }
    }
}

/// The attempts of the program's job, oldest first. A store that is not there yet has none.
fn attempts(program: &Running) -> Vec<AttemptRow> {
    let job = format!("{:016x}", program.job);
    let rows = location::open(&program.store).and_then(|store| Ok(store.attempts()?));
    let mut rows = rows.unwrap_or_default();
    rows.retain(|row| row.job == job);
    rows.sort_by_key(|row| row.id);
    rows
}

fn table(programs: &[Listed]) -> Table {
    let mut table = Table::new(&[
        ("pid", Align::Right),
        ("user", Align::Right),
        ("name", Align::Left),
        ("interval", Align::Right),
        ("agent", Align::Right),
        ("newest", Align::Right),
        ("sealed", Align::Left),
        ("store", Align::Left),
        ("failure", Align::Left),
    ]);
    let dash = || "-".to_owned();
    for program in programs {
        let interval = match program.interval_ms {
            0 => dash(),
            ms if ms % 1000 == 0 => format!("{} s", ms / 1000),
            ms => format!("{ms} ms"),
        };
        table.row([
            program.pid.to_string(),
            program.user.to_string(),
            program.name.clone(),
            interval,
            program.agent.map_or_else(dash, |agent| agent.to_string()),
            program.newest.map_or_else(dash, |id| id.to_string()),
            program.newest_unix_s.map_or_else(dash, units::local_time),
            program.store.clone(),
            program.failure.clone().unwrap_or_default(),
        ]);
    }
    table
}
