//! Processes of a job that descend from none of it any more, because their parent has ended: found by the mark that all of the
//! job have.

use std::collections::HashMap;
use std::time::Duration;

use ckpt_wire::{Control, ENV_MARK};

use super::{Program, own_children};
use crate::error::{Error, Result};
use crate::proc::task::{self, stat_number};

/// How often all processes are looked at for a job, until nobody new is found.
const LOOKS_MAX: u32 = 50;

/// How long a process that is to load libckpt.so may take until its constructor has run: only a machine that is very busy takes
/// so long.
pub const LOADING_TIMEOUT: Duration = Duration::from_secs(5);

/// Processes that are known to be none of a job, by their pids, and when they have begun.
#[derive(Debug, Default)]
pub struct Strangers(HashMap<i32, u64>);

impl Strangers {
    /// Looks at all processes that have come since, while the job runs: there may be many. Nobody of the job has begun before
    /// `since`, the start of its first process.
    pub fn get_to_know(&mut self, mark: u64, since: u64) -> Result<()> {
        let mut seen = HashMap::new();
        let mut unclear = Vec::new();
        for pid in processes()? {
            let Ok(begun) = task::start_time(pid) else { continue };
            match if begun < since || self.0.get(&pid) == Some(&begun) { Kind::Stranger } else { kind(pid, mark) } {
                Kind::Stranger => drop(seen.insert(pid, begun)),
                Kind::Unclear => unclear.push((pid, begun)),
                Kind::Member | Kind::StartsAgent => {}
            }
        }
        seen.extend(unclear.into_iter().filter(|&(pid, _)| !is_marked(pid, mark)));
        self.0 = seen;
        Ok(())
    }

    /// The processes with `mark` that `is_known` knows nothing of.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub fn others(&self, mark: u64, is_known: impl Fn(i32) -> bool) -> Result<Vec<i32>> {
        let new = processes()?.into_iter().filter(|pid| !self.0.contains_key(pid) && !is_known(*pid));
        Ok(new.filter(|&pid| is_marked(pid, mark)).collect())
    }
}

/// Has `stop` stop what is found of a job, with all that descends from it, until nobody new is found: an orphan that still runs
/// may have children, and leave them. `stop` gets those whose parent is not among them; `strangers` are none of them, and
/// `is_known` knows those that stand still.
///
/// # Errors
/// What `stop` fails with, or if there is no end of them.
pub fn stop_all<J>(
    strangers: &Strangers,
    mark: u64,
    job: &mut J,
    is_known: impl Fn(&J, i32) -> bool,
    mut stop: impl FnMut(&mut J, i32) -> Result<()>,
) -> Result<()> {
    let mut quiet = 0;
    for _ in 0..LOOKS_MAX {
        let last = last_id();
        let found = strangers.others(mark, |pid| is_known(job, pid))?;
        let is_first =
            |pid: i32| parent_of(pid).is_some_and(|parent| !found.contains(&parent) && !is_known(job, parent));
        let first: Vec<i32> = found.iter().copied().filter(|&pid| is_first(pid)).collect();
        if first.is_empty() {
            // Whoever is born behind us while we look is missed; so nobody may have been, or we look twice.
            quiet += 1;
            if quiet == 2 || last.is_some() && last == last_id() {
                return Ok(());
            }
            continue;
        }
        quiet = 0;
        first.into_iter().try_for_each(|pid| stop(job, pid))?;
    }
    Err(Error::environment(
        "stopping all processes of the job",
        "there are always new ones whose parents have ended",
        "try again",
    ))
}

/// The first process of the job with `mark` that `pid` belongs to: the one that the job has begun with, if it lives, or else the
/// oldest one that descends from none of it.
pub fn first_of(pid: i32, control: &Control) -> Result<i32> {
    let (mark, founder) = (control.mark, control.founder as i32);
    let is_alone = task::ids_in_namespaces(founder).is_ok_and(|ids| ids.len() == 1);
    if founder > 0 && is_alone && (founder == pid || kind(founder, mark) == Kind::Member) {
        return Ok(founder);
    }
    Ok(first(mark, founder, 0)?.unwrap_or(pid))
}

/// The first process of the job with `mark`, if anything is left of it.
///
/// Nobody of it has begun before `since`.
pub fn first(mark: u64, founder: i32, since: u64) -> Result<Option<i32>> {
    let own_id = |pid: i32| task::ids_in_namespaces(pid).ok().and_then(|ids| ids.last().copied());
    for _ in 0..LOOKS_MAX {
        let all = all_since(mark, since)?;
        if let Some(founder) = all.iter().copied().find(|&pid| own_id(pid) == Some(founder)) {
            return Ok(Some(founder));
        }
        let is_orphan = |pid: &i32| parent_of(*pid).is_some_and(|parent| !all.contains(&parent));
        let orphans = all.iter().copied().filter(is_orphan).filter(|&pid| Program::find(pid).is_ok());
        let oldest = orphans.min_by_key(|&pid| (task::start_time(pid).unwrap_or(u64::MAX), pid));
        // All that were seen may have ended since, each having left the job to another.
        if all.is_empty() || oldest.is_some() {
            return Ok(oldest);
        }
    }
    Ok(None)
}

/// All processes with `mark`, in all pid namespaces that we see.
pub fn all_with(mark: u64) -> Result<Vec<i32>> {
    all_since(mark, 0)
}

fn all_since(mark: u64, since: u64) -> Result<Vec<i32>> {
    let mut strangers = Strangers::default();
    strangers.get_to_know(mark, since)?;
    let mut quiet = 0;
    loop {
        let last = last_id();
        let all = strangers.others(mark, |_| false)?;
        // One that was born while we looked, by one that has ended by now, is missed.
        quiet += 1;
        if !all.is_empty() || quiet == 3 || last.is_some() && last == last_id() {
            return Ok(all);
        }
    }
}

fn parent_of(pid: i32) -> Option<i32> {
    task::stat_fields(pid, "stat").ok().map(|stat| stat_number(&stat, 4) as i32)
}

/// The id that was given last, in our pid namespace; none if that cannot be found out.
fn last_id() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().last()?.parse().ok()
}

fn processes() -> Result<Vec<i32>> {
    let failed = |source| Error::io("read", "/proc", source);
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        found.extend(name.to_str().and_then(|name| name.parse::<i32>().ok()));
    }
    Ok(found)
}

/// What a process is to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// One of it.
    Member,
    /// None of it.
    Stranger,
    /// It executes another program at this moment, or has no environment.
    Unclear,
    /// It starts an agent, or is a clone of the program's own that looks so while its parent lives.
    StartsAgent,
}

/// Whether a process is one of the job with `mark`: it has the control block of a libckpt.so that says so, or is about to have
/// one, being executed with an environment that does. It is none if it has ended, or is a clone of ours.
fn kind(pid: i32, mark: u64) -> Kind {
    const KERNEL_THREAD: u64 = 0x0020_0000;
    let Ok(stat) = task::stat_fields(pid, "stat") else { return Kind::Stranger };
    let has_ended = stat.first().is_none_or(|state| matches!(state.as_str(), "Z" | "X"));
    if has_ended || stat_number(&stat, 9) & KERNEL_THREAD != 0 || task::executes_what_we_do(pid) {
        return Kind::Stranger;
    }
    // Asked first: whoever has memory after that had it then.
    let starts_an_agent = own_children::is_starting_an_agent(pid, &stat);
    match Program::find(pid).and_then(|program| program.control()) {
        // Remembered: while such a clone ends, nobody traces it any more.
        Ok(control) if control.mark != mark || own_children::is_clone_of_agent(pid) => Kind::Stranger,
        Ok(_) if starts_an_agent => Kind::StartsAgent,
        Ok(_) => Kind::Member,
        Err(_) => will_be(pid, mark),
    }
}

/// The same, after a moment in which it is not clear.
fn is_marked(pid: i32, mark: u64) -> bool {
    const LOOKS_MAX: u32 = 5;
    for _ in 0..LOOKS_MAX {
        match kind(pid, mark) {
            Kind::Unclear => std::thread::sleep(Duration::from_millis(1)),
            kind => return kind == Kind::Member,
        }
    }
    false
}

/// Whether process `pid` was executed with an environment that has libckpt.so loaded.
pub fn loads_library(pid: i32) -> bool {
    task::bytes(pid, "environ").is_ok_and(|environment| environment.split(|&byte| byte == 0).any(preloads))
}

fn preloads(entry: &[u8]) -> bool {
    entry.starts_with(b"LD_PRELOAD=") && entry.windows(b"libckpt".len()).any(|part| part == b"libckpt")
}

fn will_be(pid: i32, mark: u64) -> Kind {
    // Another user's is none of it, as far as we may know.
    let Ok(environment) = task::bytes(pid, "environ") else { return Kind::Stranger };
    let named = format!("{ENV_MARK}={mark:016x}-");
    let mut entries = environment.split(|&byte| byte == 0);
    let is_named = entries.clone().any(|entry| entry.starts_with(named.as_bytes()));
    match is_named && entries.any(preloads) {
        _ if environment.is_empty() => Kind::Unclear,
        true => Kind::Member,
        false => Kind::Stranger,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_without_a_mark_are_strangers_and_looked_at_once() {
        let own = std::process::id() as i32;
        assert_eq!(kind(own, 0x1234), Kind::Stranger);
        assert_eq!(first(0x1234, own, 0).unwrap(), None);
        let mut strangers = Strangers::default();
        strangers.get_to_know(0x1234, 0).unwrap();
        assert_eq!(strangers.0.get(&own), task::start_time(own).ok().as_ref());
        assert!(last_id().is_some_and(|last| last > 0));
    }
}
