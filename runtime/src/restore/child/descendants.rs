//! Makes processes: each makes those that are to be born by it ([`Births`]), those that have ended among them.
//!
//! [`Births`]: crate::image::Births

use std::ops::RangeBounds;
use std::os::fd::RawFd;

use nix::errno::Errno;

use super::calls::KernelAction;
use super::report::{At, Failed, Report, Step};
use super::turns::HAS_OTHER_ID;
use super::{Plan, calls, live, take_role};
use crate::image::{Birth, Born, EndedChild, Role, Way};

/// How an intermediate process ends that has an id which the job needs.
const IS_WANTED: i32 = 2;

/// Those that the ancestor makes.
pub fn make_all(plan: &mut Plan, channel: RawFd) -> Result<(), Failed> {
    let births = std::mem::take(&mut plan.births.of_ancestor);
    births.into_iter().try_for_each(|birth| make_one(plan, channel, birth))?;
    reap_makers(plan)
}

/// Those children of this process that are older than its session.
pub fn make_older_than_session(plan: &mut Plan, channel: RawFd) -> Result<(), Failed> {
    default_child_signal()?;
    if plan.births.of_members[plan.own].adopts {
        calls::adopt_orphans(true).at(Step::Adopting, 0)?;
    }
    for place in 0..plan.births.of_members[plan.own].before.len() {
        let birth = plan.births.of_members[plan.own].before[place];
        make_one(plan, channel, birth)?;
    }
    Ok(())
}

/// The other children of this process, and those that are born in its session and are not its children. Only the maker
/// returns.
pub fn make(plan: &mut Plan, channel: RawFd) -> Result<(), Failed> {
    for place in 0..plan.births.of_members[plan.own].after.len() {
        make_ended(plan, channel, plan.births.of_members[plan.own].due_before(place))?;
        let birth = plan.births.of_members[plan.own].after[place];
        make_one(plan, channel, birth)?;
    }
    make_ended(plan, channel, plan.births.of_members[plan.own].due_last())?;
    for place in 0..plan.births.of_members[plan.own].for_others.len() {
        let birth = plan.births.of_members[plan.own].for_others[place];
        make_one(plan, channel, birth)?;
    }
    make_threads(plan, channel, i32::MAX)?;
    reap_makers(plan)
}

/// Of a child whose end is ignored nothing is left.
fn default_child_signal() -> Result<(), Failed> {
    calls::set_action(libc::SIGCHLD, &KernelAction::default()).at(Step::SignalAction, libc::SIGCHLD as u32)
}

fn make_one(plan: &mut Plan, channel: RawFd, birth: Birth) -> Result<(), Failed> {
    let (pid, exit_signal) = match birth.born {
        Born::Member(member) => (plan.members[member].image.pid, plan.members[member].image.family.exit_signal),
        Born::Leader(leader) => {
            let leader = plan.lost_leaders[leader];
            let ended = ended_child(plan, leader.pid).map(|place| &plan.own().image.family.ended_children[place]);
            (leader.pid, ended.map_or(libc::SIGCHLD, |ended| ended.exit_signal))
        }
    };
    match birth.way {
        Way::Child => {
            let shares_places =
                matches!(birth.born, Born::Member(member) if plan.members[member].image.family.shares_places);
            let shares_descriptors =
                matches!(birth.born, Born::Member(member) if plan.members[member].image.family.shares_descriptors);
            let places = if shares_places { libc::CLONE_FS as u64 } else { 0 };
            let descriptors = if shares_descriptors { libc::CLONE_FILES as u64 } else { 0 };
            let ends = if shares_descriptors { Some(pipe_of_word(plan).at(Step::Pipe, pid as u32)?) } else { None };
            plan.word = ends.map_or(-1, |[_, writes]| writes);
            if give_birth(plan, channel, pid, exit_signal, places | descriptors)? == 0 {
                begin(plan, channel, birth.born);
            }
            if let Some([reads, writes]) = ends {
                // Both use one table now, and what one opens for a moment has a number that the other gives away.
                if !calls::wait_for_byte_or_hangup(reads, channel) {
                    calls::exit();
                }
                calls::close(reads);
                calls::close(writes);
            }
        }
        Way::Sibling => {
            // Its end is signalled to that parent as that of this process would be.
            if give_birth(plan, channel, pid, 0, libc::CLONE_PARENT as u64)? == 0 {
                begin(plan, channel, birth.born);
            }
            return Ok(());
        }
        Way::Orphan => return make_orphan(plan, channel, birth.born, pid),
    }
    match birth.born {
        Born::Member(member) if plan.members[member].role == Role::GroupLeader => {
            // As it does itself: whoever is faster. From here on others can join the group.
            calls::join_group(pid, pid).at(Step::Role, pid as u32)
        }
        Born::Member(_) => Ok(()),
        Born::Leader(_) if ended_child(plan, pid).is_some() => wait_for_end(pid, exit_signal),
        Born::Leader(_) => {
            // It has said itself what it could not do.
            calls::reap(pid).at(Step::Child, pid as u32)?;
            calls::forget(libc::SIGCHLD).at(Step::SignalAction, libc::SIGCHLD as u32)
        }
    }
}

/// Makes a process with id `pid`; 0 in it. `flags` are those of clone.
fn give_birth(plan: &mut Plan, channel: RawFd, pid: i32, exit_signal: i32, flags: u64) -> Result<i32, Failed> {
    if plan.turns.is_none() {
        return calls::clone_with_pid(pid, exit_signal, flags).at(Step::Child, pid as u32);
    }
    make_threads(plan, channel, pid)?;
    let Some(turns) = &plan.turns else { return Err(Errno::EINVAL).at(Step::Turn, pid as u32) };
    turns.wait(pid, channel).at(Step::Turn, pid as u32)?;
    loop {
        turns.reach(pid).at(Step::Turn, pid as u32)?;
        match calls::clone_with_any_id(exit_signal, flags).at(Step::Child, pid as u32)? {
            0 if calls::own_pid() == pid => return Ok(0),
            0 => calls::leave(HAS_OTHER_ID),
            made if turns.made(made, pid) => return Ok(made),
            // Somebody else was faster.
            made if flags & libc::CLONE_PARENT as u64 == 0 => {
                calls::reap(made).at(Step::Child, pid as u32)?;
                calls::forget(libc::SIGCHLD).at(Step::SignalAction, libc::SIGCHLD as u32)?;
            }
            // The restarter reaps it.
            _ => {}
        }
    }
}

/// Makes those threads of this process at their turns that have ids below `end`, if it makes them itself.
pub fn make_threads(plan: &mut Plan, channel: RawFd, end: i32) -> Result<(), Failed> {
    let Some(turns) = plan.turns.as_ref().filter(|_| plan.makes_threads) else { return Ok(()) };
    let image = plan.members[plan.own].image;
    while let Some(tid) = image.threads.get(1 + plan.threads_made).map(|thread| thread.tid).filter(|&tid| tid < end) {
        turns.wait(tid, channel).at(Step::Turn, tid as u32)?;
        loop {
            turns.reach(tid).at(Step::Turn, tid as u32)?;
            let made = calls::clone_idle_thread(tid).at(Step::Child, tid as u32)?;
            if turns.made(made, tid) {
                break;
            }
        }
        plan.threads_made += 1;
    }
    Ok(())
}

/// A pipe whose numbers are none of the program's.
fn pipe_of_word(plan: &Plan) -> Result<[RawFd; 2], Errno> {
    let [reads, writes] = calls::pipe(0)?;
    Ok([calls::move_above(reads, plan.kept_end())?, calls::move_above(writes, plan.kept_end())?])
}

/// Makes a child of a process that ends at once.
fn make_orphan(plan: &mut Plan, channel: RawFd, born: Born, pid: i32) -> Result<(), Failed> {
    if plan.turns.is_some() {
        return make_orphan_at_its_turn(plan, channel, born, pid);
    }
    loop {
        let intermediate = calls::clone_with_any_id(0, 0).at(Step::Child, pid as u32)?;
        if intermediate != 0 {
            // With the next one the kernel goes on behind that id.
            match calls::reap(intermediate).at(Step::Child, pid as u32)? {
                Some(IS_WANTED) => continue,
                _ => return Ok(()),
            }
        }
        if plan.ids.binary_search(&calls::own_pid()).is_ok() {
            calls::leave(IS_WANTED);
        }
        match calls::clone_with_pid(pid, libc::SIGCHLD, 0).at(Step::Child, pid as u32) {
            Ok(0) => begin(plan, channel, born),
            Ok(_) => calls::leave(0),
            Err(failed) => fail(plan, channel, failed),
        }
    }
}

/// The same where ids cannot be chosen: the process that ends is made at a turn before, and reaped when there is nothing else to do.
fn make_orphan_at_its_turn(plan: &mut Plan, channel: RawFd, born: Born, pid: i32) -> Result<(), Failed> {
    let maker = plan.turns.as_ref().and_then(|turns| turns.maker_of(pid));
    let maker = maker.ok_or(Errno::ENOTUNIQ).at(Step::Turn, pid as u32)?;
    if give_birth(plan, channel, maker, 0, 0)? != 0 {
        plan.makers.push(maker);
        return Ok(());
    }
    plan.makes_threads = false;
    plan.makers.clear();
    match give_birth(plan, channel, pid, libc::SIGCHLD, 0) {
        Ok(0) => begin(plan, channel, born),
        Ok(_) => calls::leave(0),
        Err(failed) => fail(plan, channel, failed),
    }
}

/// Reaps what has made orphans for this process.
fn reap_makers(plan: &mut Plan) -> Result<(), Failed> {
    while let Some(maker) = plan.makers.pop() {
        calls::reap(maker).at(Step::Child, maker as u32)?;
    }
    Ok(())
}

/// The life of the first process where no ancestor makes it. It may have made threads already.
pub fn begin_first(plan: &mut Plan, channel: RawFd) -> ! {
    plan.makes_threads = true;
    live_from_birth(plan, channel, 0)
}

fn live_from_birth(plan: &mut Plan, channel: RawFd, member: usize) -> ! {
    plan.own = member;
    let (role, word) = (plan.own().role, plan.word);
    let begun = make_older_than_session(plan, channel).and_then(|()| take_role(role).at(Step::Role, 0));
    live(plan, channel, word, begun)
}

/// The life of one that has just been born.
fn begin(plan: &mut Plan, channel: RawFd, born: Born) -> ! {
    plan.makers.clear();
    match born {
        Born::Member(member) => {
            (plan.makes_threads, plan.threads_made) = (true, 0);
            live_from_birth(plan, channel, member)
        }
        Born::Leader(leader) => {
            plan.makes_threads = false;
            let ended = ended_child(plan, plan.lost_leaders[leader].pid);
            if let Some(place) = ended {
                calls::name(&plan.own().ended_names[place]);
            }
            if let Err(failed) = lead(plan, channel, leader) {
                fail(plan, channel, failed);
            }
            match ended {
                Some(place) => calls::end_with(plan.own().image.family.ended_children[place].status),
                None => calls::leave(0),
            }
        }
    }
}

/// Leads a session for those that are to be born in it.
fn lead(plan: &mut Plan, channel: RawFd, leader: usize) -> Result<(), Failed> {
    default_child_signal()?;
    calls::lead_session().at(Step::Role, 0)?;
    for place in 0..plan.births.of_leaders[leader].len() {
        let birth = plan.births.of_leaders[leader][place];
        make_one(plan, channel, birth)?;
    }
    reap_makers(plan)
}

fn fail(plan: &Plan, channel: RawFd, failed: Failed) -> ! {
    calls::send(channel, &Report::failed(plan.own, failed).to_bytes());
    calls::exit()
}

/// Makes those children that have ended, by how many older siblings live.
fn make_ended(plan: &mut Plan, channel: RawFd, due: impl RangeBounds<usize>) -> Result<(), Failed> {
    for place in 0..plan.own().image.family.ended_children.len() {
        let ended = &plan.own().image.family.ended_children[place];
        // Those that lead a session of others are born for these.
        let leads = plan.lost_leaders.iter().any(|leader| leader.pid == ended.pid);
        if due.contains(&(ended.older_siblings as usize)) && !leads {
            make_one_ended(plan, place, channel)?;
        }
    }
    Ok(())
}

/// Makes a child that ends at once, for the program to wait for.
fn make_one_ended(plan: &mut Plan, place: usize, channel: RawFd) -> Result<(), Failed> {
    let image = plan.members[plan.own].image;
    let ended = &image.family.ended_children[place];
    if give_birth(plan, channel, ended.pid, ended.exit_signal, 0)? == 0 {
        calls::name(&plan.own().ended_names[place]);
        if let Err(failed) = take_place(plan, ended).at(Step::Role, 0) {
            calls::send(channel, &Report::warning(plan.own, failed).to_bytes());
        }
        calls::end_with(ended.status);
    }
    wait_for_end(ended.pid, ended.exit_signal)
}

/// Waits for the end of a child that the program is to wait for.
fn wait_for_end(pid: i32, exit_signal: i32) -> Result<(), Failed> {
    calls::wait_for_end(pid).at(Step::Child, pid as u32)?;
    match exit_signal {
        0 => Ok(()),
        signal => calls::forget(signal).at(Step::SignalAction, signal as u32),
    }
}

/// The place among the ended children of this process that the one with this pid has.
fn ended_child(plan: &Plan, pid: i32) -> Option<usize> {
    plan.own().image.family.ended_children.iter().position(|ended| ended.pid == pid)
}

fn take_place(plan: &Plan, ended: &EndedChild) -> Result<(), Errno> {
    let (own, group) = (calls::own_pid(), ended.group);
    match ended.session {
        session if session == own => calls::lead_session(),
        _ if group == own => calls::lead_group(),
        _ if group == calls::own_group() || plan.ids.binary_search(&group).is_err() => Ok(()),
        _ if plan.lost_leaders.iter().any(|leader| leader.pid == group) && plan.turns.is_none() => {
            join_behind_leader(group)
        }
        _ => match calls::join_group(0, group) {
            // Its parent joins later.
            Err(_) if group == plan.own().image.family.group => Ok(()),
            outcome => outcome,
        },
    }
}

/// Joins a group whose leader has gone: where it is not there yet, a child leads it, which ends. Others may do the same at this
/// moment.
fn join_behind_leader(group: i32) -> Result<(), Errno> {
    for _ in 0..calls::ATTEMPTS {
        match calls::join_group(0, group) {
            Err(Errno::EPERM) => {}
            outcome => return outcome,
        }
        match calls::clone_if_free(group) {
            Ok(0) => loop {
                calls::pause();
            },
            Ok(leader) => {
                let joined = calls::join_group(leader, leader).and_then(|()| calls::join_group(0, leader));
                calls::kill(leader);
                calls::reap(leader)?;
                return joined;
            }
            Err(Errno::EEXIST) => calls::pause(),
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::EEXIST)
}
