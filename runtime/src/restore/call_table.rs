//! Many remote calls in one go: the process works off a table of them by itself.
//!
//! A remote call waits twice for the process to run, which takes ten times as long as most calls. So a few instructions and a table
//! lie in the scratch area meanwhile. They make one call after the other, up to the first that fails, and stop the process by a SIGSTOP
//! that is never delivered: unlike a trap, it leaves masks and actions of signals alone.

use std::arch::global_asm;
use std::fmt::Arguments;
use std::ptr::addr_of;

use nix::errno::Errno;
use zerocopy::{Immutable, IntoBytes};

use super::process::{Call, HalfBuilt, SCRATCH_BYTES};
use crate::error::Result;
use crate::ptrace::{Registers, run_code};

const MPROTECT: Call = Call("mprotect", libc::SYS_mprotect);
const PAGE: u64 = 4096;
/// Fewer are made one after the other.
const CALLS_MIN: usize = 8;
/// As many as the scratch area has room for, but for its last page, which has the code.
const CALLS_MAX: usize = (SCRATCH_BYTES - PAGE) as usize / size_of::<Entry>();

global_asm!(
    ".pushsection .rodata.ckpt_call_table, \"a\"",
    "ckpt_call_table_start:",
    // rbx leads to the next call, rbp says how many are left.
    "2:",
    "test rbp, rbp",
    "jz 3f",
    "mov rax, [rbx]",
    "mov rdi, [rbx + 8]",
    "mov rsi, [rbx + 16]",
    "mov rdx, [rbx + 24]",
    "mov r10, [rbx + 32]",
    "mov r8, [rbx + 40]",
    "mov r9, [rbx + 48]",
    "syscall",
    "mov r12, rax",
    "cmp rax, -4095",
    "jae 3f",
    "add rbx, 56",
    "dec rbp",
    "jmp 2b",
    "3:",
    "mov eax, {getpid}",
    "syscall",
    "mov r13d, eax",
    "mov eax, {gettid}",
    "syscall",
    "mov edi, r13d",
    "mov esi, eax",
    "mov edx, {sigstop}",
    "mov eax, {tgkill}",
    "syscall",
    "ckpt_call_table_stop:",
    // A SIGCONT from elsewhere has taken the stop away.
    "jmp 3b",
    "ckpt_call_table_end:",
    ".popsection",
    getpid = const libc::SYS_getpid,
    gettid = const libc::SYS_gettid,
    sigstop = const libc::SIGSTOP,
    tgkill = const libc::SYS_tgkill,
);

unsafe extern "C" {
    static ckpt_call_table_start: u8;
    static ckpt_call_table_stop: u8;
    static ckpt_call_table_end: u8;
}

/// One call as the code finds it.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
struct Entry {
    number: u64,
    arguments: [u64; 6],
}

const _: () = assert!(size_of::<Entry>() == 56);

/// A call that is to be made.
#[derive(Debug)]
pub struct Planned {
    call: Call,
    arguments: [u64; 6],
    purpose: String,
    /// Whether it may fail.
    is_hint: bool,
}

impl Planned {
    /// One that must succeed; `purpose` is for the error if it does not.
    pub fn must(call: Call, arguments: [u64; 6], purpose: Arguments) -> Planned {
        Planned { call, arguments, purpose: purpose.to_string(), is_hint: false }
    }

    /// One that may fail, which is logged.
    pub fn may(call: Call, arguments: [u64; 6], purpose: Arguments) -> Planned {
        Planned { is_hint: true, ..Planned::must(call, arguments, purpose) }
    }

    fn entry(&self) -> Entry {
        Entry { number: self.call.1 as u64, arguments: self.arguments }
    }

    fn settle(&self, process: &HalfBuilt, failed: Errno) -> Result<()> {
        if self.is_hint {
            log::debug!("{}: {failed}", self.purpose);
            return Ok(());
        }
        Err(process.refused(self.call, format_args!("{}", self.purpose), failed))
    }
}

/// Has the main thread of `process` make `calls`, in their order.
///
/// # Errors
/// That of the first call that fails and may not.
pub fn make(process: &mut HalfBuilt, calls: &[Planned]) -> Result<()> {
    if calls.len() < CALLS_MIN {
        return one_by_one(process, calls);
    }
    let page = process.scratch()?.end - PAGE;
    process.memory().write(page, code())?;
    let executable = (libc::PROT_READ | libc::PROT_EXEC) as u64;
    if let Err(errno) = process.try_call(0, MPROTECT, &[page, PAGE, executable])? {
        log::debug!("calls are made one by one, as memory cannot be made executable: {errno}");
        return one_by_one(process, calls);
    }
    calls.chunks(CALLS_MAX).try_for_each(|calls| make_all(process, page, calls))?;
    let writable = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    process.call(0, MPROTECT, &[page, PAGE, writable], format_args!("scratch area")).map(drop)
}

fn one_by_one(process: &mut HalfBuilt, calls: &[Planned]) -> Result<()> {
    for planned in calls {
        if let Err(errno) = process.try_call(0, planned.call, &planned.arguments)? {
            planned.settle(process, errno)?;
        }
    }
    Ok(())
}

/// Makes calls that the scratch area has room for by the code at `page`.
fn make_all(process: &mut HalfBuilt, page: u64, calls: &[Planned]) -> Result<()> {
    let entries: Vec<Entry> = calls.iter().map(Planned::entry).collect();
    let table = process.put(entries.as_bytes())?;
    let mut made = 0;
    while made < calls.len() {
        let mut registers = process.site()?.registers;
        registers.0.rip = page;
        registers.0.rbx = table + (made * size_of::<Entry>()) as u64;
        registers.0.rbp = (calls.len() - made) as u64;
        registers.0.orig_rax = u64::MAX;
        let Registers(after) = run_code(process.main_thread()?, &registers, page + stop_offset())?;
        made = calls.len() - after.rbp as usize;
        if let Some(failed) = calls.get(made) {
            failed.settle(process, Errno::from_raw(-(after.r12 as i64) as i32))?;
            made += 1;
        }
    }
    Ok(())
}

/// Where the code stops.
fn stop_offset() -> u64 {
    (addr_of!(ckpt_call_table_stop).addr() - addr_of!(ckpt_call_table_start).addr()) as u64
}

fn code() -> &'static [u8] {
    let (start, end) = (addr_of!(ckpt_call_table_start), addr_of!(ckpt_call_table_end));
    // SAFETY: between the two symbols lie the instructions above, which nothing changes.
    unsafe { std::slice::from_raw_parts(start, end.addr() - start.addr()) }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use nix::unistd::{ForkResult, fork};

    use super::*;
    use crate::ptrace::{Options, Running};
    use crate::restore::host::Machine;

    const MMAP: Call = Call("mmap", libc::SYS_mmap);
    const MADVISE: Call = Call("madvise", libc::SYS_madvise);
    /// Nothing lies here.
    const FREE: u64 = 0x1000_0000_0000;
    const SCRATCH: u64 = FREE - (1 << 30);

    fn idle_child() -> HalfBuilt {
        // SAFETY: the child makes one system call, again and again.
        let pid = match unsafe { fork() }.unwrap() {
            ForkResult::Child => loop {
                // SAFETY: no pointers.
                unsafe { libc::syscall(libc::SYS_pause) };
            },
            ForkResult::Parent { child } => child.as_raw(),
        };
        let running = Running::seize(pid, Options::EXPENDABLE_ALONE).unwrap();
        let mut process = HalfBuilt::new(pid).unwrap();
        running.interrupt().unwrap();
        let main = running.wait_for_trap(Instant::now() + Duration::from_secs(10)).unwrap();
        main.set_signal_mask(u64::MAX).unwrap();
        process.stopped_at(main, Machine::this().unwrap().syscall()).unwrap();
        process.map_scratch(SCRATCH).unwrap();
        process
    }

    fn page(number: u64) -> u64 {
        FREE + number * 2 * PAGE
    }

    fn maps(numbers: std::ops::Range<u64>) -> Vec<Planned> {
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE) as u64;
        let map = |number| {
            let arguments = [page(number), PAGE, libc::PROT_READ as u64, flags, u64::MAX, 0];
            Planned::must(MMAP, arguments, format_args!("page {number}"))
        };
        numbers.map(map).collect()
    }

    fn mapped(process: &HalfBuilt) -> usize {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", process.pid())).unwrap();
        let start = |line: &str| u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap();
        maps.lines().filter(|line| (FREE..FREE << 1).contains(&start(line))).count()
    }

    #[test]
    fn more_calls_than_the_table_has_room_for_are_all_made() {
        let mut process = idle_child();
        let count = CALLS_MAX + 100;
        make(&mut process, &maps(0..count as u64)).unwrap();
        assert_eq!(mapped(&process), count);
    }

    #[test]
    fn few_calls_are_made_as_well() {
        let mut process = idle_child();
        make(&mut process, &maps(0..3)).unwrap();
        assert_eq!(mapped(&process), 3);
    }

    #[test]
    fn hints_that_fail_are_passed_over() {
        let mut process = idle_child();
        let hint = |number| Planned::may(MADVISE, [page(number), PAGE, 9999, 0, 0, 0], format_args!("no such advice"));
        let mut calls = vec![hint(0)];
        for number in 0..20 {
            calls.extend(maps(number..number + 1));
            calls.extend([hint(number), hint(number)]);
        }
        make(&mut process, &calls).unwrap();
        assert_eq!(mapped(&process), 20);
    }

    #[test]
    fn a_call_that_fails_is_the_last_and_is_named() {
        let mut process = idle_child();
        let mut calls = maps(0..20);
        calls.extend(maps(5..6));
        calls.extend(maps(20..30));
        let error = make(&mut process, &calls).unwrap_err().to_string();
        assert!(error.contains("mmap") && error.contains("page 5"), "{error}");
        assert_eq!(mapped(&process), 20);
    }

    #[test]
    fn signals_that_come_meanwhile_are_no_end() {
        let mut process = idle_child();
        for signal in [libc::SIGSTOP, libc::SIGCONT, libc::SIGTERM] {
            // SAFETY: numbers only.
            unsafe { libc::kill(process.pid(), signal) };
        }
        make(&mut process, &maps(0..40)).unwrap();
        // SAFETY: numbers only.
        unsafe { libc::kill(process.pid(), libc::SIGSTOP) };
        make(&mut process, &maps(40..80)).unwrap();
        assert_eq!(mapped(&process), 80);
    }
}
