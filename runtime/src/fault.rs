//! Fault points: places where a test may make this process die.
//!
//! "The agent may be killed after any single request or write" is a promise, so each ptrace request, each write
//! into a program and each write, sync and rename of the store passes through [`hit`]. `CKPT_FAULT=NAME:K`
//! kills this process with SIGKILL right after the K-th passage of NAME; `CKPT_FAULT_TRACE=FILE` appends every
//! passage to FILE, which is how the tests learn the list they must walk. Without these variables a passage
//! costs one load.
//!
//! What is tested is what is shipped, so the points are in every build. The variables count where whoever set them is whoever this
//! process acts for: not if it has gained rights at its start, by set-user-ID or capabilities, sudo, doas or pkexec. And FILE is a
//! regular file of ours that holds nothing but passages.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use nix::unistd::{geteuid, getuid};

use crate::outlet;

/// The environment variable that says where this process dies.
pub const KILL: &str = "CKPT_FAULT";

struct Plan {
    kill: Option<(String, u64)>,
    passed: AtomicU64,
    trace: Option<Mutex<File>>,
}

static PLAN: OnceLock<Option<Plan>> = OnceLock::new();

macro_rules! fault_points {
    ($($constant:ident = $name:literal,)*) => {
        /// The fault points of this crate; [`hit`] takes nothing else, so the list cannot fall behind the code.
        #[expect(missing_docs, reason = "each is named after the request it follows")]
        pub mod point {
            $(pub const $constant: &str = $name;)*
        }
        /// Names of all fault points of this crate; those of the store are `ckpt_store::fault::FAULT_POINTS`.
        pub const FAULT_POINTS: &[&str] = &[$(point::$constant,)*];
    };
}

fault_points! {
    PTRACE_SEIZE = "ptrace.seize",
    PTRACE_INTERRUPT = "ptrace.interrupt",
    PTRACE_SETOPTIONS = "ptrace.setoptions",
    PTRACE_CONT = "ptrace.cont",
    PTRACE_SYSCALL = "ptrace.syscall",
    PTRACE_DETACH = "ptrace.detach",
    PTRACE_GETEVENTMSG = "ptrace.geteventmsg",
    PTRACE_GETREGSET = "ptrace.getregset",
    PTRACE_SETREGSET = "ptrace.setregset",
    PTRACE_GETSIGMASK = "ptrace.getsigmask",
    PTRACE_SETSIGMASK = "ptrace.setsigmask",
    PTRACE_PEEKSIGINFO = "ptrace.peeksiginfo",
    PTRACE_GETRSEQ = "ptrace.getrseq",
    PTRACE_GETFILTER = "ptrace.getfilter",
    PROCESS_VM_WRITEV = "process_vm_writev",
    PROC_MEM_WRITE = "proc_mem.write",
    USERFAULTFD_MADE = "userfaultfd.made",
    USERFAULTFD_REGISTER = "userfaultfd.register",
    PAGEMAP_PROTECT = "pagemap.protect",
    MAPPED_FILE_STORED = "mapped_file.stored",
    DEVICES_EVACUATED = "devices.evacuated",
    DEVICES_KEPT = "devices.kept",
    DEVICES_RENEWED = "devices.renewed",
    DEVICES_ASKED = "devices.asked",
    DEVICES_SUSPENDED = "devices.suspended",
    DEVICES_RESUMED = "devices.resumed",
}

/// Reads `CKPT_FAULT` and `CKPT_FAULT_TRACE` and connects the store's fault points to these.
pub fn arm_from_environment() {
    let armed = PLAN.get_or_init(|| if has_gained_rights() { None } else { plan_from_environment() }).is_some();
    if armed {
        ckpt_store::fault::set_hook(hit);
    }
}

/// Whether the environment may be that of somebody with fewer rights.
fn has_gained_rights() -> bool {
    let others = ["SUDO_UID", "DOAS_USER", "PKEXEC_UID"];
    is_secure() || getuid() != geteuid() || others.iter().any(|name| std::env::var_os(name).is_some())
}

fn is_secure() -> bool {
    // SAFETY: it takes a number.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

fn plan_from_environment() -> Option<Plan> {
    let kill = std::env::var(KILL).ok().and_then(|spec| {
        let (name, count) = spec.rsplit_once(':')?;
        Some((name.to_owned(), count.parse().ok()?))
    });
    let trace = std::env::var_os("CKPT_FAULT_TRACE").and_then(|path| trace(Path::new(&path)).ok()).map(Mutex::new);
    (kill.is_some() || trace.is_some()).then(|| Plan { kill, passed: AtomicU64::new(0), trace })
}

/// Another file than one of passages is left alone, as if it were not there.
fn trace(path: &Path) -> io::Result<File> {
    let file = outlet::append(path)?;
    let begun = std::fs::read(path)?;
    let is_passage =
        |line: &[u8]| FAULT_POINTS.iter().chain(ckpt_store::fault::FAULT_POINTS).any(|name| name.as_bytes() == line);
    match begun.split(|&byte| byte == b'\n').next() {
        Some(first) if !first.is_empty() && !is_passage(first) => Err(io::ErrorKind::InvalidData.into()),
        _ => Ok(file),
    }
}

/// Marks that the step `name` has just been done.
pub fn hit(name: &'static str) {
    let Some(Some(plan)) = PLAN.get() else { return };
    if let Some(trace) = &plan.trace
        && let Ok(mut file) = trace.lock()
    {
        // A test that reads an incomplete trace fails by itself, so a failed write needs no handling here.
        // With one call, because several processes write there.
        let _ = file.write_all(format!("{name}\n").as_bytes());
    }
    if let Some((wanted, count)) = &plan.kill
        && wanted == name
        && plan.passed.fetch_add(1, Ordering::Relaxed) + 1 == *count
    {
        // SAFETY: neither has memory preconditions. The target is this very process, which the kernel shields from its own
        // SIGKILL if it is the first of a pid namespace.
        unsafe {
            libc::kill(libc::getpid(), libc::SIGKILL);
            libc::_exit(128 + libc::SIGKILL);
        }
    }
}
