//! Descriptors of the job's own pseudo-terminals, which the restarter has made, and whom each controls.

use std::os::fd::RawFd;

use nix::errno::Errno;

use super::super::report::{At, Failed, Step};
use super::{Plan, calls};
use crate::image::{FileKind, JobImage, Role};

type Result<T> = std::result::Result<T, Errno>;

/// For each file the process that opens it by itself: one that was opened as /dev/tty, by the leader of the session that it
/// controls, if nobody has it but those who descend from that leader.
pub fn openers(job: &JobImage) -> Vec<Option<usize>> {
    let opener = |file: usize| {
        let FileKind::Terminal { terminal, own: true } = job.objects.files[file].kind else { return None };
        let session = job.objects.pseudo_terminals.get(terminal as usize)?.session?;
        let leader = job.processes.iter().position(|process| process.pid == session)?;
        let descends = |mut process: usize| {
            while process != leader {
                match job.processes[process].family.parent {
                    Some(parent) => process = parent as usize,
                    None => return false,
                }
            }
            true
        };
        let has_it = |process: &usize| job.processes[*process].descriptors.iter().any(|it| it.file as usize == file);
        (0..job.processes.len()).filter(has_it).all(descends).then_some(leader)
    };
    (0..job.objects.files.len()).map(opener).collect()
}

/// The one description of a master.
pub fn master(plan: &Plan, terminal: usize, flags: i32) -> Result<RawFd> {
    calls::with_flags(plan.master(terminal), flags)
}

/// A description of a slave side; none yet if its opener is to open it.
pub fn slave(plan: &Plan, index: usize, terminal: usize) -> Result<RawFd> {
    if plan.files.openers[index].is_some() {
        return Ok(-1);
    }
    open_slave(plan, terminal, plan.objects.files[index].flags)
}

fn open_slave(plan: &Plan, terminal: usize, flags: i32) -> Result<RawFd> {
    let wanted = flags & (libc::O_ACCMODE | libc::O_NONBLOCK) | libc::O_NOCTTY;
    let opened = calls::open_slave(plan.master(terminal), wanted)?;
    calls::with_flags(calls::move_above(opened, plan.kept_end())?, flags)
}

/// A description of a slave side whose master is closed.
pub fn hung_up(plan: &Plan, flags: i32) -> Result<RawFd> {
    let master = calls::open(c"/dev/ptmx", libc::O_RDWR | libc::O_NOCTTY)?;
    calls::unlock_slave(master)?;
    let opened = calls::open_slave(master, flags & (libc::O_ACCMODE | libc::O_NONBLOCK) | libc::O_NOCTTY);
    calls::close(master);
    calls::with_flags(calls::move_above(opened?, plan.kept_end())?, flags)
}

/// Has this process be controlled by the terminal of the session that it leads, and opens what only it can; or give up the one
/// that its parent has handed on.
pub fn take_control(plan: &mut Plan) -> std::result::Result<(), Failed> {
    let pid = plan.own().image.pid;
    for terminal in 0..plan.objects.pseudo_terminals.len() {
        let record = &plan.objects.pseudo_terminals[terminal];
        if record.session == Some(pid) && plan.own().role == Role::SessionLeader {
            calls::be_controlled_by(plan.master(terminal)).at(Step::Control, terminal as u32)?;
        }
        if record.uncontrolled.contains(&pid) {
            give_up(plan, terminal).at(Step::Control, terminal as u32)?;
        }
    }
    for index in 0..plan.objects.files.len() {
        if plan.files.openers[index] == Some(plan.own) {
            let flags = plan.objects.files[index].flags;
            plan.files.opened[index] = open_own(plan, flags).at(Step::Open, index as u32)?;
        }
    }
    Ok(())
}

fn open_own(plan: &Plan, flags: i32) -> Result<RawFd> {
    let opened = calls::open(c"/dev/tty", flags & (libc::O_ACCMODE | libc::O_NONBLOCK) | libc::O_NOCTTY)?;
    calls::with_flags(calls::move_above(opened, plan.kept_end())?, flags)
}

fn give_up(plan: &Plan, terminal: usize) -> Result<()> {
    let slave = open_slave(plan, terminal, libc::O_RDWR | libc::O_NONBLOCK)?;
    let given_up = calls::be_controlled_by_none(slave);
    calls::close(slave);
    match given_up {
        // Nor was its parent.
        Err(Errno::ENOTTY) => Ok(()),
        outcome => outcome,
    }
}
