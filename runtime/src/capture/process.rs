//! Capturing what belongs to the process as a whole, and refusing what cannot be rebuilt.

use std::os::unix::fs::MetadataExt;

use ckpt_wire::Confinement;
use nix::errno::Errno;

use super::guest::Guest;
use super::{clocks, posix_timers, refusals};
use crate::error::{Error, Result};
use crate::host;
use crate::image::{Clocks, IntervalTimer, Layout, Limit, PosixTimer, SignalAction, path_of};
use crate::proc::limits;
use crate::proc::task::{self, FIRST_PROCESS, stat_number};
use crate::ptrace::read_memory;

/// `MEMBARRIER_CMD_GET_REGISTRATIONS`, of Linux 6.3. An older one does not tell.
const GET_REGISTRATIONS: u64 = 512;
const TIMERS: [i32; 3] = [libc::ITIMER_REAL, libc::ITIMER_VIRTUAL, libc::ITIMER_PROF];
const SIGNALS: i32 = 64;
const PR_GET_PDEATHSIG: u64 = 2;
const PR_GET_DUMPABLE: u64 = 3;
const PR_GET_SECUREBITS: u64 = 27;
const PR_MCE_KILL_GET: u64 = 34;
const PR_GET_CHILD_SUBREAPER: u64 = 37;
/// `arch_prctl`: which state components the process may use that need a permission.
const ARCH_GET_XCOMP_PERM: u64 = 0x1022;
/// AMX tile data, the one component so far that needs one.
const TILE_DATA: u64 = 1 << 18;

/// What `/proc` and a few calls say about the process.
#[derive(Debug)]
pub struct Facts {
    /// Addresses of the address space.
    pub layout: Layout,
    /// Auxiliary vector.
    pub auxv: Vec<u64>,
    /// Root directory as we see it; empty if it is ours.
    pub root_directory: Vec<u8>,
    /// Umask.
    pub umask: u32,
    /// Real, effective, saved, file-system user.
    pub uids: [u32; 4],
    /// The same for groups.
    pub gids: [u32; 4],
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// no_new_privs, unless the job began under it.
    pub no_new_privs: bool,
}

/// Reads what `/proc` says; refuses foreign roots and namespaces. What confined the job when it `began` is not its own.
pub fn facts(pid: i32, brk: u64, began: Option<Confinement>) -> Result<Facts> {
    let status = task::text(pid, "status")?;
    let value = |name: &str| task::status_value(&status, name).unwrap_or("");
    refusals::refuse_unknown_surroundings(pid)?;

    let stat = task::stat_fields(pid, "stat")?;
    let number = |field| stat_number(&stat, field);
    let ids = |name: &str| -> [u32; 4] {
        let mut ids = [0; 4];
        for (id, word) in ids.iter_mut().zip(value(name).split_whitespace()) {
            *id = word.parse().unwrap_or(0);
        }
        ids
    };
    let auxv = task::bytes(pid, "auxv")?;
    Ok(Facts {
        layout: Layout {
            start_code: number(26),
            end_code: number(27),
            start_stack: number(28),
            start_data: number(45),
            end_data: number(46),
            start_brk: number(47),
            brk,
            arg_start: number(48),
            arg_end: number(49),
            env_start: number(50),
            env_end: number(51),
        },
        auxv: auxv.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or([0; 8]))).collect(),
        root_directory: root_directory(pid)?,
        umask: u32::from_str_radix(value("Umask"), 8).unwrap_or(0o022),
        uids: ids("Uid"),
        gids: ids("Gid"),
        groups: known_groups(value("Groups")),
        no_new_privs: value("NoNewPrivs") == "1" && !began.is_some_and(|began| began.no_new_privs),
    })
}

/// The root directory of `pid`, if it is not ours.
///
/// # Errors
/// When no path of ours leads there.
fn root_directory(pid: i32) -> Result<Vec<u8>> {
    let path = task::link(pid, "root")?;
    if path == b"/" {
        return Ok(Vec::new());
    }
    let by_link = std::fs::metadata(format!("/proc/{pid}/root"));
    let by_path = std::fs::metadata(path_of(&path));
    match (by_link, by_path) {
        (Ok(link), Ok(found)) if (link.dev(), link.ino()) == (found.dev(), found.ino()) => Ok(path),
        _ => Err(Error::unsupported(
            format!("process {pid}: a changed root directory ({})", path_of(&path).display()),
            "no path leads there from here",
            "run ckpt inside the same root",
        )),
    }
}

/// The supplementary groups of a process, whose user namespace must be ours. One that has no number there is shown as
/// nobody's, which it is not.
fn known_groups(shown: &str) -> Vec<u32> {
    let number = |path: &str| std::fs::read_to_string(path).ok()?.trim().parse::<u32>().ok();
    let nobody = number("/proc/sys/kernel/overflowgid").unwrap_or(65534);
    let map = std::fs::read_to_string("/proc/self/gid_map").unwrap_or_default();
    let is_mapped = |group: u32| {
        map.lines().any(|line| {
            let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            matches!(numbers[..], [first, _, count] if (first..first + count).contains(&u64::from(group)))
        })
    };
    let groups = shown.split_whitespace().filter_map(|word| word.parse().ok());
    groups.filter(|&group| group != nobody || is_mapped(group)).collect()
}

/// What only the process itself can ask the kernel.
#[derive(Debug)]
pub struct OwnFacts {
    /// Program break.
    pub brk: u64,
    /// Running interval timers.
    pub interval_timers: Vec<IntervalTimer>,
    /// Timers of `timer_create`.
    pub posix_timers: Vec<PosixTimer>,
    /// What its clocks show.
    pub clocks: Clocks,
    /// `PR_GET_CHILD_SUBREAPER`.
    pub adopts_orphans: bool,
    /// `PR_GET_PDEATHSIG`.
    pub parent_death_signal: i32,
    /// `PR_GET_DUMPABLE` is 1.
    pub dumpable: bool,
    /// State components that it has been given permission for.
    pub permitted_components: u64,
    /// Commands of `membarrier(2)` that it has registered for.
    pub memory_barriers: u64,
    /// `PR_MCE_KILL_GET`, of a kernel that has it.
    pub broken_memory: Option<u64>,
}

/// Whether orphans below the process of `guest` become its children.
pub fn adopts_orphans(guest: &mut Guest<'_>) -> Result<bool> {
    Ok(flag(guest, PR_GET_CHILD_SUBREAPER, "asking whether it is a subreaper")? != 0)
}

/// Whether process `pid` would get our clones of it as children: it is the first of its pid namespace, or says that it wants orphans.
pub fn would_get_clones(pid: i32, adopts_orphans: bool) -> bool {
    pid == FIRST_PROCESS || adopts_orphans
}

/// Asks inside the program; refuses secure bits.
pub fn own_facts(pid: i32, guest: &mut Guest<'_>) -> Result<OwnFacts> {
    let secure_bits = guest.call("prctl", "PR_GET_SECUREBITS", libc::SYS_prctl, [PR_GET_SECUREBITS, 0, 0, 0, 0, 0])?;
    if secure_bits != 0 {
        return Err(Error::unsupported(
            format!("process {pid} with secure bits {secure_bits:#x}"),
            "capabilities under secure bits are not restored yet",
            "start the program without them",
        ));
    }
    Ok(OwnFacts {
        brk: guest.call("brk", "reading the program break", libc::SYS_brk, [0; 6])?,
        interval_timers: interval_timers(guest)?,
        posix_timers: posix_timers::capture(pid, guest)?,
        clocks: clocks::capture(pid, guest)?,
        adopts_orphans: adopts_orphans(guest)?,
        parent_death_signal: flag(guest, PR_GET_PDEATHSIG, "asking for the parent-death signal")?,
        dumpable: guest.call("prctl", "PR_GET_DUMPABLE", libc::SYS_prctl, [PR_GET_DUMPABLE, 0, 0, 0, 0, 0])? == 1,
        permitted_components: permitted_components(guest)?,
        memory_barriers: guest.try_call(libc::SYS_membarrier, [GET_REGISTRATIONS, 0, 0, 0, 0, 0])?.unwrap_or(0),
        broken_memory: guest.try_call(libc::SYS_prctl, [PR_MCE_KILL_GET, 0, 0, 0, 0, 0])?.ok(),
    })
}

/// A program that has the permission chose its routines by it, whether or not its registers hold tiles at this moment.
fn permitted_components(guest: &mut Guest<'_>) -> Result<u64> {
    if host::xcr0() & TILE_DATA == 0 {
        return Ok(0);
    }
    let asked: Result<[u8; 8]> =
        guest.call_into("arch_prctl", "ARCH_GET_XCOMP_PERM", libc::SYS_arch_prctl, |scratch| {
            [ARCH_GET_XCOMP_PERM, scratch, 0, 0, 0, 0]
        });
    match asked {
        Ok(bytes) => Ok(u64::from_ne_bytes(bytes) & TILE_DATA),
        // A kernel that knows of no permissions gives none.
        Err(Error::RemoteCall { source: Errno::EINVAL, .. }) => Ok(0),
        Err(error) => Err(error),
    }
}

/// A `prctl` that writes one int.
fn flag(guest: &mut Guest<'_>, option: u64, purpose: &str) -> Result<i32> {
    let bytes: [u8; 4] = guest.call_into("prctl", purpose, libc::SYS_prctl, |scratch| [option, scratch, 0, 0, 0, 0])?;
    Ok(i32::from_ne_bytes(bytes))
}

fn interval_timers(guest: &mut Guest<'_>) -> Result<Vec<IntervalTimer>> {
    let mut running = Vec::new();
    for which in TIMERS {
        let bytes: [u8; 32] =
            guest.call_into("getitimer", "reading an interval timer", libc::SYS_getitimer, |scratch| {
                [which as u64, scratch, 0, 0, 0, 0]
            })?;
        let [interval_s, interval_us, value_s, value_us] = words(&bytes);
        let (interval_us, left_us) = (interval_s * 1_000_000 + interval_us, value_s * 1_000_000 + value_us);
        // A periodic ITIMER_REAL whose signal waits for delivery stands still until then, with nothing left.
        let is_due = which == libc::ITIMER_REAL && left_us == 0;
        let value_us = if is_due { interval_us } else { left_us };
        if value_us != 0 {
            running.push(IntervalTimer { which, interval_us, value_us });
        }
    }
    Ok(running)
}

/// The signal actions of `pid`, which is the program or its twin: a clone has its own copy of them.
///
/// `call` makes a system call in that process.
pub fn signal_actions(
    pid: i32,
    scratch: u64,
    mut call: impl FnMut(i64, [u64; 6]) -> Result<Result<u64, Errno>>,
) -> Result<Vec<SignalAction>> {
    let mut actions = Vec::new();
    for signal in (1..=SIGNALS).filter(|&signal| signal != libc::SIGKILL && signal != libc::SIGSTOP) {
        call(libc::SYS_rt_sigaction, [signal as u64, 0, scratch, 8, 0, 0])?.map_err(|source| Error::RemoteCall {
            pid,
            call: "rt_sigaction",
            purpose: format!("reading the action of signal {signal}"),
            source,
        })?;
        let mut bytes = [0; 32];
        read_memory(pid, scratch, &mut bytes)?;
        let [handler, flags, restorer, mask] = words(&bytes);
        if (handler, flags, mask) != (0, 0, 0) {
            actions.push(SignalAction { signal, handler, flags, restorer, mask });
        }
    }
    Ok(actions)
}

fn words(bytes: &[u8; 32]) -> [u64; 4] {
    std::array::from_fn(|word| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[word * 8 + byte])))
}

/// The resource limits of `pid`.
pub fn limits(pid: i32) -> Result<Vec<Limit>> {
    let all = limits::limits(pid)?;
    Ok((0..).zip(all).map(|(resource, (soft, hard))| Limit { resource, soft, hard }).collect())
}
