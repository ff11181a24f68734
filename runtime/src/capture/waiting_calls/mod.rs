//! Calls that wait for a relative time, which a stop interrupts: they go on with what is left.
//!
//! Two things happen to such a call. With `nanosleep`, `poll` and `futex` the kernel goes on by `restart_syscall`, which counts
//! down the rest; but only in this process, for the rest is in the kernel. `epoll_wait` and its kin it ends with EINTR. So the
//! agent works out what is left, from when the call began ([`asleep`]) or from what it remembers of earlier stops, and writes it
//! onto the thread's stack beside the call's own arguments ([`ResumedCall`]). A rebuilt process, and a call that the kernel has
//! ended, go on in code of ours, which issues the call for that time and comes back with what it has returned and with the
//! arguments that the program knows.
//!
//! A thread that is found in that code is in the call that was resumed there. Nothing else tells one call of an event loop from
//! the next: from outside they look the same.

mod asleep;
mod timed;

use std::collections::HashMap;

use ckpt_wire::{Control, ResumedCall};
use zerocopy::{FromZeros, IntoBytes};

use crate::error::Result;
use crate::proc::task;
use crate::ptrace::{RED_ZONE_BYTES, Registers, SYSCALL_BYTES, read_memory, write_memory};
use asleep::{Asleep, monotonic_ns};
use timed::Timeout;

/// So long after its time was up, ns, a thread has come back from its call.
const OVERDUE_NS: u64 = 1_000_000_000;

/// The calls that threads were in when they were stopped last.
#[derive(Debug, Default)]
pub struct WaitingCalls {
    known: HashMap<i32, Known>,
    asleep: Asleep,
}

/// A call that a thread was stopped in.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// What issues it.
    call: Registers,
    /// When its time is up, `CLOCK_MONOTONIC` in ns, if that is known.
    due_ns: Option<u64>,
}

impl WaitingCalls {
    /// Finds out since when the threads of process `pid` have been waiting. To be called right before they are stopped.
    pub fn look(&mut self, pid: i32) {
        let threads = task::threads(pid).unwrap_or_default();
        self.known.retain(|tid, _| threads.binary_search(tid).is_ok());
        self.asleep = Asleep::of(pid, &threads);
    }

    /// The registers by which thread `tid` of process `pid` issues its call once more, in this process or another, for the time
    /// that is left. `now` are those of the stop, `reissued` those that issue it as it was.
    pub fn resuming(
        &mut self,
        pid: i32,
        tid: i32,
        control: &Control,
        now: &Registers,
        reissued: Registers,
    ) -> Registers {
        let goes_on = reissued.0.rax as i64 == libc::SYS_restart_syscall;
        let is_ours = control.resume_start != 0 && reissued.0.rip == control.resume_start;
        let known = self.known.remove(&tid).filter(|known| is_same_call(&known.call, &reissued));
        if reissued.0.rip == now.0.rip && !goes_on && !is_ours {
            return reissued;
        }
        let before = if is_ours { resumed_before(pid, &reissued) } else { None };
        let mut call = reissued;
        if goes_on {
            let number = before.map(|before| before.number).or(known.map(|known| known.call.0.rax));
            let Some(number) = number else { return reissued };
            call.0.rax = number;
        }
        // In our code it is certainly the call that we know, elsewhere another one that looks the same if it goes on for too long.
        let is_known = |due_ns: &u64| is_ours || (goes_on && monotonic_ns() < due_ns.saturating_add(OVERDUE_NS));
        let due_ns = known.and_then(|known| known.due_ns).filter(is_known);
        let due = Timeout::of(call.0.rax as i64, timed::arguments(&call))
            .and_then(|timeout| Some((timeout, due_ns.or_else(|| self.due_ns(pid, tid, &call, timeout))?)));
        let resuming = due.and_then(|(timeout, due_ns)| {
            let left_ns = due_ns.saturating_sub(monotonic_ns());
            let resumed = resume(pid, control, &call, before, timeout, left_ns);
            resumed.inspect_err(|error| log::debug!("thread {tid} waits once more for its whole time: {error}")).ok()?
        });
        // Next time it is found with these registers: the kernel goes on with the call as it is, or we issue it.
        let found = if goes_on || now.waits_for_the_rest_of_a_time() { call } else { resuming.unwrap_or(call) };
        self.known.insert(tid, Known { call: found, due_ns: due.map(|(_, due_ns)| due_ns) });
        resuming.unwrap_or(call)
    }

    /// When the time of `call` is up that no earlier stop has interrupted, if it can be known.
    fn due_ns(&self, pid: i32, tid: i32, call: &Registers, timeout: Timeout) -> Option<u64> {
        let arguments = timed::arguments(call);
        let total_ns = timeout.total_ns(arguments, |address| {
            let mut words = [0_u64; 2];
            read_memory(pid, address, words.as_mut_bytes()).ok().map(|()| words)
        });
        let now_ns = monotonic_ns();
        let since_ns = self.asleep.since_ns(pid, tid, (call.0.rax as i64, arguments)).unwrap_or(now_ns);
        since_ns.min(now_ns).checked_add(total_ns?)
    }
}

/// Whether two sets of registers are about to issue one call, whatever its number.
fn is_same_call(one: &Registers, other: &Registers) -> bool {
    let place = |registers: &Registers| (registers.0.rip, registers.0.rsp, timed::arguments(registers));
    place(one) == place(other)
}

/// The call that `registers`, in the code that resumes calls, resume.
fn resumed_before(pid: i32, registers: &Registers) -> Option<ResumedCall> {
    let mut resumed = ResumedCall::new_zeroed();
    read_memory(pid, registers.0.rsp, resumed.as_mut_bytes()).ok()?;
    Some(resumed)
}

/// Writes down on the stack of a thread of process `pid` that its `call` has `left_ns` left, and gives the registers that resume
/// it. `before` is what lies there already. None where the program has no such code.
fn resume(
    pid: i32,
    control: &Control,
    call: &Registers,
    before: Option<ResumedCall>,
    timeout: Timeout,
    left_ns: u64,
) -> Result<Option<Registers>> {
    if control.resume_start == 0 {
        return Ok(None);
    }
    let below_the_caller = call.0.rsp.wrapping_sub(RED_ZONE_BYTES + size_of::<ResumedCall>() as u64);
    let top = if before.is_some() { call.0.rsp } else { below_the_caller };
    let resumed = ResumedCall { left: timed::timespec(left_ns), ..before.unwrap_or_else(|| as_made(call)) };
    write_memory(pid, top, resumed.as_bytes())?;
    let mut registers = *call;
    (registers.0.rip, registers.0.rsp) = (control.resume_start, top);
    timeout.set(&mut registers, left_ns, top);
    Ok(Some(registers))
}

/// What a call that a thread is about to make itself comes back with.
fn as_made(call: &Registers) -> ResumedCall {
    let r = &call.0;
    ResumedCall {
        left: [0; 2],
        number: r.rax,
        rdi: r.rdi,
        rsi: r.rsi,
        rdx: r.rdx,
        r10: r.r10,
        r8: r.r8,
        rip: r.rip + SYSCALL_BYTES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ERESTART_RESTARTBLOCK: i64 = -516;
    const EINTR: i64 = -(libc::EINTR as i64);
    const RESUME: u64 = 0x9000;

    fn stopped_in(call: i64, result: i64, argument: u64) -> Registers {
        let mut registers = Registers::from_words([0; Registers::WORDS]);
        (registers.0.orig_rax, registers.0.rax) = (call as u64, result as u64);
        (registers.0.rip, registers.0.rdi) = (0x1002, argument);
        registers
    }

    fn interrupted_in(call: i64, argument: u64) -> Registers {
        stopped_in(call, ERESTART_RESTARTBLOCK, argument)
    }

    /// This process plays the program; `resumes` says whether its libckpt.so can resume calls.
    fn resuming(calls: &mut WaitingCalls, tid: i32, now: &Registers, resumes: bool) -> Registers {
        let mut control = Control::new_zeroed();
        if resumes {
            control.resume_start = RESUME;
        }
        calls.resuming(std::process::id() as i32, tid, &control, now, now.reissuing(true))
    }

    fn number(calls: &mut WaitingCalls, tid: i32, now: Registers) -> i64 {
        resuming(calls, tid, &now, false).0.rax as i64
    }

    #[test]
    fn a_call_that_is_stopped_again_and_again_keeps_its_number() {
        let mut calls = WaitingCalls::default();
        let again = interrupted_in(libc::SYS_restart_syscall, 5);
        assert_eq!(number(&mut calls, 1, interrupted_in(libc::SYS_nanosleep, 5)), libc::SYS_nanosleep);
        assert_eq!(number(&mut calls, 1, again), libc::SYS_nanosleep);
        // Stopped on its way back into the call.
        assert_eq!(number(&mut calls, 1, again.reissuing(true)), libc::SYS_nanosleep);
        assert_eq!(number(&mut calls, 1, again), libc::SYS_nanosleep);
    }

    #[test]
    fn a_call_that_nobody_has_seen_before_stays_what_it_is() {
        let mut calls = WaitingCalls::default();
        let restarted = |argument| interrupted_in(libc::SYS_restart_syscall, argument);
        assert_eq!(number(&mut calls, 1, restarted(5)), libc::SYS_restart_syscall);
        number(&mut calls, 1, interrupted_in(libc::SYS_poll, 5));
        assert_eq!(number(&mut calls, 2, restarted(5)), libc::SYS_restart_syscall, "another thread");
        assert_eq!(number(&mut calls, 1, restarted(6)), libc::SYS_restart_syscall, "another call");
        let mut running = interrupted_in(0, 5);
        running.0.orig_rax = u64::MAX;
        number(&mut calls, 1, running);
        assert_eq!(number(&mut calls, 1, restarted(5)), libc::SYS_restart_syscall, "the call had ended");
    }

    /// Memory that plays a stack; the second is the address behind it.
    fn stack() -> (Vec<u8>, u64) {
        let stack = vec![0; 4096];
        let end = stack.as_ptr() as u64 + 4096;
        (stack, end)
    }

    #[test]
    fn a_broken_call_is_resumed_for_less_and_less_and_comes_back_with_its_own_arguments() {
        let (_stack, end) = stack();
        let mut calls = WaitingCalls::default();
        let mut now = stopped_in(libc::SYS_epoll_wait, EINTR, 5);
        (now.0.rsp, now.0.r10) = (end, 60_000);
        let first = resuming(&mut calls, 1, &now, true);
        assert_eq!((first.0.rax as i64, first.0.rip, first.0.rdi), (libc::SYS_epoll_wait, RESUME, 5));
        assert!((59_000..=60_000).contains(&first.0.r10), "nothing is known of when it began: {}", first.0.r10);
        assert_eq!(first.0.rsp, end - 128 - 72);
        let resumed = resumed_before(std::process::id() as i32, &first).unwrap();
        assert_eq!((resumed.rip, resumed.rdi, resumed.r10), (0x1002, 5, 60_000));
        calls.known.get_mut(&1).unwrap().due_ns = Some(monotonic_ns() + 5_000_000_000);
        let mut again = first;
        (again.0.orig_rax, again.0.rax) = (first.0.rax, EINTR as u64);
        again.0.rip += 2;
        let second = resuming(&mut calls, 1, &again, true);
        assert_eq!((second.0.rip, second.0.rsp), (RESUME, first.0.rsp));
        assert!((4_000..=5_000).contains(&second.0.r10), "{}", second.0.r10);
        let resumed = resumed_before(std::process::id() as i32, &second).unwrap();
        assert_eq!((resumed.rip, resumed.rdi, resumed.r10), (0x1002, 5, 60_000), "as the program has made it");
        // Another agent knows no more than what was written down.
        let mut known_by_none = second;
        (known_by_none.0.orig_rax, known_by_none.0.rax) = (second.0.rax, EINTR as u64);
        known_by_none.0.rip += 2;
        let third = resuming(&mut WaitingCalls::default(), 1, &known_by_none, true);
        assert!((second.0.r10 - 1000..=second.0.r10).contains(&third.0.r10), "{} {}", third.0.r10, second.0.r10);
        assert_eq!(third.0.rsp, first.0.rsp);
    }

    #[test]
    fn a_sleep_goes_on_elsewhere_for_what_is_left_and_here_by_itself() {
        let (_stack, end) = stack();
        let whole = [60_u64, 0];
        let mut calls = WaitingCalls::default();
        let mut now = interrupted_in(libc::SYS_nanosleep, whole.as_ptr() as u64);
        now.0.rsp = end;
        let first = resuming(&mut calls, 1, &now, true);
        assert_eq!((first.0.rip, first.0.rdi), (RESUME, first.0.rsp), "it is told of its own copy");
        calls.known.get_mut(&1).unwrap().due_ns = Some(monotonic_ns() + 5_000_000_000);
        let again = Registers(libc::user_regs_struct { orig_rax: libc::SYS_restart_syscall as u64, ..now.0 });
        let second = resuming(&mut calls, 1, &again, true);
        let resumed = resumed_before(std::process::id() as i32, &second).unwrap();
        assert_eq!((second.0.rax as i64, resumed.left[0]), (libc::SYS_nanosleep, 4));
        assert_eq!((resumed.rip, resumed.rdi), (0x1002, whole.as_ptr() as u64));
        calls.known.get_mut(&1).unwrap().due_ns = Some(monotonic_ns() - 2 * OVERDUE_NS);
        let another = resuming(&mut calls, 1, &again, true);
        let resumed = resumed_before(std::process::id() as i32, &another).unwrap();
        assert!(resumed.left[0] >= 59, "it cannot be the call whose time was up long ago");
    }

    #[test]
    fn where_nothing_can_be_written_a_call_is_issued_as_it_was() {
        let mut calls = WaitingCalls::default();
        let mut now = stopped_in(libc::SYS_epoll_wait, EINTR, 5);
        (now.0.rsp, now.0.r10) = (4096, 60_000);
        let plain = resuming(&mut calls, 1, &now, true);
        assert_eq!((plain.0.rip, plain.0.r10), (0x1000, 60_000));
    }
}
