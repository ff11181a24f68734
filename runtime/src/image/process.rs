//! What belongs to a process as a whole.

use serde::{Deserialize, Serialize};

use super::{
    Allocation, Clocks, Descriptor, DevicesImage, DirectoryRights, Family, FileLock, Filter, MappingDefaults,
    PosixTimer, Region, SpecialMapping, StoredDifference, TerminalImage, ThreadImage,
};

/// One process at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProcessImage {
    /// Its pid in its own pid namespace.
    pub pid: i32,
    /// Path of the executable, without " (deleted)".
    #[serde(with = "serde_bytes")]
    pub executable: Vec<u8>,
    /// The command line, arguments separated by zeros; for people.
    #[serde(with = "serde_bytes")]
    pub command_line: Vec<u8>,
    /// Working directory.
    #[serde(with = "serde_bytes")]
    pub working_directory: Vec<u8>,
    /// Set if it had been removed: that path leads nowhere.
    #[serde(default)]
    pub working_directory_removed: Option<DirectoryRights>,
    /// Its root directory, as a path from that of whoever restarts it; empty if it is the same.
    #[serde(default, with = "serde_bytes")]
    pub root_directory: Vec<u8>,
    /// File-creation mask.
    pub umask: u32,
    /// `personality(2)`.
    pub personality: u32,
    /// `/proc/PID/oom_score_adj`.
    pub oom_score_adj: i32,
    /// User and group ids: real, effective, saved, file system.
    pub uids: [u32; 4],
    /// Group ids in the same order.
    pub gids: [u32; 4],
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// `no_new_privs`, unless the job began under it: see [`super::Host::no_new_privs`].
    pub no_new_privs: bool,
    /// Seccomp filters that threads of it have added, none twice; see [`ThreadImage::filters`]. Those that the job began under are not
    /// among them: see [`super::Host::filters`].
    #[serde(default)]
    pub filters: Vec<Filter>,
    /// Capabilities; the same for all threads.
    pub capabilities: Capabilities,
    /// Whether orphans below it become its children (`PR_SET_CHILD_SUBREAPER`).
    #[serde(default)]
    pub adopts_orphans: bool,
    /// Signal sent when the parent ends (`PR_SET_PDEATHSIG`); 0 for none.
    pub parent_death_signal: i32,
    /// Whether it may dump core and be traced by its own user (`PR_SET_DUMPABLE`).
    pub dumpable: bool,
    /// State components that need a permission and that it has one for (`ARCH_GET_XCOMP_PERM`): bit 18 is AMX tile data.
    #[serde(default)]
    pub permitted_components: u64,
    /// Commands of `membarrier(2)` that it has registered for (`MEMBARRIER_CMD_REGISTER_*`).
    #[serde(default)]
    pub memory_barriers: u64,
    /// What a core dump of it has (`/proc/PID/coredump_filter`). None: an older ckpt has not asked.
    #[serde(default)]
    pub core_dump_filter: Option<u32>,
    /// Whether its main thread is told of broken memory before it uses that (`PR_MCE_KILL_GET`).
    #[serde(default)]
    pub broken_memory: Option<u64>,
    /// Its place among others.
    pub family: Family,
    /// Resource limits.
    pub limits: Vec<Limit>,
    /// Actions of signals 1 to 64 that are not the default.
    pub signal_actions: Vec<SignalAction>,
    /// Signals queued for the whole process, oldest first: raw `siginfo_t`.
    pub queued_signals: Vec<serde_bytes::ByteBuf>,
    /// `ITIMER_REAL`, `ITIMER_VIRTUAL`, `ITIMER_PROF`, where running.
    pub interval_timers: Vec<IntervalTimer>,
    /// Timers of `timer_create`, by id.
    #[serde(default)]
    pub posix_timers: Vec<PosixTimer>,
    /// What its clocks showed.
    #[serde(default)]
    pub clocks: Option<Clocks>,
    /// The job-control stop that was in force (the program had been sent SIGSTOP or the like).
    pub job_stopped: bool,
    /// The signal of that stop. None: it is not stopped, or an older ckpt has not asked.
    #[serde(default)]
    pub stopped_by: Option<i32>,
    /// Addresses that the kernel keeps about the address space.
    pub layout: Layout,
    /// The auxiliary vector, as words.
    pub auxv: Vec<u64>,
    /// [vdso], [vvar] and the like: not captured, moved into place.
    pub special_mappings: Vec<SpecialMapping>,
    /// What it has decided for mappings that it will make. None: an older ckpt has not asked.
    #[serde(default)]
    pub mapping_defaults: Option<MappingDefaults>,
    /// All other mappings, ascending.
    pub regions: Vec<Region>,
    /// Differences that the content of some regions is in, oldest first: the last one is of this checkpoint, and all that it
    /// can need is here.
    #[serde(default)]
    pub differences: Vec<StoredDifference>,
    /// Large allocations of the heap, and those of the CUDA driver, by address.
    #[serde(default)]
    pub allocations: Vec<Allocation>,
    /// The descriptor table.
    pub descriptors: Vec<Descriptor>,
    /// Its terminal, if it had one.
    #[serde(default)]
    pub terminal: Option<TerminalImage>,
    /// Locks that it holds on files.
    #[serde(default)]
    pub locks: Vec<FileLock>,
    /// Threads; the first is the main thread.
    pub threads: Vec<ThreadImage>,
    /// Its devices, if it had any.
    #[serde(default)]
    pub devices: Option<DevicesImage>,
    /// Random number of the libckpt.so in it, which its first life and all others have.
    pub instance: u64,
    /// Address of libckpt's control block.
    pub control: u64,
}

/// Capability sets as in `/proc/PID/status`; bit n is capability n.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the kernel's own names")]
pub struct Capabilities {
    pub inheritable: u64,
    pub permitted: u64,
    pub effective: u64,
    pub bounding: u64,
    pub ambient: u64,
}

/// A resource limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// `RLIMIT_*`.
    pub resource: u32,
    /// Soft limit.
    pub soft: u64,
    /// Hard limit.
    pub hard: u64,
}

/// The kernel's record of a signal action (`struct kernel_sigaction`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalAction {
    /// 1 to 64.
    pub signal: i32,
    /// Address of the handler, or 1 for SIG_IGN.
    pub handler: u64,
    /// `SA_*`.
    pub flags: u64,
    /// Address of the restorer.
    pub restorer: u64,
    /// Signals blocked during the handler.
    pub mask: u64,
}

/// A running interval timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntervalTimer {
    /// `ITIMER_*`.
    pub which: i32,
    /// Period, microseconds; 0 = once.
    pub interval_us: u64,
    /// Time to the next expiry, microseconds.
    pub value_us: u64,
}

/// `struct prctl_mm_map` without the auxiliary vector and the executable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the kernel's own names")]
pub struct Layout {
    pub start_code: u64,
    pub end_code: u64,
    pub start_data: u64,
    pub end_data: u64,
    pub start_brk: u64,
    pub brk: u64,
    pub start_stack: u64,
    pub arg_start: u64,
    pub arg_end: u64,
    pub env_start: u64,
    pub env_end: u64,
}
