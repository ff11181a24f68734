//! Processes of a job that descend from none of it any more, because their parent has ended: found by the mark that all of the
//! job have, and by their users, because a mark can be copied.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Duration;

use ckpt_wire::{Control, ENV_MARK};
use nix::unistd::geteuid;

use super::own_children;
use super::program::Program;
use crate::error::{Error, Result};
use crate::proc::task::{self, Users, stat_number};

/// How often all processes are looked at for a job, until nobody new is found.
const LOOKS_MAX: u32 = 50;

/// How long a process that is to load libckpt.so may take until its constructor has run: only a machine that is very busy takes
/// so long.
pub const LOADING_TIMEOUT: Duration = Duration::from_secs(5);

/// What tells the processes of a job from all others.
#[derive(Clone, Copy, Debug)]
pub struct Kinship {
    /// What all of the job have.
    pub mark: u64,
    /// When its first process has begun: no other one has before.
    pub since: u64,
    /// The user ids of its first process.
    pub users: Users,
}

impl Kinship {
    /// That of the job with `mark` whose first process is `pid`.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn with(mark: u64, pid: i32) -> Result<Kinship> {
        Ok(Kinship { mark, since: task::start_time(pid).unwrap_or(0), users: task::users(pid)? })
    }
}

/// A process as a checkpoint has it.
#[derive(Clone, Copy, Debug)]
pub struct Recorded {
    /// The pid that it knows itself by.
    pub pid: i32,
    /// The random number of its libckpt.so.
    pub instance: u64,
    /// Its user ids.
    pub users: Users,
}

impl Recorded {
    /// Whether `pid`, a process of these users, is this one.
    fn is(&self, pid: i32, users: Users) -> bool {
        let knows_itself_so = || task::ids_in_namespaces(pid).is_ok_and(|ids| ids.last() == Some(&self.pid));
        let has_instance = || {
            let control = Program::find(pid).and_then(|program| program.control());
            control.is_ok_and(|control| control.job == self.instance)
        };
        self.users == users && knows_itself_so() && has_instance()
    }
}

/// A process with the mark of a job that cannot be told from a stranger: the checkpoint does not have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Its pid.
    pub pid: i32,
    /// Its effective user.
    pub user: u32,
}

/// The processes of an earlier checkpoint, which are looked up when a process is in doubt.
type Records = LazyLock<Vec<Recorded>, Box<dyn FnOnce() -> Vec<Recorded> + Send>>;

/// What is known of the processes around a job. By the mark alone a process is one of the job only if it has the user ids of
/// the job's first process: a mark can be copied. Others are if they were, while they had a parent in the job.
#[derive(Default)]
pub struct Acquaintance {
    /// The job's id, whatever its first process says later; none if a process is a job by itself, and another one after an exec.
    job: Option<u64>,
    /// Processes that are none of the job, by their pids, and when they have begun.
    strangers: HashMap<i32, u64>,
    /// And those that were found below a process of the job.
    members: HashMap<i32, u64>,
    /// What an earlier agent has found, as soon as it is asked for.
    recorded: Option<Records>,
    /// What the last look has left out.
    left_out: Vec<LeftOut>,
}

/// Processes with the mark of a job.
#[derive(Debug, Default)]
pub struct Marked {
    /// Those that are of the job.
    pub members: Vec<i32>,
    /// Those of other users, of which the mark is all that is known.
    pub doubtful: Vec<i32>,
}

impl Acquaintance {
    /// With the job whose first process has this control block, and with the processes of an earlier checkpoint.
    pub fn with(control: &Control, recorded: impl FnOnce() -> Vec<Recorded> + Send + 'static) -> Acquaintance {
        let job = (control.mark != 0).then(|| control.job_id());
        Acquaintance { job, recorded: Some(LazyLock::new(Box::new(recorded))), ..Acquaintance::default() }
    }

    /// The id of the job whose first process has this control block now.
    pub fn job_id(&self, control: &Control) -> u64 {
        self.job.unwrap_or_else(|| control.job_id())
    }

    /// Looks at all processes that have come since, while the job runs: there may be many.
    pub fn get_to_know(&mut self, job: &Kinship) -> Result<()> {
        let mut seen = HashMap::new();
        let mut unclear = Vec::new();
        let mut kept = HashMap::new();
        for pid in processes()? {
            let Ok(begun) = task::start_time(pid) else { continue };
            kept.extend(self.was_one(pid, begun).then_some((pid, begun)));
            let is_known = begun < job.since || self.strangers.get(&pid) == Some(&begun);
            match if is_known { Kind::Stranger } else { kind(pid, job.mark) } {
                Kind::Stranger => drop(seen.insert(pid, begun)),
                Kind::Unclear => unclear.push((pid, begun)),
                Kind::Member | Kind::StartsAgent => {}
            }
        }
        seen.extend(unclear.into_iter().filter(|&(pid, _)| !is_marked(pid, job.mark)));
        (self.strangers, self.members) = (seen, kept);
        self.left_out.clear();
        Ok(())
    }

    /// These processes were found below a process of the job, or are of it otherwise.
    pub fn met(&mut self, pids: &[i32]) {
        let begun = |&pid: &i32| Some((pid, task::start_time(pid).ok()?));
        self.members.extend(pids.iter().filter_map(begun));
    }

    /// These have the mark, and are not in the checkpoint.
    pub fn leave_out(&mut self, pids: impl IntoIterator<Item = i32>) {
        for pid in pids {
            if let Ok([_, user, ..]) = task::users(pid)
                && self.left_out.iter().all(|known| known.pid != pid)
            {
                self.left_out.push(LeftOut { pid, user });
            }
        }
    }

    /// What has been left out since [`Acquaintance::get_to_know`].
    pub fn take_left_out(&mut self) -> Vec<LeftOut> {
        std::mem::take(&mut self.left_out)
    }

    /// The processes with the job's mark that `is_known` knows nothing of.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub fn others(&self, job: &Kinship, is_known: impl Fn(i32) -> bool) -> Result<Marked> {
        let new = processes()?.into_iter().filter(|pid| !self.strangers.contains_key(pid) && !is_known(*pid));
        let marked = new.filter(|&pid| is_marked(pid, job.mark));
        let (members, doubtful) = marked.partition(|&pid| self.is_one(pid, job));
        Ok(Marked { members, doubtful })
    }

    /// Whether process `pid`, which has the mark of the job, is one of it.
    pub fn is_one(&self, pid: i32, job: &Kinship) -> bool {
        let Ok(users) = task::users(pid) else { return false };
        // A process of our own user may do to us whatever it likes.
        let is_ours = || users == [geteuid().as_raw(); 4];
        let was_one = || task::start_time(pid).is_ok_and(|begun| self.was_one(pid, begun));
        users == job.users || is_ours() || was_one() || self.is_recorded(pid, users)
    }

    fn is_recorded(&self, pid: i32, users: Users) -> bool {
        self.recorded.iter().flat_map(|records| records.iter()).any(|recorded| recorded.is(pid, users))
    }

    fn was_one(&self, pid: i32, begun: u64) -> bool {
        self.members.get(&pid) == Some(&begun)
    }
}

/// Has `stop` stop what is found of a job, with all that descends from it, until nobody new is found: an orphan that still runs
/// may have children, and leave them. `stop` gets those whose parent is not among them; `is_known` knows those that stand still. Gives
/// those with the mark that cannot be told from strangers.
///
/// # Errors
/// What `stop` fails with, or if there is no end of them.
pub fn stop_all<J>(
    known: &Acquaintance,
    kinship: &Kinship,
    job: &mut J,
    is_known: impl Fn(&J, i32) -> bool,
    mut stop: impl FnMut(&mut J, i32) -> Result<()>,
) -> Result<Vec<i32>> {
    let mut quiet = 0;
    for _ in 0..LOOKS_MAX {
        let last = last_id();
        let Marked { members: found, doubtful } = known.others(kinship, |pid| is_known(job, pid))?;
        let is_first =
            |pid: i32| parent_of(pid).is_some_and(|parent| !found.contains(&parent) && !is_known(job, parent));
        let first: Vec<i32> = found.iter().copied().filter(|&pid| is_first(pid)).collect();
        if first.is_empty() {
            // Whoever is born behind us while we look is missed; so nobody may have been, or we look twice.
            quiet += 1;
            if quiet == 2 || last.is_some() && last == last_id() {
                return Ok(doubtful);
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
    let (job, founder) = (Kinship { since: 0, ..Kinship::with(control.mark, pid)? }, control.founder as i32);
    let is_alone = task::ids_in_namespaces(founder).is_ok_and(|ids| ids.len() == 1);
    let mut known = Acquaintance::default();
    let is_one = || kind(founder, job.mark) == Kind::Member && known.is_one(founder, &job);
    if founder > 0 && is_alone && (founder == pid || is_one()) {
        return Ok(founder);
    }
    Ok(first(&job, founder, &mut known)?.unwrap_or(pid))
}

/// The first process of a job, if anything is left of it: the founder, who knows himself by this pid, or the oldest orphan.
///
/// # Errors
/// When processes cannot be listed.
pub fn first(job: &Kinship, founder: i32, known: &mut Acquaintance) -> Result<Option<i32>> {
    let own_id = |pid: i32| task::ids_in_namespaces(pid).ok().and_then(|ids| ids.last().copied());
    for _ in 0..LOOKS_MAX {
        let Marked { members: all, doubtful } = all_of(job, known)?;
        known.leave_out(doubtful.into_iter().filter(|&pid| !descends_from(pid, &all)));
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

/// All processes with the job's mark, in all pid namespaces that we see. What descends from one of the job, among which are
/// these, is one, too, whatever users it has.
///
/// # Errors
/// When processes cannot be listed.
pub fn all_with(job: &Kinship, known: &[i32]) -> Result<Marked> {
    let Marked { mut members, doubtful } = all_of(job, &mut Acquaintance::default())?;
    members.extend(known);
    let is_one = |pid: i32| members.contains(&pid) || descends_from(pid, &members);
    let (below, doubtful): (Vec<i32>, Vec<i32>) = doubtful.into_iter().partition(|&pid| is_one(pid));
    members.extend(below);
    Ok(Marked { members, doubtful })
}

fn descends_from(pid: i32, ancestors: &[i32]) -> bool {
    const GENERATIONS_MAX: usize = 1000;
    let line = std::iter::successors(parent_of(pid), |&above| parent_of(above).filter(|_| above > 1));
    line.take(GENERATIONS_MAX).any(|above| ancestors.contains(&above))
}

fn all_of(job: &Kinship, known: &mut Acquaintance) -> Result<Marked> {
    known.get_to_know(job)?;
    let mut quiet = 0;
    loop {
        let last = last_id();
        let all = known.others(job, |_| false)?;
        // One that was born while we looked, by one that has ended by now, is missed.
        quiet += 1;
        if !all.members.is_empty() || quiet == 3 || last.is_some() && last == last_id() {
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
    match is_named && entries.any(preloads) && !task::has_rights_of_its_program(pid) {
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
        let job = Kinship { since: 0, ..Kinship::with(0x1234, own).unwrap() };
        assert_eq!(first(&job, own, &mut Acquaintance::default()).unwrap(), None);
        let mut known = Acquaintance::default();
        known.get_to_know(&job).unwrap();
        assert_eq!(known.strangers.get(&own), task::start_time(own).ok().as_ref());
        assert!(last_id().is_some_and(|last| last > 0));
    }
}
