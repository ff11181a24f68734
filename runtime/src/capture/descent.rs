//! The processes of a job: its first one and all that descend from it.
//!
//! They are stopped from the top downward: a process that stands still has no new children, so a child that is found then is
//! there until it ends. One that has just executed another program is waited for, while the others stand still, until
//! libckpt.so is in it.

use std::collections::VecDeque;
use std::thread::sleep;
use std::time::{Duration, Instant};

use ckpt_wire::Control;

use super::syscalls::{Shared, share};
use super::{ProcessLineages, Program, WaitingCalls, find_or_adopt, stop};
use crate::error::{Error, Result};
use crate::image::{EndedChild, Family};
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

/// The first process of the job that process `pid` belongs to: the highest of its ancestors that it has an unbroken line of
/// programs of ours to. Our own commands, which may be among its ancestors, are none.
pub fn root_of(pid: i32) -> i32 {
    let own = task::link(std::process::id() as i32, "exe").ok();
    let mut root = pid;
    loop {
        let parent = task::stat_fields(root, "stat").map_or(0, |stat| stat_number(&stat, 4) as i32);
        let is_a_program = || Program::find(parent).and_then(|program| program.control()).is_ok();
        if parent <= 1 || task::link(parent, "exe").ok() == own || !is_a_program() {
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
        let Ok(children) = task::children(pid) else { continue };
        for child in children.into_iter().filter(|&child| !is_our_own(child)) {
            if ready(child, deadline)?.is_some() {
                unseen.push_back(child);
            }
        }
    }
    Ok(())
}

/// Stops `root` and all its descendants; parents come before their children.
///
/// # Errors
/// When one of them cannot be stopped, or rebuilt in its place among the others. All go on.
pub fn stop(root: &Program, known: &mut ProcessLineages) -> Result<Vec<Member>> {
    let mut members = Vec::new();
    match stop_into(root, known, &mut members).and_then(|()| refuse_places(&members)) {
        Ok(()) => Ok(members),
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
    let mut waiting = VecDeque::from([(root.pid, None)]);
    while let Some((pid, parent)) = waiting.pop_front() {
        let member = match parent {
            None => Some(stop_one(root.try_clone()?, known, None)?),
            Some(_) => stop_child(pid, known, parent)?,
        };
        let Some(mut member) = member else {
            // It has ended since its parent was stopped.
            if let Some((parent, ended)) = parent.and_then(|parent| Some((parent, ended_child(pid, u32::MAX)?))) {
                members[parent as usize].family.ended_children.push(ended);
            }
            continue;
        };
        let shared = parent.map_or(Ok(()), |parent| refuse_shared(members[parent as usize].program.pid, pid));
        let index = members.len() as u32;
        let mut living = 0;
        for child in task::children(pid)?.into_iter().filter(|&child| !is_our_own(child)) {
            match ended_child(child, living) {
                Some(ended) => member.family.ended_children.push(ended),
                None => {
                    living += 1;
                    waiting.push_back((child, Some(index)));
                }
            }
        }
        members.push(member);
        shared?;
    }
    Ok(())
}

/// Stops a child; none if it has ended.
fn stop_child(pid: i32, known: &mut ProcessLineages, parent: Option<u32>) -> Result<Option<Member>> {
    let deadline = Instant::now() + LOADING_TIMEOUT_IN_STOP;
    loop {
        let Some(program) = ready(pid, deadline)? else { return Ok(None) };
        match stop_one(program, known, parent) {
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

fn stop_one(program: Program, known: &mut ProcessLineages, parent: Option<u32>) -> Result<Member> {
    let pid = program.pid;
    let control = program.control()?;
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

/// Process `pid` once libckpt.so is in it, or what stands for it; none if it has ended.
fn ready(pid: i32, deadline: Instant) -> Result<Option<Program>> {
    loop {
        // What it waits in is looked up when it is stopped.
        let found = find_or_adopt(pid, &mut WaitingCalls::default());
        match found.and_then(|program| program.control().map(|_| program)) {
            Ok(program) => return Ok(Some(program)),
            Err(Error::ProgramGone { .. }) => return Ok(None),
            Err(Error::NotPreloaded { .. } | Error::Environment { .. } | Error::Io { .. })
                if Instant::now() < deadline =>
            {
                sleep(Duration::from_millis(1));
            }
            Err(Error::NotPreloaded { .. }) => return Err(without_libckpt(pid)),
            Err(error) => return Err(error),
        }
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

/// What is left of a process that has ended, for its parent to wait for, who has so many living children that are older.
fn ended_child(pid: i32, older_siblings: u32) -> Option<EndedChild> {
    let stat = task::stat_fields(pid, "stat").ok()?;
    if stat.first().is_none_or(|state| state != "Z") || task::threads(pid).is_ok_and(|threads| threads.len() > 1) {
        return None;
    }
    let number = |field| stat_number(&stat, field) as i32;
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

/// A child of the trigger or of a twin's birth: a process without exit signal. A program's own children signal
/// their end, but for clones that it made without one, which are told apart by still running.
fn is_our_own(child: i32) -> bool {
    let Ok(fields) = task::stat_fields(child, "stat") else { return true };
    let ended_or_waiting = fields.first().is_some_and(|state| matches!(state.as_str(), "Z" | "X" | "D"));
    stat_number(&fields, 38) == 0 && ended_or_waiting
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

/// Refuses sessions and process groups that a restart could not make again.
fn refuse_places(members: &[Member]) -> Result<()> {
    let refuse = |pid: i32, what: String| {
        let why = "which a restart could not join again, because its leader is not in the job";
        Err(Error::unsupported(format!("process {pid} in {what}"), why, "take the checkpoint when it has ended"))
    };
    let Some(root) = members.first() else { return Ok(()) };
    let leads = |id: i32| {
        let has_it = |ended: &EndedChild| ended.pid == id;
        members.iter().any(|member| member.program.pid == id || member.family.ended_children.iter().any(has_it))
    };
    for member in &members[1..] {
        let (pid, family) = (member.program.pid, &member.family);
        let of_parent = family.parent.and_then(|parent| members.get(parent as usize)).map(|it| it.family.session);
        if family.session != pid && Some(family.session) != of_parent {
            return refuse(pid, format!("session {}, which is not that of its parent,", family.session));
        }
        if !leads(family.group) && family.group != root.family.group {
            return refuse(pid, format!("process group {}", family.group));
        }
    }
    Ok(())
}
