//! Calls with a remaining time, which a stop interrupts: what they were before the kernel made `restart_syscall` of them.
//!
//! A thread that is stopped in `nanosleep` goes on by `restart_syscall`, which counts down the rest. Stopped once more, that is
//! all that can be seen of it, and no other process can go on with it: its time is in the kernel. So the agent remembers the
//! call from the first stop.

use std::collections::HashMap;

use crate::ptrace::Registers;

/// The calls that threads were in when they were stopped last.
#[derive(Debug, Default)]
pub struct WaitingCalls(HashMap<i32, Registers>);

impl WaitingCalls {
    /// Remembers what thread `tid` was found in, and gives the registers that issue its call in another process; `now` are those
    /// of the stop, `reissued` those that issue the call again in this one.
    pub fn for_another_process(&mut self, tid: i32, now: &Registers, reissued: Registers) -> Registers {
        if reissued.0.rax as i64 == libc::SYS_restart_syscall {
            let known = self.0.get(&tid).filter(|known| is_same_call(known, &reissued));
            return known.copied().unwrap_or(reissued);
        }
        if now.waits_for_the_rest_of_a_time() {
            self.0.insert(tid, reissued);
        } else {
            self.0.remove(&tid);
        }
        reissued
    }
}

/// Whether two sets of registers are about to issue one call, whatever its number.
fn is_same_call(one: &Registers, other: &Registers) -> bool {
    let place = |registers: &Registers| {
        let r = &registers.0;
        [r.rip, r.rsp, r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9]
    };
    place(one) == place(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ERESTART_RESTARTBLOCK: i64 = -516;

    fn stopped_in(call: i64, argument: u64) -> Registers {
        let mut registers = Registers::from_words([0; Registers::WORDS]);
        (registers.0.orig_rax, registers.0.rax) = (call as u64, ERESTART_RESTARTBLOCK as u64);
        (registers.0.rip, registers.0.rdi) = (0x1002, argument);
        registers
    }

    fn stored(calls: &mut WaitingCalls, tid: i32, now: Registers) -> i64 {
        calls.for_another_process(tid, &now, now.reissuing(true)).0.rax as i64
    }

    #[test]
    fn a_call_that_is_stopped_again_and_again_keeps_its_number() {
        let mut calls = WaitingCalls::default();
        let again = stopped_in(libc::SYS_restart_syscall, 5);
        assert_eq!(stored(&mut calls, 1, stopped_in(libc::SYS_nanosleep, 5)), libc::SYS_nanosleep);
        assert_eq!(stored(&mut calls, 1, again), libc::SYS_nanosleep);
        // Stopped on its way back into the call.
        let mut before = again.reissuing(true);
        before.0.orig_rax = libc::SYS_nanosleep as u64;
        assert_eq!(stored(&mut calls, 1, before), libc::SYS_nanosleep);
        assert_eq!(stored(&mut calls, 1, again), libc::SYS_nanosleep);
    }

    #[test]
    fn a_call_that_nobody_has_seen_before_stays_what_it_is() {
        let mut calls = WaitingCalls::default();
        let restarted = |argument| stopped_in(libc::SYS_restart_syscall, argument);
        assert_eq!(stored(&mut calls, 1, restarted(5)), libc::SYS_restart_syscall);
        stored(&mut calls, 1, stopped_in(libc::SYS_poll, 5));
        assert_eq!(stored(&mut calls, 2, restarted(5)), libc::SYS_restart_syscall, "another thread");
        assert_eq!(stored(&mut calls, 1, restarted(6)), libc::SYS_restart_syscall, "another call");
        let mut running = stopped_in(0, 5);
        running.0.orig_rax = u64::MAX;
        stored(&mut calls, 1, running);
        assert_eq!(stored(&mut calls, 1, restarted(5)), libc::SYS_restart_syscall, "the call had ended");
    }
}
