//! Which program a command means when the user names a process, or the store that its checkpoints go to.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

use super::absolute;
use crate::agent::Address;
use crate::agent::store_of;
use crate::capture::{Program, root_of};
use crate::error::{Error, Result};
use crate::image::ProcessImage;
use crate::location::Location;
use crate::proc::task::{self, Users};

/// The process that `named` is the number of, unless there is a directory of that name.
pub fn by_number(named: &Path) -> Option<i32> {
    let pid = named.to_str()?.parse().ok().filter(|&pid| pid > 0)?;
    (!named.exists()).then_some(pid)
}

/// The process that `named` is the number of, or the one program whose checkpoints go to the directory `named`.
///
/// # Errors
/// If there is no such program, or several, which are listed.
pub fn select(named: &Path) -> Result<i32> {
    if let Some(pid) = by_number(named) {
        return Ok(pid);
    }
    let dir = Location::of(named)?.into_directory()?;
    let found = programs_of(&dir)?;
    match found.as_slice() {
        [(pid, _)] => Ok(*pid),
        [] if !dir.exists() => Err(Error::Usage(format!(
            "{} is neither a pid nor a directory that a running program stores its checkpoints in",
            dir.display()
        ))),
        [] => Err(Error::environment(
            format!("looking for the program of {}", dir.display()),
            "no program runs that ckpt knows, is yours and stores its checkpoints there",
            "name the process, or start the program",
        )),
        several => {
            let list: Vec<String> = several.iter().map(|(pid, name)| format!("{pid} ({name})")).collect();
            let dir = dir.display();
            Err(Error::Usage(format!(
                "several programs store their checkpoints in {dir}; name one: {}",
                list.join(", ")
            )))
        }
    }
}

/// A program that runs under ckpt.
#[derive(Debug)]
pub struct Running {
    /// Its first process.
    pub pid: i32,
    /// The effective user of that.
    pub user: u32,
    /// The id of its job.
    pub job: u64,
    /// The job's name.
    pub name: String,
    /// The store that its checkpoints go to.
    pub store: PathBuf,
    /// Time between automatic checkpoints, ms; 0 for none.
    pub interval_ms: u64,
    /// The process that takes its checkpoints.
    pub agent: Option<i32>,
}

/// All programs that run under ckpt, of those that we may look at, each job once.
///
/// # Errors
/// When processes cannot be listed.
pub fn all() -> Result<Vec<Running>> {
    let running = |pid: i32| {
        let program = Program::find(pid).ok()?;
        let control = program.control().ok()?;
        let store = store_of(&control, None);
        let is_one = root_of(pid) == pid && !is_clone(&program, &store) && is_believed(&program, &store);
        // A program knows the agent alone that it has started itself.
        let agent = Some(control.agent_pid).filter(|&agent| agent > 0 && is_agent(agent));
        let agent = agent.or_else(|| {
            let address = Address::new(&store, &program.identity_by(&control).ok()?);
            address.holder().filter(|&agent| is_agent(agent))
        });
        Some(Running {
            pid,
            user: task::users(pid).ok()?[1],
            job: control.job_id(),
            name: String::from_utf8_lossy(ckpt_wire::text(&control.name)).into_owned(),
            store,
            interval_ms: control.interval_ms,
            agent,
        })
        .filter(|_| is_one)
    };
    Ok(processes(|_| true)?.into_iter().filter_map(running).collect())
}

/// Whether process `pid` executes a ckpt, ours or another one. Whoever has an agent's pid since need not.
fn is_agent(pid: i32) -> bool {
    task::link(pid, "exe").is_ok_and(|path| path.ends_with(b"/ckpt"))
}

/// The process that is a life of `process`, here or in a pid namespace below ours, of those that we may look at. A process of
/// other users than that had is none, whatever it says of itself.
pub fn life_of(process: &ProcessImage) -> Result<Option<i32>> {
    let knows_itself_so = |other: i32| task::ids_in_namespaces(other).is_ok_and(|ids| ids.last() == Some(&process.pid));
    let is_it = |other: &i32| {
        let control = Program::find(*other).and_then(|program| program.control());
        control.is_ok_and(|control| control.job == process.instance) && has_users(*other, process.uids)
    };
    Ok(processes(knows_itself_so)?.into_iter().find(is_it))
}

/// Whether process `pid` has these user ids, or belongs to us.
fn has_users(pid: i32, users: Users) -> bool {
    task::users(pid).is_ok_and(|ids| ids == users || ids == [geteuid().as_raw(); 4])
}

/// Pids and names of the programs whose checkpoints go to `dir`, of those that we may look at.
fn programs_of(dir: &Path) -> Result<Vec<(i32, String)>> {
    let path = absolute(dir)?;
    let named = |pid| Some((pid, name_if_it_stores_in(&path, pid)?));
    let found: Vec<(i32, String)> = processes(|_| true)?.into_iter().filter_map(named).collect();
    // What descends from another of them is part of its job.
    Ok(found.into_iter().filter(|(pid, _)| root_of(*pid) == *pid).collect())
}

/// Pids of all processes that are `likely`.
fn processes(likely: impl Fn(i32) -> bool) -> Result<Vec<i32>> {
    let failed = |source| Error::io("read", "/proc", source);
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let pid = name.to_str().and_then(|name| name.parse::<i32>().ok());
        found.extend(pid.filter(|&pid| likely(pid)));
    }
    found.sort_unstable();
    Ok(found)
}

/// The name of process `pid`, if it is a program whose checkpoints go to `dir`. Whatever cannot be read is somebody else's.
fn name_if_it_stores_in(dir: &Path, pid: i32) -> Option<String> {
    let program = Program::find(pid).ok()?;
    let control = program.control().ok()?;
    let stored = store_of(&control, None);
    let is_wanted = is_same(&stored, dir) && !is_clone(&program, &stored) && is_believed(&program, &stored);
    is_wanted.then(|| String::from_utf8_lossy(ckpt_wire::text(&control.name)).into_owned())
}

/// Whether it is a clone that the agent of a program reads: it is traced, and is nobody that an agent serves.
fn is_clone(program: &Program, store: &Path) -> bool {
    // One that ends while we look is not the program that is asked for either.
    let Ok(status) = task::text(program.pid, "status") else { return true };
    let is_traced = task::status_value(&status, "TracerPid").is_some_and(|tracer| tracer != "0");
    is_traced && !is_served(program, store)
}

/// Whether a program may say that its checkpoints go to `store`: if that is its user's or the program is ours, or if an agent has
/// served it there, whoever it has become since.
fn is_believed(program: &Program, store: &Path) -> bool {
    let Ok(users) = task::users(program.pid) else { return false };
    let is_owner = store.metadata().map_or(true, |about| users.contains(&about.uid()));
    is_owner || users == [geteuid().as_raw(); 4] || is_served(program, store)
}

fn is_served(program: &Program, store: &Path) -> bool {
    program.identity().is_ok_and(|identity| Address::new(store, &identity).was_occupied())
}

/// Whether two paths lead to one directory. It need not be there before the first checkpoint.
fn is_same(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
    one == other || identity(one).is_some_and(|one| identity(other) == Some(one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_a_process_unless_it_is_a_directory() {
        assert_eq!(by_number(Path::new("4711")), Some(4711));
        for path in ["./4711", "ckpt-store", "0", "-3", "/"] {
            assert_eq!(by_number(Path::new(path)), None, "{path}");
        }
    }

    #[test]
    fn a_directory_without_a_program_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let message = select(dir.path()).unwrap_err().to_string();
        assert!(message.contains("no program runs"), "{message}");
        assert!(matches!(select(&dir.path().join("none")), Err(Error::Usage(_))));
        assert!(is_same(dir.path(), &dir.path().join(".")) && !is_same(dir.path(), Path::new("/")));
    }
}
