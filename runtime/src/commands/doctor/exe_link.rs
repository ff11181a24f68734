//! Making /proc/PID/exe lead to the program again.

use std::os::fd::AsRawFd;

use nix::errno::Errno;

use super::finding::{Finding, State};
use super::trial::{Failure, Outcome, in_child};

const PROBE: &str = "exe link";
const TRIED: &str = "PR_SET_MM_MAP with exe_fd in a child";
const ADVICE: &str =
    "restart with CAP_CHECKPOINT_RESTORE; otherwise /proc/PID/exe of a restarted program leads to ckpt";
const ADVICE_IN_NAMESPACE: &str = "nothing: a restart makes a pid namespace for the program, where it works";
const PR_SET_MM_MAP: i32 = 14;

/// `struct prctl_mm_map`.
#[repr(C)]
#[derive(Default)]
struct MemoryMap {
    start_code: u64,
    end_code: u64,
    start_data: u64,
    end_data: u64,
    start_brk: u64,
    brk: u64,
    start_stack: u64,
    arg_start: u64,
    arg_end: u64,
    env_start: u64,
    env_end: u64,
    auxv: u64,
    auxv_bytes: u32,
    exe_descriptor: u32,
}

/// The probe. `in_namespace`: whether it works in a pid namespace made for the program.
pub fn probe(in_namespace: bool) -> Finding {
    let advice = if in_namespace { ADVICE_IN_NAMESPACE } else { ADVICE };
    let finding = Finding::of(PROBE, TRIED, in_child(set), State::Degraded, advice);
    // In a namespace of its own a program has it.
    if in_namespace {
        finding
    } else {
        finding.gives_up("/proc/PID/exe of restarted programs", "--cap-add CHECKPOINT_RESTORE")
    }
}

/// Sets our own values again. Our own file is still mapped, so with the right to do it the answer is EBUSY.
fn set() -> Outcome {
    let failed = |what: &str, error: std::io::Error| Failure::wrong(format!("{what}: {error}"));
    let exe = std::fs::File::open("/proc/self/exe").map_err(|error| failed("open /proc/self/exe", error))?;
    let stat = std::fs::read_to_string("/proc/self/stat").map_err(|error| failed("read /proc/self/stat", error))?;
    let mut map = parse(&stat).ok_or_else(|| Failure::wrong("/proc/self/stat hides the addresses"))?;
    // SAFETY: sbrk(0) only asks.
    map.brk = unsafe { libc::sbrk(0) } as u64;
    map.exe_descriptor = exe.as_raw_fd() as u32;
    // SAFETY: the kernel reads one `MemoryMap` of the given size.
    let result = unsafe { libc::prctl(libc::PR_SET_MM, PR_SET_MM_MAP, &raw const map, size_of::<MemoryMap>(), 0) };
    match Errno::result(result) {
        Ok(_) | Err(Errno::EBUSY) => Ok("allowed".to_owned()),
        Err(errno) => Err(Failure::call("PR_SET_MM_MAP", errno)),
    }
}

/// The addresses in a line of /proc/PID/stat, whose fields proc(5) numbers from 1.
fn parse(stat: &str) -> Option<MemoryMap> {
    let fields: Vec<&str> = stat[stat.rfind(')')? + 1..].split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(MemoryMap {
        start_code: field(26)?,
        end_code: field(27)?,
        start_stack: field(28)?,
        start_data: field(45)?,
        end_data: field(46)?,
        start_brk: field(47)?,
        arg_start: field(48)?,
        arg_end: field(49)?,
        env_start: field(50)?,
        env_end: field(51)?,
        ..MemoryMap::default()
    })
}
