//! `ckpt list`: the attempts of a store, oldest first.

use std::path::PathBuf;

use ckpt_store::{AttemptRow, AttemptState, Depth};
use clap::Args;
use serde::{Serialize, Serializer};

use super::row_words::{state_word, time};
use super::store_owner::read_as_owner;
use super::table::{Align, Table};
use super::{default_store, growth, print, print_json, which_checkpoint};
use crate::error::{Result, exit_code};
use crate::{location, units};

/// List the checkpoints of a store, failed attempts included
#[derive(Args)]
#[command(after_help = "\
Examples:
  ckpt list                        of $CKPT_DIR or ./ckpt-store
  ckpt list ckpt-store --job heat
  ckpt list ckpt-store --json | jq '.[-1].id'")]
pub struct Arguments {
    /// The store: a directory, or s3://BUCKET/PREFIX
    #[arg(default_value_os_t = default_store::dir())]
    dir: PathBuf,
    /// The attempts of this job alone, by its id or name
    #[arg(long)]
    job: Option<String>,
    /// One JSON array, for scripts
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> Result<u8> {
    read_as_owner(&arguments.dir, || list(arguments))
}

fn list(arguments: &Arguments) -> Result<u8> {
    let attempts = location::open(&arguments.dir)?.attempts()?;
    let mut rows = which_checkpoint::attempts_of(&arguments.dir, attempts, arguments.job.as_deref())?;
    rows.sort_by_key(|row| row.id);
    if arguments.json {
        print_json(&rows.iter().map(ListedAttempt::from).collect::<Vec<_>>())?;
    } else if rows.is_empty() {
        crate::say!("no checkpoint has been taken into {}", arguments.dir.display());
    } else {
        print(&table(&rows).to_string())?;
        let lines = growth::lines(&rows, growth::free_bytes(&arguments.dir));
        lines.iter().for_each(|line| crate::say!("{line}"));
    }
    Ok(exit_code::DONE)
}

/// The row of an attempt in `--json`. Scripts depend on the names.
#[derive(Serialize)]
struct ListedAttempt<'a> {
    id: u64,
    job: &'a str,
    name: &'a str,
    trigger: &'a str,
    /// full, or data.
    depth: Depth,
    sealed_unix_s: Option<u64>,
    processes: u32,
    memory_bytes: u64,
    new_bytes: u64,
    pending_bytes: u64,
    behind_bytes: u64,
    stop_ms: f64,
    #[serde(serialize_with = "as_object")]
    stop_phases_ms: &'a [(String, f64)],
    total_ms: f64,
    state: AttemptState,
    reason: &'a str,
}

/// Pairs as an object, in their order.
fn as_object<S: Serializer>(pairs: &[(String, f64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(name, value)| (name, value)))
}

impl<'a> From<&'a AttemptRow> for ListedAttempt<'a> {
    fn from(row: &'a AttemptRow) -> Self {
        ListedAttempt {
            id: row.id,
            job: &row.job,
            name: &row.name,
            trigger: &row.trigger,
            depth: row.depth,
            sealed_unix_s: row.sealed_unix_s,
            processes: row.processes,
            memory_bytes: row.memory_bytes,
            new_bytes: row.new_bytes,
            pending_bytes: row.pending_bytes,
            behind_bytes: row.behind_bytes,
            stop_ms: row.stop_ms,
            stop_phases_ms: &row.stop_phases_ms,
            total_ms: row.total_ms,
            state: row.state,
            reason: &row.reason,
        }
    }
}

/// The state of `row`, and what is to come.
fn state(row: &AttemptRow) -> String {
    match row.pending_bytes {
        0 => state_word(row.state).to_owned(),
        _ => format!("{}, files pending", state_word(row.state)),
    }
}

/// The word for `depth`.
pub fn depth_word(depth: Depth) -> &'static str {
    match depth {
        Depth::Full => "full",
        Depth::Data => "data",
    }
}

/// As narrow as the rows allow: jobs are told by their ids where two have one name, and the depth is told where it differs.
fn table(rows: &[AttemptRow]) -> Table {
    let names_tell = rows.iter().all(|row| rows.iter().all(|other| row.name != other.name || row.job == other.job));
    let any_behind = rows.iter().any(|row| row.behind_bytes + row.pending_bytes > 0);
    let depths_differ = rows.iter().any(|row| row.depth != Depth::Full);
    let mut table = Table::new(&[
        ("id", Align::Right),
        ("job", Align::Left),
        ("name", Align::Left),
        ("time", Align::Left),
        ("trigger", Align::Left),
        ("depth", Align::Left),
        ("procs", Align::Right),
        ("memory", Align::Right),
        ("new", Align::Right),
        ("behind", Align::Right),
        ("stop_ms", Align::Right),
        ("total_ms", Align::Right),
        ("state", Align::Left),
        ("reason", Align::Left),
    ]);
    for row in rows {
        table.row([
            row.id.to_string(),
            row.job.clone(),
            row.name.clone(),
            time(row),
            row.trigger.clone(),
            depth_word(row.depth).to_owned(),
            row.processes.to_string(),
            units::bytes(row.memory_bytes),
            units::bytes(row.new_bytes),
            units::bytes(row.behind_bytes),
            units::milliseconds(row.stop_ms),
            units::milliseconds(row.total_ms),
            state(row),
            row.reason.clone(),
        ]);
    }
    if names_tell {
        table.leave_out("job");
    }
    if !depths_differ {
        table.leave_out("depth");
    }
    if !any_behind {
        table.leave_out("behind");
    }
    table
}

#[cfg(test)]
pub(super) mod tests {
    use ckpt_store::PageCounts;

    use super::*;

    /// An attempt with round figures.
    pub fn attempt(id: u64, job: &str, name: &str, state: AttemptState) -> AttemptRow {
        let sealed = state == AttemptState::Sealed;
        AttemptRow {
            id,
            job: job.to_owned(),
            name: name.to_owned(),
            trigger: "command".to_owned(),
            started_unix_ms: 1_000_000_000_000,
            sealed_unix_s: sealed.then_some(1_000_000_000 + id),
            processes: 1,
            depth: Depth::Full,
            memory_bytes: 1 << 30,
            new_bytes: 3 << 20,
            pending_bytes: 0,
            behind_bytes: 0,
            stop_ms: 4.25,
            stop_phases_ms: vec![("pages".to_owned(), 3.0), ("clone".to_owned(), 1.25)],
            total_ms: 812.0,
            state,
            reason: if state == AttemptState::Failed { "no space".to_owned() } else { String::new() },
            written: PageCounts::default(),
        }
    }

    #[test]
    fn the_table_has_a_line_for_each_attempt_with_sizes_for_people() {
        let rows = [attempt(1, "ab", "heat", AttemptState::Sealed), attempt(12, "ab", "heat", AttemptState::Failed)];
        let text = table(&rows).to_string();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[1].starts_with(" 1  heat") && lines[1].ends_with("1.0 GiB  3.0 MiB      4.2       812  sealed"));
        assert!(lines[2].starts_with("12  heat") && lines[2].ends_with("failed  no space"), "{}", lines[2]);
        assert!(!lines[0].contains("depth") && lines[1].len() < 100, "{}", lines[0]);
    }

    #[test]
    fn a_checkpoint_that_lacks_pages_of_files_is_told_from_one_that_has_them() {
        let pending = AttemptRow { pending_bytes: 3 << 30, ..attempt(1, "ab", "heat", AttemptState::Sealed) };
        let behind = AttemptRow { behind_bytes: 2 << 30, ..attempt(2, "ab", "heat", AttemptState::Sealed) };
        let text = table(&[pending, behind]).to_string();
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].contains("new   behind  stop_ms"), "{}", lines[0]);
        assert!(lines[1].contains("3.0 MiB      0 B") && lines[1].ends_with("sealed, files pending"), "{}", lines[1]);
        assert!(lines[2].contains("3.0 MiB  2.0 GiB") && lines[2].ends_with("sealed"), "{}", lines[2]);
    }

    #[test]
    fn two_jobs_of_one_name_are_told_by_their_ids() {
        let data = AttemptRow { depth: Depth::Data, ..attempt(2, "cd", "heat", AttemptState::Sealed) };
        let text = table(&[attempt(1, "ab", "heat", AttemptState::Sealed), data]).to_string();
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].starts_with("id  job  name"), "{}", lines[0]);
        assert!(lines[2].starts_with(" 2  cd   heat") && lines[2].contains("  data  "), "{}", lines[2]);
    }

    #[test]
    fn json_has_exactly_the_fields_that_scripts_depend_on() {
        let row = attempt(7, "ab", "heat", AttemptState::Writing);
        let value = serde_json::to_value(ListedAttempt::from(&row)).unwrap();
        let mut names: Vec<_> = value.as_object().unwrap().keys().map(String::as_str).collect();
        names.sort_unstable();
        let expected = [
            "behind_bytes",
            "depth",
            "id",
            "job",
            "memory_bytes",
            "name",
            "new_bytes",
            "pending_bytes",
            "processes",
            "reason",
            "sealed_unix_s",
            "state",
            "stop_ms",
            "stop_phases_ms",
            "total_ms",
            "trigger",
        ];
        assert_eq!(names, expected);
        assert_eq!(value["stop_phases_ms"].to_string(), r#"{"clone":1.25,"pages":3.0}"#);
        assert_eq!(value["state"], "writing");
        assert_eq!(value["id"], 7);
        assert!(value["sealed_unix_s"].is_null());
    }
}
