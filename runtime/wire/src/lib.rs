//! What libckpt.so and ckpt agree on: one block of memory inside the program, and what it points to.
//!
//! libckpt.so exports the symbol [`CONTROL_SYMBOL`], a [`Control`]. The agent finds it in the memory of the
//! program, checks [`CONTROL_MAGIC`] and [`CONTROL_VERSION`], and reads from it where the stub is and what the
//! user asked for. An old libckpt.so frozen in a checkpoint may meet a newer agent, so fields are only ever
//! added at the end, `bytes` says how many there are, and `version` changes when one changes its meaning.
//!
//! All addresses are addresses in the program; all text is UTF-8 or raw path bytes ended by the first zero.
//! The block points to what else there is to read: see [`allocations`] and [`device`]. What the user asked for comes from
//! environment variables: see [`settings`].
#![no_std]

pub mod allocations;
mod confinement;
pub mod device;
pub mod settings;
mod stub;

pub use confinement::{CONFINEMENT_BYTES, Confinement};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Name of the exported symbol that holds the [`Control`].
pub const CONTROL_SYMBOL: &str = "ckpt_control";
/// First eight bytes of every control block: "CKPTCTL\0", little-endian.
pub const CONTROL_MAGIC: u64 = u64::from_le_bytes(*b"CKPTCTL\0");
/// Version of the meaning of the fields.
pub const CONTROL_VERSION: u32 = 1;

/// Bytes of a path in the control block, the terminating zero included.
pub const PATH_BYTES: usize = 4096;
/// Bytes of a short text in the control block, the terminating zero included.
pub const TEXT_BYTES: usize = 128;
/// Bytes of the area that the agent may fill with the arguments of injected calls.
pub const SCRATCH_BYTES: usize = 4096;

/// The constructor of libckpt.so has not run to its end.
pub const STATE_LOADING: u32 = 0;
/// The program can be checkpointed.
pub const STATE_READY: u32 = 1;
/// The program can not be checkpointed; [`Control::reason`] says why.
pub const STATE_REFUSED: u32 = 2;

/// Environment variable: the store's directory (default `./ckpt-store`, made absolute by the constructor).
pub const ENV_DIR: &str = "CKPT_DIR";
/// Environment variable: the signal that takes a checkpoint (default `USR1`; `none` installs no handler).
pub const ENV_SIGNAL: &str = "CKPT_SIGNAL";
/// Environment variable: time between automatic checkpoints (`30s`, `10m`, `2h`; a bare number is seconds).
pub const ENV_INTERVAL: &str = "CKPT_INTERVAL";
/// Environment variable: bytes of buffers that the agent may use for a checkpoint (`256M`, `1G`; a bare number is bytes).
pub const ENV_MEMORY: &str = "CKPT_MEMORY";
/// Environment variable: path of the `ckpt` executable (default: beside libckpt.so).
pub const ENV_AGENT: &str = "CKPT_AGENT";
/// Environment variable: the log file (default: `log` in the store's directory).
pub const ENV_LOG: &str = "CKPT_LOG";
/// Environment variable: the job's name (default: the program's file name).
pub const ENV_NAME: &str = "CKPT_NAME";
/// Environment variable: the job's id, 16 hexadecimal digits; set by `ckpt run` for what it starts.
pub const ENV_JOB: &str = "CKPT_JOB";
/// Environment variable: pid of the job's agent, for `PR_SET_PTRACER` and so that nobody starts another one.
pub const ENV_AGENT_PID: &str = "CKPT_AGENT_PID";
/// Environment variable: by what the processes of a job know one another; set by libckpt.so in a job's first process.
pub const ENV_MARK: &str = "CKPT_MARK";
/// Environment variable: what confined the job's first process when it began; set by `ckpt run`, or by libckpt.so in that process.
pub const ENV_CONFINEMENT: &str = "CKPT_CONFINEMENT";
/// Digits of a pid in [`ENV_AGENT_PID`] and [`ENV_MARK`], so that it can be written over.
pub const PID_DIGITS: usize = 10;

/// Environment variable: which copy of a checkpoint the program is; set by a restart that makes a copy.
pub const ENV_COPY: &str = "CKPT_COPY";
/// Most characters of the id of a copy.
pub const COPY_ID_BYTES_MAX: usize = 64;

/// [`Control::reason`] of a copy whose restart named no store for it.
pub const COPY_WITHOUT_STORE: &str = "it is a copy without a store: `ckpt restart --copy` was given no --dir";

/// Whether `text` may name a copy: 1 to [`COPY_ID_BYTES_MAX`] letters, digits, dots, underscores and hyphens.
pub fn is_copy_id(text: &[u8]) -> bool {
    let may_be = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    (1..=COPY_ID_BYTES_MAX).contains(&text.len()) && text.iter().all(may_be)
}

/// Environment variable: what a store that is made for the program names its pages by, `sha1` or `blake3`.
pub const ENV_DIGEST: &str = "CKPT_DIGEST";

/// Environment variable: the key of encrypted stores, a file or `command:` and a command; a store that is made for the program
/// is encrypted then.
pub const ENV_KEY: &str = "CKPT_KEY";

/// Environment variable: how many of the job's checkpoints stay when a new one is sealed (default: all).
pub const ENV_KEEP: &str = "CKPT_KEEP";

/// Environment variable: how memory is stored, `pages` (default), `tree`, `full-dump`, `local-dedup` or `inc-tracking`.
pub const ENV_METHOD: &str = "CKPT_METHOD";
/// Environment variable: bytes of a chunk for `tree` (default 128).
pub const ENV_CHUNK: &str = "CKPT_CHUNK";
/// Environment variable: the smallest mapping that `tree` is used for (`16M` by default; a bare number is bytes).
pub const ENV_TREE_MIN: &str = "CKPT_TREE_MIN";
/// Environment variable: whether every byte is compared with what `tree` would restore, `yes` or `no` (default: memory of the
/// host, and not what is stored of devices and of data alone).
pub const ENV_VERIFY_MATCHES: &str = "CKPT_VERIFY_MATCHES";
/// [`Control::verify_matches`]: chunks with one digest are taken for equal.
pub const VERIFY_NOTHING: u64 = 0;
/// [`Control::verify_matches`]: nothing is taken for equal because of a digest, in no memory.
pub const VERIFY_ALL: u64 = 1;
/// [`Control::verify_matches`] when the user says nothing: memory of the host that [`METHOD_TREE`] stores is compared.
pub const VERIFY_HOST: u64 = 2;

/// Environment variable: the smallest heap allocation that is recorded (`64K` by default, and at least; `none` records none).
pub const ENV_TRACK_MIN: &str = "CKPT_TRACK_MIN";

/// Environment variable: what backs the device memory that a program allocates, `mapped` (default: by libckpt.so) or
/// `native` (by the driver).
pub const ENV_DEVICE_BACKING: &str = "CKPT_DEVICE_BACKING";
/// Environment variable: what the managed memory is that a program allocates, `native` (default: the driver's) or `pinned` (memory of
/// the host).
pub const ENV_MANAGED_BACKING: &str = "CKPT_MANAGED_BACKING";
/// Environment variable: how long a program waits for devices that it cannot have back after a checkpoint, before it ends (`10m` by
/// default; `30s`, `2h`; a bare number is seconds).
pub const ENV_DEVICE_WAIT: &str = "CKPT_DEVICE_WAIT";
/// What [`ENV_DEVICE_WAIT`] is when the user says nothing, in milliseconds.
pub const DEVICE_WAIT_MS_DEFAULT: u64 = 600_000;

/// Environment variable: the largest file whose content is captured when the program may write to it (`1G` by default; a bare
/// number is bytes; `all`; `none`).
pub const ENV_FILES: &str = "CKPT_FILES";
/// Environment variable: directories that are captured with all that is in them, separated by colons.
pub const ENV_WITH_DIR: &str = "CKPT_WITH_DIR";

/// [`Control::files_max_bytes`] when the user names no number.
pub const FILES_MAX_BYTES_DEFAULT: u64 = 1 << 30;
/// [`Control::files_max_bytes`]: no file is captured.
pub const FILES_NONE: u64 = u64::MAX;

/// The least memory for the buffers of a checkpoint that may be asked for, bytes.
pub const MEMORY_BYTES_MIN: u64 = 16 << 20;

/// [`Control::method`]: as pages.
pub const METHOD_PAGES: u64 = 0;
/// [`Control::method`]: large private mappings as differences finer than a page.
pub const METHOD_TREE: u64 = 1;
/// [`Control::method`]: all pages, anew in each checkpoint.
pub const METHOD_FULL_DUMP: u64 = 2;
/// [`Control::method`]: all pages, equal ones of a checkpoint once.
pub const METHOD_LOCAL_DEDUP: u64 = 3;
/// [`Control::method`]: the pages written since the checkpoint before.
pub const METHOD_INC_TRACKING: u64 = 4;
/// Bytes of a chunk when the user names no number.
pub const CHUNK_BYTES_DEFAULT: u64 = 128;
/// Bytes of the smallest mapping for [`METHOD_TREE`] when the user names no number.
pub const TREE_MIN_BYTES_DEFAULT: u64 = 16 << 20;

/// Whether chunks may have so many bytes: 32 to 4096, in steps of 4.
pub const fn is_chunk_length(bytes: u64) -> bool {
    32 <= bytes && bytes <= 4096 && bytes.is_multiple_of(4)
}

/// [`Control::digest`]: the user has no wish.
pub const DIGEST_ANY: u64 = 0;
/// [`Control::digest`]: SHA-1 and XXH3-64.
pub const DIGEST_SHA1: u64 = 1;
/// [`Control::digest`]: BLAKE3.
pub const DIGEST_BLAKE3: u64 = 2;

/// r12 in the stub: any call of the program; behind it the stub puts the registers back.
pub const STUB_ANY_CALL: u64 = 0;
/// r12 in the stub: a clone by the program. The child side leaves by `exit_group(0)`; the parent side reaps that
/// child before it puts the registers back.
pub const STUB_CLONE: u64 = 1;
/// r12 in the stub: any call of a clone of ours. Behind it the stub leaves by `exit_group(0)`, whatever the
/// call returned: a clone must never go on as a second copy of the program.
pub const STUB_EXPENDABLE: u64 = 2;

/// Bytes of the first control blocks. Every one is at least as long; a field that an old one lacks counts as zero.
pub const CONTROL_BYTES_MIN: usize = core::mem::offset_of!(Control, digest);

/// The control block: written by libckpt.so, read by the agent.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Control {
    /// [`CONTROL_MAGIC`].
    pub magic: u64,
    /// [`CONTROL_VERSION`] of the libckpt.so that wrote this.
    pub version: u32,
    /// `size_of::<Control>()` in the libckpt.so that wrote this.
    pub bytes: u32,
    /// [`STATE_LOADING`], [`STATE_READY`] or [`STATE_REFUSED`].
    pub state: u32,
    /// Number of the trigger signal; 0 for none.
    pub signal: i32,
    /// 1 once the program has installed an action of its own for the trigger signal.
    pub signal_taken: u32,
    /// Pid of the agent named to `PR_SET_PTRACER` last; 0 for none.
    pub agent_pid: i32,
    /// First byte of the stub: its `syscall` instruction, where the agent starts an injected call.
    pub stub_start: u64,
    /// First byte behind the stub's code. A thread whose rip lies in between is finishing an abandoned call.
    pub stub_end: u64,
    /// Address of the [`StubFrame`].
    pub frame: u64,
    /// Address of [`SCRATCH_BYTES`] bytes for arguments of injected calls.
    pub scratch: u64,
    /// Address of the handler of the trigger signal.
    pub handler: u64,
    /// Milliseconds between automatic checkpoints; 0 for none.
    pub interval_ms: u64,
    /// Random id of the job.
    pub job: u64,
    /// How many times the program has been restarted; the restorer adds one.
    pub generation: u64,
    /// Why the program can not be checkpointed, when `state` is [`STATE_REFUSED`].
    pub reason: [u8; TEXT_BYTES],
    /// The job's name.
    pub name: [u8; TEXT_BYTES],
    /// Absolute path of the store.
    pub dir: [u8; PATH_BYTES],
    /// Absolute path of the log file; empty for the default.
    pub log: [u8; PATH_BYTES],
    /// Absolute path of the `ckpt` executable.
    pub agent: [u8; PATH_BYTES],
    /// What a new store names its pages by: [`DIGEST_ANY`], [`DIGEST_SHA1`] or [`DIGEST_BLAKE3`].
    pub digest: u64,
    /// How many of the job's checkpoints stay when a new one is sealed; 0 for all.
    pub keep: u64,
    /// Bytes of buffers that the agent may use for a checkpoint; 0 for as many as it likes best.
    pub memory_bytes: u64,
    /// How memory is stored: one of [`METHOD_PAGES`] and its siblings.
    pub method: u64,
    /// Bytes of a chunk for [`METHOD_TREE`]; 0 for the default.
    pub chunk_bytes: u64,
    /// Bytes of the smallest mapping that [`METHOD_TREE`] is used for; 0 for the default.
    pub tree_min_bytes: u64,
    /// Whether every byte is to be compared with what [`METHOD_TREE`] would restore: one of [`VERIFY_NOTHING`] and its siblings.
    pub verify_matches: u64,
    /// Address of the [`allocations::Allocations`].
    pub allocations: u64,
    /// Address of the [`device::Hold`].
    pub hold: u64,
    /// Bytes of the largest file whose content is captured when the program may write to it; [`FILES_NONE`] for none; 0, as in
    /// an older libckpt.so, for the default.
    pub files_max_bytes: u64,
    /// Absolute paths of the directories that are captured with all that is in them, separated by colons.
    pub with_dirs: [u8; PATH_BYTES],
    /// Where a thread resumes a call of its own: a `syscall` instruction, rsp leading to a [`ResumedCall`]. 0 in an older
    /// libckpt.so, which has no such place.
    pub resume_start: u64,
    /// What all processes of the job have, and nobody else. 0 for none.
    pub mark: u64,
    /// [`Control::job`] of the process that has made the mark.
    pub marked_job: u64,
    /// And its pid; 0 if it is not known.
    pub founder: u64,
    /// Address of the [`PID_DIGITS`] digits behind `CKPT_AGENT_PID=` in the environment that programs inherit; 0 for none.
    pub agent_text: u64,
    /// Address of the [`SysvIds`]; 0 where there are none.
    pub sysv_ids: u64,
    /// Address of [`STUB_FRAMES`] more [`StubFrame`]s, for as many threads that make calls at the same time. 0 where there are none,
    /// as in an older libckpt.so, whose stub knows [`Control::frame`] alone.
    pub frames: u64,
    /// Seccomp filters that the job's first process began under, plus 1; 0 where that is not known.
    pub filters: u64,
    /// Whether it began under no_new_privs: 1, or 0.
    pub no_new_privs: u64,
    /// Address of the [`CONFINEMENT_BYTES`] bytes behind `CKPT_CONFINEMENT=` in the environment that programs inherit; 0 for none.
    pub confinement_text: u64,
    /// Which copy of a checkpoint the program is; empty if it is none. The restorer writes it.
    pub copy: [u8; COPY_BYTES],
    /// Address of the pointer by which the C library finds the environment (`environ`); 0 where it is not known.
    pub environ: u64,
    /// Address of an [`Environment`] for the restorer to fill; 0 where there is none.
    pub environment: u64,
    /// Path of the program's executable where the kernel shows another one, because the restorer might not change the link; empty
    /// otherwise. The restorer writes it.
    pub executable: [u8; PATH_BYTES],
}

/// Bytes of [`Control::copy`], at least one zero included.
pub const COPY_BYTES: usize = COPY_ID_BYTES_MAX + 8;

/// Most entries of an environment that a restart changes, its null included.
pub const ENVIRONMENT_ENTRIES: usize = 1024;

/// What takes the place of the environment in a program that becomes a copy: programs that it executes are then told which copy they
/// belong to. The restorer fills it from outside.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Environment {
    /// Addresses of the entries, ended by a zero.
    pub entries: [u64; ENVIRONMENT_ENTRIES],
    /// The entry of [`ENV_COPY`].
    pub copy: [u8; COPY_BYTES + 16],
    /// The entry of [`ENV_MARK`].
    pub mark: [u8; 64],
    /// The entry of [`ENV_DIR`].
    pub dir: [u8; PATH_BYTES + 16],
}

/// How many threads of a process make injected calls at the same time.
pub const STUB_FRAMES: usize = 64;

/// How many ids of one kind a process remembers. A new one takes the place of an older one then.
pub const SYSV_IDS: usize = 64;

/// The System V objects that a process has asked to be made, or that one had before it forked this one: of these the kernel does not tell
/// whose they are. An id is kept plus 1; 0 is a free place.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SysvIds {
    /// By `semget`.
    pub semaphores: [i32; SYSV_IDS],
    /// By `msgget`.
    pub queues: [i32; SYSV_IDS],
}

impl Control {
    /// The id that the checkpoints of the job have.
    pub fn job_id(&self) -> u64 {
        if self.mark == 0 { self.job } else { self.marked_job }
    }

    /// What confined the job's first process when it began. `None` where that is not known.
    pub fn confinement(&self) -> Option<Confinement> {
        let filters = u32::try_from(self.filters.checked_sub(1)?).ok()?;
        Some(Confinement { filters, no_new_privs: self.no_new_privs != 0 })
    }

    /// Enters what confined the job's first process when it began.
    pub fn set_confinement(&mut self, confinement: Option<Confinement>) {
        let known = confinement.map(|confinement| (u64::from(confinement.filters) + 1, confinement.no_new_privs));
        let (filters, no_new_privs) = known.unwrap_or((0, false));
        (self.filters, self.no_new_privs) = (filters, u64::from(no_new_privs));
    }
}

/// The registers and signal mask with which a thread goes on if its agent disappears during an injected call.
///
/// The agent writes it before it points the thread at the stub. The stub's code knows the offsets: every field
/// is eight bytes and the order is part of the protocol.
///
/// In the stub, `r12` says who is calling: see [`STUB_ANY_CALL`], [`STUB_CLONE`] and [`STUB_EXPENDABLE`]; `r14` leads to the frame.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[expect(missing_docs, reason = "the register names say it all")]
pub struct StubFrame {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub rip: u64,
    pub rflags: u64,
    pub rsp: u64,
    pub sigmask: u64,
}

/// A call that a thread of the program has been stopped in, and resumes for the time that is left.
///
/// It lies on the thread's stack, below what leaf functions use there without moving rsp, while the thread is in the code at
/// [`Control::resume_start`]. That code knows the offsets: every field is eight bytes and the order is part of the protocol.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ResumedCall {
    /// The time that is left, a `struct timespec`, for calls that take a pointer to one.
    pub left: [u64; 2],
    /// The call's number.
    pub number: u64,
    /// The call's own arguments, which the program finds in the registers afterwards.
    pub rdi: u64,
    /// See `rdi`.
    pub rsi: u64,
    /// See `rdi`.
    pub rdx: u64,
    /// See `rdi`.
    pub r10: u64,
    /// See `rdi`.
    pub r8: u64,
    /// Behind the program's own `syscall` instruction.
    pub rip: u64,
}

/// The text in a zero-terminated field of the control block.
pub fn text(field: &[u8]) -> &[u8] {
    match field.iter().position(|&byte| byte == 0) {
        Some(end) => &field[..end],
        None => field,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::{offset_of, size_of};

    #[test]
    fn the_control_block_has_no_padding_and_keeps_its_first_fields_in_place() {
        assert_eq!(offset_of!(Control, state), 16);
        assert_eq!(offset_of!(Control, stub_start), 32);
        assert_eq!(offset_of!(Control, reason), 96);
        assert_eq!(CONTROL_BYTES_MIN, 96 + 2 * TEXT_BYTES + 3 * PATH_BYTES);
        assert_eq!(size_of::<Control>(), CONTROL_BYTES_MIN + 80 + PATH_BYTES + 80 + COPY_BYTES + 16 + PATH_BYTES);
    }

    #[test]
    fn the_stub_finds_the_frame_fields_where_its_assembly_expects_them() {
        assert_eq!(offset_of!(StubFrame, rip), 15 * 8);
        assert_eq!(offset_of!(StubFrame, sigmask), 18 * 8);
        assert_eq!(size_of::<StubFrame>(), 19 * 8);
        assert_eq!((offset_of!(ResumedCall, rdi), offset_of!(ResumedCall, rip)), (3 * 8, 8 * 8));
        assert_eq!(size_of::<ResumedCall>(), 9 * 8);
    }

    #[test]
    fn the_id_of_a_copy_is_short_and_plain() {
        for id in ["7", "web-1.example_b", "A", "-"] {
            assert!(is_copy_id(id.as_bytes()), "{id}");
        }
        assert!(is_copy_id(&[b'x'; COPY_ID_BYTES_MAX]) && !is_copy_id(&[b'x'; COPY_ID_BYTES_MAX + 1]));
        for id in ["", "a b", "a/b", "a\n", "\u{e4}", "a=b"] {
            assert!(!is_copy_id(id.as_bytes()), "{id}");
        }
    }

    #[test]
    fn text_ends_at_the_first_zero() {
        assert_eq!(text(b"abc\0def\0"), b"abc");
        assert_eq!(text(b"abc"), b"abc");
    }
}
