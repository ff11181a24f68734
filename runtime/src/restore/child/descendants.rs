//! Makes the children of a process, those that have ended among them.

use std::os::fd::RawFd;

use nix::errno::Errno;

use super::calls::KernelAction;
use super::report::{At, Failed, Report, Step};
use super::{Plan, calls, live, take_role};
use crate::image::Role;

/// Makes the children of this process, which make their own. Only the parent returns.
pub fn make(plan: &mut Plan, channel: RawFd) -> Result<(), Failed> {
    // Of a child whose end is ignored nothing is left.
    calls::set_action(libc::SIGCHLD, &KernelAction::default()).at(Step::SignalAction, libc::SIGCHLD as u32)?;
    for place in 0..plan.own().children.len() {
        make_ended(plan, channel, |older_siblings| older_siblings as usize == place)?;
        let child = plan.own().children[place];
        let (image, role) = (plan.members[child].image, plan.members[child].role);
        let pid = image.pid;
        if calls::clone_with_pid(pid, image.family.exit_signal).at(Step::Child, pid as u32)? == 0 {
            plan.own = child;
            let begun = take_role(role).at(Step::Role, 0);
            live(plan, channel, begun);
        }
        if role == Role::GroupLeader {
            // As it does itself: whoever is faster. From here on others can join the group.
            calls::join_group(pid, pid).at(Step::Role, pid as u32)?;
        }
    }
    let living = plan.own().children.len();
    make_ended(plan, channel, |older_siblings| older_siblings as usize >= living)
}

/// Makes those children that have ended, by how many older siblings live.
fn make_ended(plan: &Plan, channel: RawFd, is_due: impl Fn(u32) -> bool) -> Result<(), Failed> {
    let all = plan.own().image.family.ended_children.iter().enumerate();
    for (place, _) in all.filter(|(_, ended)| is_due(ended.older_siblings)) {
        make_one_ended(plan, place, channel)?;
    }
    Ok(())
}

/// Makes a child that ends at once, for the program to wait for.
fn make_one_ended(plan: &Plan, place: usize, channel: RawFd) -> Result<(), Failed> {
    let member = plan.own();
    let ended = &member.image.family.ended_children[place];
    if calls::clone_with_pid(ended.pid, ended.exit_signal).at(Step::Child, ended.pid as u32)? == 0 {
        calls::name(&member.ended_names[place]);
        if let Err(failed) = take_place(ended.session, ended.group, member.image.family.group).at(Step::Role, 0) {
            calls::send(channel, &Report::warning(plan.own, failed).to_bytes());
        }
        calls::end_with(ended.status);
    }
    calls::wait_for_end(ended.pid).at(Step::Child, ended.pid as u32)?;
    match ended.exit_signal {
        0 => Ok(()),
        signal => calls::forget(signal).at(Step::SignalAction, signal as u32),
    }
}

fn take_place(session: i32, group: i32, of_parent: i32) -> Result<(), Errno> {
    // SAFETY: takes no arguments.
    let own = unsafe { libc::getpid() };
    match (session, group) {
        (session, _) if session == own => calls::lead_session(),
        (_, group) if group == own => calls::lead_group(),
        (_, group) if group == of_parent => Ok(()),
        (_, group) => calls::join_group(0, group),
    }
}
