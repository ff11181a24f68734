//! What processes of a job have in common that a fork would have given each for itself (`clone` with flags), and what threads have for
//! themselves that a process has once (`unshare`).
//!
//! A child that has its descriptors, or its directory, root directory and umask, in common with its parent is made like that again. All
//! else is refused by name: after a restart it would be another program.

use std::cmp::Ordering;

use nix::errno::Errno;

use super::descent::Member;
use super::syscalls::{Shared, order};
use crate::error::{Error, Result};

/// Notes which processes share places with their parents, parents coming before their children.
///
/// # Errors
/// When processes or threads share, or have for themselves, what a restart could not give them so.
pub fn settle(members: &mut [Member]) -> Result<()> {
    members.iter().try_for_each(refuse_threads_apart)?;
    if members.len() == 1 {
        return Ok(());
    }
    if let Some(group) = groups(members, Shared::Memory)?.iter().find(|group| group.len() > 1) {
        let advice = "make it by fork, or make a thread";
        return Err(refused(&members[group[1]], &members[group[0]], "its memory", advice));
    }
    for other in with_parents(members, Shared::Descriptors, "its descriptor table")? {
        members[other].family.shares_descriptors = true;
    }
    for other in with_parents(members, Shared::FileSystem, "its directories and umask")? {
        members[other].family.shares_places = true;
    }
    Ok(())
}

/// The processes that have this in common with their parents; nobody has it with others alone.
fn with_parents(members: &[Member], what: Shared, name: &str) -> Result<Vec<usize>> {
    let mut all = Vec::new();
    for group in groups(members, what)? {
        for &other in &group[1..] {
            let has_parent = members[other].family.parent.is_some_and(|parent| group.contains(&(parent as usize)));
            if !has_parent {
                let advice = "take the checkpoint while the process lives that has made both";
                return Err(refused(&members[other], &members[group[0]], name, advice));
            }
            all.push(other);
        }
    }
    Ok(all)
}

fn refused(one: &Member, other: &Member, name: &str, advice: &str) -> Error {
    Error::unsupported(
        format!("process {}, which shares {name} with process {} (clone)", one.program.pid, other.program.pid),
        "each would have one of its own after a restart",
        advice,
    )
}

/// The processes by what they have in common, ascending in each group; none is empty.
fn groups(members: &[Member], what: Shared) -> Result<Vec<Vec<usize>>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (index, member) in members.iter().enumerate() {
        let mut failed = None;
        let compare = |group: &Vec<usize>| {
            order(members[group[0]].program.pid, member.program.pid, what).unwrap_or_else(|errno| {
                failed = Some(errno);
                Ordering::Equal
            })
        };
        let place = groups.binary_search_by(compare);
        if let Some(source) = failed {
            return Err(Error::io("compare (kcmp)", format!("process {} with others", member.program.pid), source));
        }
        match place {
            Ok(at) => groups[at].push(index),
            Err(at) => groups.insert(at, vec![index]),
        }
    }
    Ok(groups)
}

fn refuse_threads_apart(member: &Member) -> Result<()> {
    let pid = member.program.pid;
    for thread in member.threads.iter().map(|thread| thread.tid()).filter(|&tid| tid != pid) {
        for (what, name) in
            [(Shared::Descriptors, "descriptor table"), (Shared::FileSystem, "working directory and umask")]
        {
            match order(pid, thread, what) {
                Ok(Ordering::Equal) => {}
                Ok(_) => {
                    return Err(Error::unsupported(
                        format!("thread {thread} of process {pid}, with a {name} for itself (unshare)"),
                        "it would have those of the process after a restart",
                        "take the checkpoint when that thread has ended",
                    ));
                }
                // A kernel or a container without the call. Few programs have such threads, and all would be refused.
                Err(Errno::ENOSYS | Errno::EPERM) => return Ok(()),
                Err(source) => {
                    return Err(Error::io("compare (kcmp)", format!("thread {thread} with process {pid}"), source));
                }
            }
        }
    }
    Ok(())
}
