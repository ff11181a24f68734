//! Brings the processes into the world: a fork, which makes them with their own pids and ends.
//!
//! The fork is a plain `clone3`, behind the C library's back, with all signals blocked. The two sides
//! speak over a socket pair of packets: one byte starts the child, reports come back ([`super::child`]). If the
//! restarter dies first, the child reads an end of file; once it is seized, the kernel kills it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};

use super::ascending::Ids;
use super::child::{self, CHANNEL, FILES, Plan, REPORT_BYTES, Report, Verdict};
use super::clocks::ClockPlan;
use super::clone_call::may_not_choose;
use super::first_process;
use super::handed::Handed;
use super::mapping_plan::MappingPlan;
use super::message_queues::Queues;
use super::open_files::OpenFiles;
use super::outside::Outside;
use super::process::{Expendable, HalfBuilt};
use super::pseudo_terminals::PseudoTerminals;
use super::sockets::Sockets;
use crate::error::{Error, Result};
use crate::image::{ClockOffsets, JobImage};
use crate::namespace;
use crate::proc::task::FIRST_PROCESS;
use crate::ptrace::{Options, Running, Stopped, wait_until_gone};
use crate::signal_mask;

/// Longest time for the child's own part. Opening a file of a hanging network file system is the slow case.
const PREPARATION_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest time from the interrupt to the stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Children that have done their own part and are stopped.
pub struct Spawned {
    /// The processes, in the order of the job.
    pub processes: Vec<HalfBuilt>,
    /// What was handed to them.
    pub handed: Handed,
    /// Number in each of its first descriptor that is not the program's.
    pub first_kept: RawFd,
    /// Number in each of the first of the mappings' files, the others following.
    pub first_file: RawFd,
    /// Number in each of the first master of the job's pseudo-terminals, the others following.
    pub first_terminal: RawFd,
}

/// What the restarter has made for the children, and has open itself.
pub struct Ready<'a> {
    /// The files behind mappings.
    pub mappings: &'a MappingPlan,
    /// Files with paths.
    pub opened: &'a OpenFiles,
    /// Message queues.
    pub queues: &'a Queues,
    /// Sockets, which get what lay in them from the children.
    pub sockets: &'a Sockets,
    /// Pseudo-terminals with what waits in them.
    pub terminals: &'a PseudoTerminals,
}

/// Makes the children and lets them do their own part. `syscall` is the address of a `syscall` instruction in the vdso; what is `ready`
/// is open in them.
pub fn spawn(
    job: &JobImage,
    outside: &Outside,
    ready: &Ready<'_>,
    (clocks, ids): (&ClockPlan, Ids),
    syscall: u64,
) -> Result<Spawned> {
    let (parent_end, child_end) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
        .map_err(|source| Error::io("make the channel to", "the rebuilt process", source))?;
    let &Ready { mappings, opened, queues, sockets, terminals } = ready;
    let mut kept = vec![child_end.as_raw_fd()];
    kept.extend(outside.numbers());
    kept.extend(mappings.numbers());
    kept.extend(sockets.numbers());
    kept.extend(opened.numbers());
    kept.extend(terminals.numbers());
    let mut plan = Plan::new(job, outside, parent_end.as_raw_fd(), kept, (mappings, opened, sockets), ids)?;

    let (ancestor, without_clocks) = fork(&mut plan, job, clocks)?;
    drop(child_end);
    let guard = Unfinished { ancestor, first: job.root().pid, led_by: first_leader(job) };
    if let Some(error) = without_clocks {
        clocks.say_given_up(&error);
    }
    // When this fails, the end of the channel is the end of all of them.
    let handed = start(&parent_end, job, queues)?;
    std::mem::forget(guard);
    // All have the parents that they are to have when it has ended, and the leader of the first one's session.
    ancestor.into_iter().for_each(reap);
    if plan.turns().is_some() {
        reap_those_with_other_ids();
    }
    first_leader(job).into_iter().for_each(reap);
    let mut processes: Vec<HalfBuilt> = Vec::with_capacity(job.processes.len());
    let mut guard = first_child(job);
    for image in &job.processes {
        // They are waiting for the channel to be closed, so none of them gets lost.
        let running = Running::seize(image.pid, Options::EXPENDABLE_ALONE)?;
        let mut process = HalfBuilt::new(image.pid)?;
        guard.take().into_iter().for_each(std::mem::forget);
        process.stopped_at(stop(running)?, syscall)?;
        if plan.turns().is_some() {
            // They are there, and do nothing.
            for thread in image.threads.iter().skip(1) {
                process.add_thread(stop(Running::seize(thread.tid, Options::EXPENDABLE_ALONE)?)?);
            }
        }
        processes.push(process);
    }
    let (first_kept, first_file) = (plan.number_of(CHANNEL), plan.number_of(FILES));
    Ok(Spawned { processes, handed, first_kept, first_file, first_terminal: plan.master(0) })
}

/// What of ours may be there while processes are being made: the ancestor, the first process and who leads its session. They
/// are ended and reaped when this is dropped; all others end by themselves.
struct Unfinished {
    ancestor: Option<i32>,
    first: i32,
    led_by: Option<i32>,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        self.ancestor.map(Expendable).into_iter().for_each(drop);
        // An id that could not be had is somebody else's.
        let is_our_child = |pid: &i32| {
            // SAFETY: siginfo_t is integers and pointers, for which zero is a value.
            let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
            let flags = libc::WEXITED | libc::WNOWAIT | libc::WNOHANG | libc::__WALL;
            // SAFETY: waitid writes one siginfo_t to `info`.
            unsafe { libc::waitid(libc::P_PID, *pid as libc::id_t, &mut info, flags) == 0 }
        };
        // Where we have become the first process, that ends when the channel is closed.
        self.led_by.into_iter().chain([self.first]).filter(is_our_child).map(Expendable).for_each(drop);
    }
}

/// The leader of the first process's session, if that has gone: it is made as a child of ours.
fn first_leader(job: &JobImage) -> Option<i32> {
    let session = job.root().family.session;
    job.lost_leaders.iter().map(|leader| leader.pid).find(|&leader| leader == session)
}

fn reap(pid: i32) {
    if let Err(error) = wait_until_gone(pid) {
        log::debug!("waiting for the end of process {pid}: {error}");
    }
}

/// Stops a process or thread that has been seized.
fn stop(running: Running) -> Result<Stopped> {
    running.interrupt()?;
    let stopped = running.wait_for_trap(Instant::now() + STOP_TIMEOUT)?;
    stopped.set_options(Options::EXPENDABLE)?;
    Ok(stopped)
}

/// The first process, which is a child of ours, unless we have become it.
fn first_child(job: &JobImage) -> Option<Expendable> {
    Some(job.root().pid).filter(|&pid| pid != FIRST_PROCESS).map(Expendable)
}

/// Siblings of the ancestor that did not get the id that they were for, and have ended.
fn reap_those_with_other_ids() {
    // SAFETY: takes numbers; nobody wants their status. Nothing is traced yet, and no other child of ours has ended.
    while unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG | libc::__WALL) } > 0 {}
}

/// Makes the ancestor, or the first process where there is no need for one; in the child it does not return. Gives the ancestor's id, and
/// why the program's clocks do not go on, if they should.
fn fork(plan: &mut Plan, job: &JobImage, clocks: &ClockPlan) -> Result<(Option<i32>, Option<Error>)> {
    let before = signal_mask::block_all().map_err(|source| Error::io("block signals for", "the rebuild", source))?;
    let forked = match clocks.ahead {
        ahead if plan.turns().is_some() || first_process::is_in(job) => {
            match ahead.map(|_| namespace::no_clocks_without_choice()) {
                Some(error) if clocks.required => Err(error),
                without_clocks => fork_in_order(plan, job).map(|ancestor| (ancestor, without_clocks)),
            }
        }
        None => fork_beside(plan, job).map(|pid| (Some(pid), None)),
        Some(ahead) => fork_ahead(plan, job, clocks, ahead).map(|(pid, error)| (Some(pid), error)),
    };
    let unblocked = before.restore();
    let (ancestor, without_clocks) = forked?;
    unblocked.map_err(|source| {
        drop(ancestor.map(Expendable).or_else(|| first_child(job)));
        Error::io("unblock signals after", "the fork", source)
    })?;
    Ok((ancestor, without_clocks))
}

/// Forks without a thread, which would take an id; gives the ancestor's id, if there is one.
fn fork_in_order(plan: &mut Plan, job: &JobImage) -> Result<Option<i32>> {
    match plan.has_the_first_alone() {
        _ if first_process::is_in(job) => become_first(plan, job).map(|()| None),
        true => fork_first(plan, job).map(|()| None),
        false => fork_before(plan, job).map(Some),
    }
}

/// This process becomes the first of the job, and does not return; a child of it does, as the restarter.
fn become_first(plan: &mut Plan, job: &JobImage) -> Result<()> {
    let refused = |errno| match errno {
        Errno::ENOTUNIQ => first_process::no_id_for_restarter(),
        errno => Report::turn_refused(FIRST_PROCESS, errno).error(job),
    };
    if !plan.has_the_first_alone() {
        let why = "other processes of the job would have to be children of nobody";
        return Err(Error::unsupported(
            "a program that was pid 1",
            why,
            "restart it with `ckpt run` as pid 1 from its beginning",
        ));
    }
    loop {
        plan.leave_room_for_tracer().map_err(refused)?;
        let is_wanted = |pid: i32| job.ids().any(|id| id == pid);
        // No signal at its end.
        match child::clone_with_any_id(0, 0) {
            Ok(0) if is_wanted(child::own_pid()) => child::leave(child::HAS_OTHER_ID),
            Ok(0) => {
                if let Some(turns) = plan.turns() {
                    turns.made(child::own_pid(), 0);
                }
                return Ok(());
            }
            Ok(wanted) if is_wanted(wanted) => {
                reap(wanted);
                if plan.turns().is_some() {
                    return Err(refused(Errno::ENOTUNIQ));
                }
            }
            Ok(restarter) => {
                plan.set_restarter(restarter);
                child::run_first(plan)
            }
            Err(errno) => return Err(refused(errno)),
        }
    }
}

/// Makes the first process at its turn.
fn fork_first(plan: &mut Plan, job: &JobImage) -> Result<()> {
    let pid = job.root().pid;
    let refused = |errno| Report::turn_refused(pid, errno).error(job);
    loop {
        let Some(turns) = plan.turns() else { return Err(refused(Errno::EINVAL)) };
        turns.reach(pid).map_err(refused)?;
        match child::clone_with_any_id(libc::SIGCHLD, 0) {
            Ok(0) if child::own_pid() == pid => child::run_first(plan),
            Ok(0) => child::leave(child::HAS_OTHER_ID),
            Ok(made) if turns.made(made, pid) => return Ok(()),
            Ok(made) => reap(made),
            Err(errno) => return Err(refused(errno)),
        }
    }
}

/// Makes an ancestor that has an id before those of the job.
fn fork_before(plan: &mut Plan, job: &JobImage) -> Result<i32> {
    let Some(turns) = plan.turns() else { return Err(may_not_choose(job.root().pid)) };
    let refused = |errno| Report::turn_refused(turns.first(), errno).error(job);
    let before = turns.free_before().ok_or(Errno::ENOTUNIQ).map_err(refused)?;
    turns.reach(before).map_err(refused)?;
    match child::clone_with_any_id(libc::SIGCHLD, 0) {
        Ok(0) => child::run(plan),
        Ok(pid) => {
            turns.made(pid, 0);
            match job.ids().any(|id| id == pid) {
                true => {
                    drop(Expendable(pid));
                    Err(refused(Errno::ENOTUNIQ))
                }
                false => Ok(pid),
            }
        }
        Err(errno) => Err(refused(errno)),
    }
}

/// Forks from a thread whose children have their clocks `ahead`. That ends with the thread: what this process starts
/// later has the clocks of this process.
fn fork_ahead(
    plan: &mut Plan,
    job: &JobImage,
    clocks: &ClockPlan,
    ahead: ClockOffsets,
) -> Result<(i32, Option<Error>)> {
    let fork = || {
        let without_clocks = match namespace::be_ahead_in_children_of_this_thread(ahead) {
            Err(error) if clocks.required => return Err(error),
            outcome => outcome.err(),
        };
        Ok((fork_beside(plan, job)?, without_clocks))
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, fork);
        let thread = thread.map_err(|source| Error::io("start", "a thread that makes the program", source))?;
        // A panic aborts the process (see Cargo.toml), so a thread that ended has a result.
        thread.join().unwrap_or_else(|_| std::process::abort())
    })
}

/// Forks, and does so again if the ancestor has an id that the job needs: the kernel goes on behind it.
fn fork_beside(plan: &mut Plan, job: &JobImage) -> Result<i32> {
    loop {
        // The first process, which it makes as our child, sends us what it would.
        match child::clone_with_any_id(libc::SIGCHLD, 0) {
            Ok(0) => child::run(plan),
            Ok(pid) if job.ids().any(|id| id == pid) => drop(Expendable(pid)),
            Ok(pid) => return Ok(pid),
            Err(errno) => return Err(Error::io("make", "the ancestor of the rebuilt processes", errno)),
        }
    }
}

/// Gives the word and listens until all children are ready.
fn start(channel: &OwnedFd, job: &JobImage, queues: &Queues) -> Result<Handed> {
    let failed = |source: Errno| Error::io("talk to", "the rebuilt process", source);
    fcntl(channel, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(failed)?;
    send(channel.as_raw_fd(), b"g", MsgFlags::MSG_NOSIGNAL).map_err(failed)?;
    let deadline = Instant::now() + PREPARATION_TIMEOUT;
    listen(channel, deadline, job, job.processes.len())?;
    let handed = Handed::make(job, queues)?;
    if !handed.is_empty() {
        // One after the other: they have the channel in common.
        for _ in &job.processes {
            handed.send(channel)?;
            listen(channel, deadline, job, 1)?;
        }
    }
    Ok(handed)
}

/// Waits until so many children are ready for what comes next.
fn listen(channel: &OwnedFd, deadline: Instant, job: &JobImage, mut unready: usize) -> Result<()> {
    while unready > 0 {
        let report = receive(channel, deadline, job.root().pid)?;
        match report.verdict {
            Verdict::Done | Verdict::Ready => unready -= 1,
            Verdict::Failed => return Err(report.error(job)),
            Verdict::Warning => log::warn!("{}", report.error(job)),
        }
    }
    Ok(())
}

fn receive(channel: &OwnedFd, deadline: Instant, pid: i32) -> Result<Report> {
    let failed = |source: io::Error| Error::io("listen to", format!("the rebuilt process {pid}"), source);
    loop {
        let mut bytes = [0; REPORT_BYTES];
        match recv(channel.as_raw_fd(), &mut bytes, MsgFlags::empty()) {
            Ok(REPORT_BYTES) => {
                return Report::from_bytes(bytes).ok_or_else(|| failed(io::ErrorKind::InvalidData.into()));
            }
            Ok(_) => return Err(Error::ProgramGone { pid }),
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(source) => return Err(failed(source.into())),
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let timeout_ms = PREPARATION_TIMEOUT.as_millis() as u64;
            return Err(Error::StopTimeout { tid: pid, timeout_ms, why: "opening its files".into() });
        }
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(channel.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(source) => return Err(failed(source.into())),
        }
    }
}
