//! The processes of a job: its first one and all that descend from it.
//!
//! They are stopped from the top downward: a process that stands still has no new children, so a child that is found then is
//! there until it ends. One that has just executed another program is waited for, while the others stand still, until
//! libckpt.so is in it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ckpt_wire::Control;

use super::syscalls::{Shared, share};
use super::{ProcessLineages, Program, WaitingCalls, places, stop, wait_until_ready};
use crate::error::{Error, Result};
use crate::image::{EndedChild, Family, LostLeader};
use crate::proc::task::{self, stat_number};
use crate::ptrace::Stopped;

/// How long a process may take from its start to the constructor of libckpt.so, before the job is stopped.
const LOADING_TIMEOUT: Duration = Duration::from_secs(2);
/// And how long while the others stand still.
const LOADING_TIMEOUT_IN_STOP: Duration = Duration::from_millis(500);

/// A process that stands still.
pub struct Member {
    /// The process.
    pub program: Program,
    /// Its control block.
    pub control: Box<Control>,
    /// Its threads, the main thread first.
    pub threads: Vec<Stopped>,
    /// Its place among the others.
    pub family: Family,
    /// Whether it was under a job-control stop before.
    pub job_stopped: bool,
}

/// A job that stands still.
pub struct StillJob {
    /// Its processes; parents come before their children.
    pub members: Vec<Member>,
    /// Leaders of their sessions and process groups that have gone.
    pub lost_leaders: Vec<LostLeader>,
}

/// The first process of the job that process `pid` belongs to: the highest of its ancestors that it has an unbroken line of
/// programs of ours to. Our own commands, which may be among its ancestors, are none.
pub fn root_of(pid: i32) -> i32 {
    let mut root = pid;
    loop {
        let parent = task::stat_fields(root, "stat").map_or(0, |stat| stat_number(&stat, 4) as i32);
        let is_a_program = || Program::find(parent).and_then(|program| program.control()).is_ok();
        if parent <= 1 || task::executes_what_we_do(parent) || !is_a_program() {
            return root;
        }
        root = parent;
    }
}

/// Waits until all descendants of `root` can be captured, which gives those a control block that have none and can have one.
///
/// # Errors
/// When one of them cannot.
pub fn prepare(root: i32) -> Result<()> {
    let deadline = Instant::now() + LOADING_TIMEOUT;
    let mut unseen = VecDeque::from([root]);
    while let Some(pid) = unseen.pop_front() {
        for (child, _) in children(pid).unwrap_or_default() {
            if ready(child, deadline)?.is_some() {
                unseen.push_back(child);
            }
        }
    }
    Ok(())
}

/// Stops `root` and all its descendants.
///
/// # Errors
/// When one of them cannot be stopped, or rebuilt in its place among the others. All go on.
pub fn stop(root: &Program, known: &mut ProcessLineages) -> Result<StillJob> {
    let mut members = Vec::new();
    match stop_into(root, known, &mut members).and_then(|()| places::lost_leaders(&members, true)) {
        Ok(lost_leaders) => Ok(StillJob { members, lost_leaders }),
        Err(error) => {
            let_go(members);
            Err(error)
        }
    }
}

/// Lets all go on as if they had not been stopped.
pub fn let_go(members: Vec<Member>) {
    members.into_iter().flat_map(|member| member.threads).for_each(stop::let_go);
}

fn stop_into(root: &Program, known: &mut ProcessLineages, members: &mut Vec<Member>) -> Result<()> {
    let root = stop_one((root.try_clone()?, root.control()?), known, None)?;
    let mut waiting = add(root, members)?;
    while let Some((pid, parent)) = waiting.pop_front() {
        match stop_child(pid, known, parent)? {
            Some(member) => {
                let shared = refuse_shared(members[parent as usize].program.pid, pid);
                waiting.extend(add(member, members)?);
                shared?;
            }
            // It has ended since its parent was stopped.
            None => {
                let ended = task::stat_fields(pid, "stat").ok().and_then(|stat| ended_child(pid, &stat, u32::MAX));
                members[parent as usize].family.ended_children.extend(ended);
            }
        }
    }
    Ok(())
}

/// Adds a process that has been stopped, with its children that have ended; gives those that live, and whose they are.
fn add(mut member: Member, members: &mut Vec<Member>) -> Result<VecDeque<(i32, u32)>> {
    let mut living = VecDeque::new();
    let children = children(member.program.pid);
    for (child, stat) in children.as_deref().unwrap_or_default() {
        match ended_child(*child, stat, living.len() as u32) {
            Some(ended) => member.family.ended_children.push(ended),
            None => living.push_back((*child, members.len() as u32)),
        }
    }
    // In any case, so that it is let go with the others.
    members.push(member);
    children.map(|_| living)
}

/// Stops a child; none if it has ended.
fn stop_child(pid: i32, known: &mut ProcessLineages, parent: u32) -> Result<Option<Member>> {
    let deadline = Instant::now() + LOADING_TIMEOUT_IN_STOP;
    loop {
        let Some(found) = ready(pid, deadline)? else { return Ok(None) };
        match stop_one(found, known, Some(parent)) {
            // It may have executed another program just before.
            Ok(member) if member.program.control().is_ok_and(|now| now.job == member.control.job) => {
                return Ok(Some(member));
            }
            Err(Error::ProgramGone { .. }) => return Ok(None),
            Ok(_) | Err(Error::NotPreloaded { .. }) if Instant::now() < deadline => {}
            outcome => return outcome.map(Some),
        }
    }
}

fn stop_one(
    (program, control): (Program, Box<Control>),
    known: &mut ProcessLineages,
    parent: Option<u32>,
) -> Result<Member> {
    let pid = program.pid;
    known.of(pid, &control, parent.is_none()).calls.look(pid);
    let job_stopped = is_job_stopped(pid);
    let threads = stop::stop(pid)?;
    let stat = task::stat_fields(pid, "stat")?;
    let number = |field| stat_number(&stat, field) as i32;
    let family =
        Family { parent, exit_signal: number(38), group: number(5), session: number(6), ended_children: Vec::new() };
    Ok(Member { program, control, threads, family, job_stopped })
}

/// Whether `/proc` shows the process under a job-control stop; to be asked before it is seized.
fn is_job_stopped(pid: i32) -> bool {
    task::text(pid, "status")
        .is_ok_and(|status| task::status_value(&status, "State").is_some_and(|state| state.starts_with('T')))
}

/// Process `pid` and its control block, once libckpt.so is in it or what stands for it; none if it has ended.
fn ready(pid: i32, deadline: Instant) -> Result<Option<(Program, Box<Control>)>> {
    // What it waits in is looked up when it is stopped.
    match wait_until_ready(pid, &mut WaitingCalls::default(), deadline) {
        Ok(found) => Ok(Some(found)),
        Err(Error::ProgramGone { .. }) => Ok(None),
        Err(Error::NotPreloaded { .. }) => Err(without_libckpt(pid)),
        Err(error) => Err(error),
    }
}

fn without_libckpt(child: i32) -> Error {
    let name = task::text(child, "comm").unwrap_or_default();
    Error::unsupported(
        format!("child process {child} ({})", name.trim()),
        "it has no libckpt.so, because it was started without LD_PRELOAD",
        "let it inherit the environment, or take the checkpoint when it has ended",
    )
}

/// What is left of a process that has ended, for its parent to wait for, who has so many living children that are older. `stat`
/// is what [`children`] gives.
fn ended_child(pid: i32, stat: &[String], older_siblings: u32) -> Option<EndedChild> {
    if stat.first().is_none_or(|state| state != "Z") || task::threads(pid).is_ok_and(|threads| threads.len() > 1) {
        return None;
    }
    let number = |field| stat_number(stat, field) as i32;
    let mut name = task::bytes(pid, "comm").unwrap_or_default();
    name.pop();
    Some(EndedChild {
        pid,
        name,
        older_siblings,
        status: number(52),
        exit_signal: number(38),
        group: number(5),
        session: number(6),
    })
}

/// The children of process `pid` that the program has made, oldest first, and what `/proc/PID/stat` says of each.
fn children(pid: i32) -> Result<Vec<(i32, Vec<String>)>> {
    let stat = |child: i32| Some((child, task::stat_fields(child, "stat").ok()?));
    let all = task::children(pid)?.into_iter().filter_map(stat);
    Ok(all.filter(|(_, stat)| !is_our_own(stat)).collect())
}

/// A child of the trigger or of a twin's birth: a process without exit signal. A program's own children signal
/// their end, but for clones that it made without one, which are told apart by still running.
fn is_our_own(stat: &[String]) -> bool {
    let ended_or_waiting = stat.first().is_some_and(|state| matches!(state.as_str(), "Z" | "X" | "D"));
    stat_number(stat, 38) == 0 && ended_or_waiting
}

/// Refuses a process that has with its parent what only threads have in common after a restart.
fn refuse_shared(parent: i32, child: i32) -> Result<()> {
    let all = [
        (Shared::Memory, "its memory"),
        (Shared::Descriptors, "its descriptor table"),
        (Shared::FileSystem, "its working directory"),
    ];
    for (what, name) in all {
        if share(parent, child, what)? {
            return Err(Error::unsupported(
                format!("process {child}, which shares {name} with process {parent} (clone)"),
                "each would have one of its own after a restart",
                "make it by fork, or make a thread",
            ));
        }
    }
    Ok(())
}
