//! What processes of a job have in common that a fork would have given each for itself (`clone` with flags), and what threads have for
//! themselves that a process has once (`unshare`).
//!
//! A child that has its descriptors, or its directory, root directory and umask, in common with its parent is made like that again. All
//! else is refused by name: after a restart it would be another program.

use std::cmp::Ordering;

use super::comparison::{Shared, order};
use super::member::Member;
use crate::error::{Error, Result};
use crate::ptrace::{read_memory, write_memory};

/// Notes which processes share places with their parents, parents coming before their children.
///
/// # Errors
/// When processes or threads share, or have for themselves, what a restart could not give them so.
pub fn settle(members: &mut [Member]) -> Result<()> {
    members.iter().try_for_each(refuse_threads_apart)?;
    if members.len() == 1 {
        return Ok(());
    }
    let by_memory = match groups(members, Shared::Memory)? {
        Some(groups) => groups,
        None => groups_by_writing(members)?,
    };
    if let Some(group) = by_memory.iter().find(|group| group.len() > 1) {
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
    // Where the kernel does not tell, all are taken for forks: few programs share these, and all would be refused.
    for group in groups(members, what)?.unwrap_or_default() {
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

/// The processes by what they have in common, ascending in each group; none is empty. `None` where the kernel does not tell.
fn groups(members: &[Member], what: Shared) -> Result<Option<Vec<Vec<usize>>>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (index, member) in members.iter().enumerate() {
        let mut untold = None;
        let compare = |group: &Vec<usize>| match order(members[group[0]].program.pid, member.program.pid, what) {
            Ok(Some(order)) => order,
            other => {
                untold = Some(other);
                Ordering::Equal
            }
        };
        let place = groups.binary_search_by(compare);
        match (untold, place) {
            (Some(Err(source)), _) => {
                return Err(Error::io("compare (kcmp)", format!("process {} with others", member.program.pid), source));
            }
            (Some(Ok(_)), _) => return Ok(None),
            (None, Ok(at)) => groups[at].push(index),
            (None, Err(at)) => groups.insert(at, vec![index]),
        }
    }
    Ok(Some(groups))
}

/// The processes by the memory that they have in common: where each finds another number than was written to it, it is that of the
/// process that was written to later. The place is ours in each.
fn groups_by_writing(members: &[Member]) -> Result<Vec<Vec<usize>>> {
    for (number, member) in (0_u64..).zip(members) {
        write_memory(member.program.pid, member.control.scratch, &number.to_ne_bytes())?;
    }
    let mut groups = vec![Vec::new(); members.len()];
    for (index, member) in members.iter().enumerate() {
        let mut number = [0; 8];
        read_memory(member.program.pid, member.control.scratch, &mut number)?;
        let last = usize::try_from(u64::from_ne_bytes(number)).ok().filter(|last| *last < members.len());
        groups[last.unwrap_or(index)].push(index);
    }
    groups.retain(|group| !group.is_empty());
    Ok(groups)
}

fn refuse_threads_apart(member: &Member) -> Result<()> {
    let pid = member.program.pid;
    for thread in member.threads.iter().map(|thread| thread.tid()).filter(|&tid| tid != pid) {
        for (what, name) in
            [(Shared::Descriptors, "descriptor table"), (Shared::FileSystem, "working directory and umask")]
        {
            match order(pid, thread, what) {
                Ok(Some(Ordering::Equal)) => {}
                // Few programs have such threads, and all would be refused.
                Ok(None) => return Ok(()),
                Ok(Some(_)) => {
                    return Err(Error::unsupported(
                        format!("thread {thread} of process {pid}, with a {name} for itself (unshare)"),
                        "it would have those of the process after a restart",
                        "take the checkpoint when that thread has ended",
                    ));
                }
                Err(source) => {
                    return Err(Error::io("compare (kcmp)", format!("thread {thread} with process {pid}"), source));
                }
            }
        }
    }
    Ok(())
}
