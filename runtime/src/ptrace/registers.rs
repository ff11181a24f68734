//! The general registers of a thread, and what an interrupted system call left in them.
//!
//! A thread that is stopped while it waits in the kernel shows a private code of the kernel in rax
//! (`ERESTARTSYS` and its kin, -512 to -516) and the call's number in orig_rax. The kernel turns these into "issue the call
//! again" when the very same thread goes on; a thread that is rebuilt elsewhere needs it done by hand.

use ckpt_wire::StubFrame;

const ERESTARTSYS: i64 = -512;
const ERESTARTNOINTR: i64 = -513;
const ERESTARTNOHAND: i64 = -514;
const ERESTART_RESTARTBLOCK: i64 = -516;
const EINTR: i64 = -(libc::EINTR as i64);

/// Bytes below rsp that belong to the running function (System V ABI).
pub const RED_ZONE_BYTES: u64 = 128;
/// Bytes of the `syscall` instruction.
pub const SYSCALL_BYTES: u64 = 2;

/// `io_pgetevents(2)`, which the libc crate does not name on this architecture.
pub const SYS_IO_PGETEVENTS: i64 = 333;

/// Calls that return EINTR when a tracer stops them although no signal came (measured; all others go on by
/// themselves or leave a restart code). Those that receive, send, accept and connect do so only on sockets with a time-out
/// (SO_RCVTIMEO, SO_SNDTIMEO).
const CALLS_BROKEN_BY_A_STOP: [i64; 22] = [
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_io_getevents,
    SYS_IO_PGETEVENTS,
    libc::SYS_io_uring_enter,
];

/// `user_regs_struct` of x86-64: 27 words.
#[derive(Clone, Copy, Debug)]
pub struct Registers(pub libc::user_regs_struct);

impl Registers {
    /// Words in the register set `NT_PRSTATUS`.
    pub const WORDS: usize = 27;

    /// The words in the kernel's order.
    pub fn to_words(self) -> [u64; Self::WORDS] {
        // SAFETY: user_regs_struct is 27 u64 in repr(C), without padding; every bit pattern is valid for both.
        unsafe { std::mem::transmute(self.0) }
    }

    /// The opposite of [`Registers::to_words`].
    pub fn from_words(words: [u64; Self::WORDS]) -> Registers {
        // SAFETY: as in to_words.
        Registers(unsafe { std::mem::transmute::<[u64; Self::WORDS], libc::user_regs_struct>(words) })
    }

    /// The system call that the thread was waiting in, if any.
    pub fn waiting_call(&self) -> Option<i64> {
        let number = self.0.orig_rax as i64;
        (number >= 0).then_some(number)
    }

    /// Whether the kernel would go on with the call by a restart code.
    fn holds_restart_code(&self) -> bool {
        matches!(self.0.rax as i64, ERESTARTSYS | ERESTARTNOINTR | ERESTARTNOHAND | ERESTART_RESTARTBLOCK)
    }

    /// Whether the thread was stopped in a call that the kernel goes on with by `restart_syscall`.
    pub fn waits_for_the_rest_of_a_time(&self) -> bool {
        self.waiting_call().is_some() && self.0.rax as i64 == ERESTART_RESTARTBLOCK
    }

    /// Whether the call failed with EINTR because of our stop, which the program must not see.
    pub fn broken_by_stop(&self) -> bool {
        self.waiting_call().is_some_and(|call| self.0.rax as i64 == EINTR && CALLS_BROKEN_BY_A_STOP.contains(&call))
    }

    /// What the stub loads to go on with these, in user space, under this signal mask.
    pub fn frame(&self, sigmask: u64) -> StubFrame {
        let r = &self.0;
        StubFrame {
            r15: r.r15,
            r14: r.r14,
            r13: r.r13,
            r12: r.r12,
            rbp: r.rbp,
            rbx: r.rbx,
            r11: r.r11,
            r10: r.r10,
            r9: r.r9,
            r8: r.r8,
            rax: r.rax,
            rcx: r.rcx,
            rdx: r.rdx,
            rsi: r.rsi,
            rdi: r.rdi,
            rip: r.rip,
            rflags: r.eflags,
            rsp: r.rsp,
            sigmask,
        }
    }

    /// These registers, set to issue the waiting call again from user space.
    ///
    /// `repair_eintr` says whether an EINTR is known to come from our stop (no signal is about to be delivered).
    pub fn reissuing(mut self, repair_eintr: bool) -> Registers {
        if self.waiting_call().is_some() && (self.holds_restart_code() || (repair_eintr && self.broken_by_stop())) {
            self.0.rax = self.0.orig_rax;
            self.0.rip -= SYSCALL_BYTES;
        }
        self.0.orig_rax = u64::MAX;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(call: i64, result: i64) -> Registers {
        let mut words = [0; Registers::WORDS];
        words[5] = 7; // rbx-side words are carried along untouched
        let mut registers = Registers::from_words(words);
        registers.0.orig_rax = call as u64;
        registers.0.rax = result as u64;
        registers.0.rip = 0x1002;
        registers
    }

    #[test]
    fn a_restart_code_becomes_the_call_again() {
        let registers = waiting(libc::SYS_nanosleep, ERESTART_RESTARTBLOCK).reissuing(true);
        assert_eq!((registers.0.rax as i64, registers.0.rip), (libc::SYS_nanosleep, 0x1000));
        assert_eq!(registers.0.orig_rax, u64::MAX);
    }

    #[test]
    fn eintr_from_our_stop_is_repaired_only_when_no_signal_is_due() {
        let stopped = waiting(libc::SYS_epoll_wait, EINTR);
        assert_eq!(stopped.reissuing(true).0.rax as i64, libc::SYS_epoll_wait);
        assert_eq!(stopped.reissuing(false).0.rax as i64, EINTR);
        assert_eq!(waiting(libc::SYS_read, EINTR).reissuing(true).0.rax as i64, libc::SYS_read);
        // What it has done is done, and the number may be another file's by now.
        assert_eq!(waiting(libc::SYS_close, EINTR).reissuing(true).0.rax as i64, EINTR);
    }

    #[test]
    fn a_thread_outside_the_kernel_keeps_its_registers() {
        let registers = waiting(-1, ERESTARTSYS).reissuing(true);
        assert_eq!((registers.0.rax as i64, registers.0.rip), (ERESTARTSYS, 0x1002));
    }

    #[test]
    fn words_and_registers_convert_both_ways() {
        let words: [u64; Registers::WORDS] = std::array::from_fn(|word| word as u64);
        assert_eq!(Registers::from_words(words).to_words(), words);
    }
}
