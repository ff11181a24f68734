//! The processes of a job: its first one, all that descend from it, and all that did until their parents ended ([`super::kin`]).
//!
//! They are stopped from the top downward: a process that stands still has no new children, so a child that is found then is
//! there until it ends. One that has just executed another program is waited for, while the others stand still, until
//! libckpt.so is in it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ckpt_wire::Control;

use super::adoption::wait_until_ready;
use super::kin::{self, Kinship};
use super::lineage::ProcessLineages;
use super::member::Member;
use super::program::Program;
use super::waiting_calls::WaitingCalls;
use super::{own_children, places, sharing, stop};
use crate::descriptor::{self, pidfd_open};
use crate::error::{Error, Result};
use crate::image::{EndedChild, Family, LostLeader};
use crate::proc::task::{self, stat_number};
use crate::ptrace::Stopped;

/// How long a process may take from its start to the constructor of libckpt.so, before the job is stopped.
const LOADING_TIMEOUT: Duration = Duration::from_secs(2);
/// And how long while the others stand still.
const LOADING_TIMEOUT_IN_STOP: Duration = Duration::from_millis(500);

/// How long a process that is to be refused may take to end, if that is what it does.
const ENDING_BEFORE_REFUSAL: Duration = Duration::from_millis(200);
/// How long a process may take from where its memory has gone to its end.
const ENDING_TIMEOUT: Duration = Duration::from_secs(5);

/// A job that stands still.
pub struct StillJob {
    /// Its processes; parents come before their children.
    pub members: Vec<Member>,
    /// Leaders of their sessions and process groups that have gone.
    pub lost_leaders: Vec<LostLeader>,
}

/// The first process of the job that process `pid` belongs to. It is that of the highest of its ancestors that it has an
/// unbroken line of programs of ours to. Our own commands, which may be among its ancestors, are none.
pub fn root_of(pid: i32) -> i32 {
    let mut highest = (pid, Program::find(pid).and_then(|program| program.control()).ok());
    loop {
        let (child, _) = highest;
        let parent = task::stat_fields(child, "stat").map_or(0, |stat| stat_number(&stat, 4) as i32);
        if parent < 1 || task::executes_what_we_do(parent) {
            break;
        }
        match Program::find(parent).and_then(|program| program.control()) {
            Ok(control) => highest = (parent, Some(control)),
            Err(_) => break,
        }
    }
    match highest {
        (pid, Some(control)) if control.mark != 0 => kin::first_of(pid, &control).unwrap_or(pid),
        (pid, _) => pid,
    }
}

/// Waits until all processes of the job can be captured, which gives those a control block that have none and can have one.
/// Gives those that there were, the first one first.
///
/// # Errors
/// When one of them cannot.
pub fn prepare(root: i32, mark: u64, known: &mut ProcessLineages) -> Result<Vec<i32>> {
    let mut found = Vec::new();
    let mut unseen = VecDeque::from([root]);
    if mark != 0 {
        let job = Kinship::with(mark, root)?;
        known.kin.get_to_know(&job)?;
        unseen.extend(known.kin.others(&job, |pid| pid == root)?.members);
    }
    while let Some(pid) = unseen.pop_front() {
        // A child of one of them has the mark, too.
        if found.contains(&pid) {
            continue;
        }
        found.push(pid);
        let children = children(pid).unwrap_or_default();
        let has_children = !children.is_empty();
        let control = has_children.then(|| Program::find(pid).and_then(|program| program.control()).ok()).flatten();
        for (child, stat) in children {
            // Each has its time: a walk over many takes some itself.
            let deadline = || Instant::now() + loading_timeout(child, LOADING_TIMEOUT);
            if !own_children::is_starting_an_agent(child, &stat)
                && ready(child, deadline(), control.as_deref())?.is_some()
            {
                unseen.push_back(child);
            }
        }
    }
    known.kin.met(&found);
    Ok(found)
}

/// Stops `root`, the first process, and all others of its job.
///
/// # Errors
/// When one of them cannot be stopped, or rebuilt in its place among the others. All go on.
pub fn stop(root: &Program, control: &Control, known: &mut ProcessLineages) -> Result<StillJob> {
    let mut members = Vec::new();
    let is_whole = control.mark == 0 || [0, root.pid].contains(&(control.founder as i32));
    let stopped = stop_into(root, known, &mut members).and_then(|()| stop_orphans(control.mark, known, &mut members));
    let settled = stopped.and_then(|()| sharing::settle(&mut members));
    match settled.and_then(|()| places::lost_leaders(&members, is_whole)) {
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
    let root = stop_one((root.try_clone()?, root.control()?), known, None, true)?;
    let waiting = add(root, members)?;
    stop_descendants(waiting, known, members)
}

/// Stops those whose parents have ended, and their descendants.
fn stop_orphans(mark: u64, known: &mut ProcessLineages, members: &mut Vec<Member>) -> Result<()> {
    if mark == 0 {
        return Ok(());
    }
    let job = Kinship::with(mark, members[0].program.pid)?;
    let mut kin = std::mem::take(&mut known.kin);
    let is_member = |members: &Vec<Member>, pid: i32| members.iter().any(|member| member.program.pid == pid);
    let stopped = kin::stop_all(&kin, &job, members, is_member, |members, pid| {
        let Some(orphan) = stop_child(pid, known, None)? else { return Ok(()) };
        // Somebody else may have got its pid since.
        if orphan.control.mark != mark || !kin.is_one(pid, &job) {
            let_go(vec![orphan]);
            return Ok(());
        }
        let waiting = add(orphan, members)?;
        stop_descendants(waiting, known, members)
    });
    let stopped = stopped.map(|doubtful| kin.leave_out(doubtful));
    let pids: Vec<i32> = members.iter().map(|member| member.program.pid).collect();
    kin.met(&pids);
    known.kin = kin;
    stopped
}

fn stop_descendants(
    mut waiting: VecDeque<(i32, u32)>,
    known: &mut ProcessLineages,
    members: &mut Vec<Member>,
) -> Result<()> {
    while let Some((pid, parent)) = waiting.pop_front() {
        match stop_child(pid, known, Some((parent, &members[parent as usize].control)))? {
            Some(member) => waiting.extend(add(member, members)?),
            // It has ended since its parent was stopped.
            None => {
                let ended = end_of(pid)?;
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

/// Stops a process that is not the first, with its parent's index and control block if that is among them; none if it has ended.
fn stop_child(pid: i32, known: &mut ProcessLineages, parent: Option<(u32, &Control)>) -> Result<Option<Member>> {
    let deadline = Instant::now() + loading_timeout(pid, LOADING_TIMEOUT_IN_STOP);
    loop {
        let Some(found) = ready(pid, deadline, parent.map(|(_, control)| control))? else { return Ok(None) };
        match stop_one(found, known, parent.map(|(index, _)| index), false) {
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
    is_first: bool,
) -> Result<Member> {
    let pid = program.pid;
    known.of(pid, &control, is_first).calls.look(pid);
    let is_job_stopped = task::is_job_stopped(pid);
    let threads = stop::stop(pid)?;
    let by = || threads.iter().find_map(Stopped::job_stop_signal).unwrap_or(libc::SIGSTOP);
    let job_stopped = is_job_stopped.then(by);
    let stat = task::stat_fields(pid, "stat")?;
    let number = |field| stat_number(&stat, field) as i32;
    let family = Family { parent, exit_signal: number(38), group: number(5), session: number(6), ..Family::default() };
    Ok(Member { program, control, threads, family, is_first, job_stopped })
}

/// How long process `pid` may take until libckpt.so is in it: `otherwise` if nothing says that it will be.
fn loading_timeout(pid: i32, otherwise: Duration) -> Duration {
    if kin::loads_library(pid) { kin::LOADING_TIMEOUT } else { otherwise }
}

/// Process `pid`, whose parent in the job has control block `parent`, and its own control block, once libckpt.so is in it or what
/// stands for it; none if it has ended.
fn ready(pid: i32, deadline: Instant, parent: Option<&Control>) -> Result<Option<(Program, Box<Control>)>> {
    let Ok(pidfd) = pidfd_open(pid) else { return Ok(None) };
    // What it waits in is looked up when it is stopped.
    match wait_until_ready(pid, &mut WaitingCalls::default(), deadline, parent) {
        Ok(found) => Ok(Some(found)),
        Err(Error::ProgramGone { .. }) => Ok(None),
        // One that is ending lacks this or that, whatever is looked for.
        Err(_) if descriptor::ends_within(&pidfd, ENDING_BEFORE_REFUSAL) == Ok(true) => Ok(None),
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

/// What is left of a process that is ending, for its parent, who stands still, to wait for: nothing if that does not care.
fn end_of(pid: i32) -> Result<Option<EndedChild>> {
    let deadline = Instant::now() + ENDING_TIMEOUT;
    loop {
        // Its memory goes first, and it is still there when that has gone.
        let Ok(stat) = task::stat_fields(pid, "stat") else { return Ok(None) };
        match stat.first().map(String::as_str) {
            Some("Z") if !own_children::is_over(&stat) => return Ok(ended_child(pid, &stat, u32::MAX)),
            Some("Z" | "X") | None => return Ok(None),
            Some(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(1)),
            Some(_) => {
                let why = "it is ending, and does not end".to_owned();
                return Err(Error::StopTimeout { tid: pid, timeout_ms: ENDING_TIMEOUT.as_millis() as u64, why });
            }
        }
    }
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
    Ok(all.filter(|(child, stat)| !own_children::is_over(stat) && !own_children::is_agent(*child, stat)).collect())
}
