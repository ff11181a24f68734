//! What belongs to a thread.

use serde::{Deserialize, Serialize};

/// One thread at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ThreadImage {
    /// Its id in the program's pid namespace.
    pub tid: i32,
    /// Its name (`comm`), at most 15 bytes.
    #[serde(with = "serde_bytes")]
    pub name: Vec<u8>,
    /// The 27 words of `user_regs_struct`, ready to be loaded: a call that the stop interrupted has been
    /// turned into "issue it again".
    pub registers: Vec<u64>,
    /// The system call it was waiting in; for people.
    pub waiting_call: Option<i64>,
    /// Extended state in the XSAVE format, as `PTRACE_GETREGSET` gives it.
    #[serde(with = "serde_bytes")]
    pub extended_state: Vec<u8>,
    /// Blocked signals; bit 0 is signal 1.
    pub signal_mask: u64,
    /// Signals queued for this thread, oldest first: raw `siginfo_t`.
    pub queued_signals: Vec<serde_bytes::ByteBuf>,
    /// The alternate signal stack.
    pub alternate_stack: AlternateStack,
    /// Address cleared at the thread's end (`set_tid_address`).
    pub clear_child_tid: u64,
    /// Head of the robust-futex list.
    pub robust_list: RobustList,
    /// Restartable-sequence registration.
    pub rseq: Option<Rseq>,
    /// How it is scheduled.
    pub scheduling: Scheduling,
    /// Which of its process's filters judge its calls ([`super::ProcessImage::filters`]), in the order in which they were added.
    #[serde(default)]
    pub filters: Vec<u32>,
}

impl ThreadImage {
    /// Address of the instruction that it executes next.
    pub fn instruction_pointer(&self) -> u64 {
        const RIP: usize = 16;
        self.registers.get(RIP).copied().unwrap_or(0)
    }
}

/// `stack_t`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlternateStack {
    /// Lowest address.
    pub address: u64,
    /// `SS_DISABLE`, `SS_AUTODISARM`; `SS_ONSTACK` is never stored.
    pub flags: i32,
    /// Bytes.
    pub bytes: u64,
}

/// `get_robust_list(2)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RobustList {
    /// Address of the head; 0 for none.
    pub head: u64,
    /// Bytes of the head.
    pub bytes: u64,
}

/// `rseq(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rseq {
    /// Address of the `struct rseq`.
    pub address: u64,
    /// Its registered size, bytes.
    pub bytes: u32,
    /// Signature in front of abort handlers.
    pub signature: u32,
}

/// Scheduling of a thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scheduling {
    /// `SCHED_*`.
    pub policy: u32,
    /// Nice value.
    pub nice: i32,
    /// Real-time priority.
    pub priority: u32,
    /// Flags of `sched_getattr` (reset on fork ...).
    pub flags: u64,
    /// Allowed CPUs as a bit mask, 8 CPUs a byte, lowest first.
    #[serde(with = "serde_bytes")]
    pub affinity: Vec<u8>,
    /// Timer slack, ns; 0 for real-time threads, and where it is not known.
    pub timer_slack_ns: u64,
    /// I/O priority (`ioprio_get`): class, and within it; 0 for the one that follows from the nice value.
    #[serde(default)]
    pub io_priority: u16,
}
