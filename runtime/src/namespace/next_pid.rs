//! The id that the kernel gives next in our pid namespace, brought to where it is wanted.
//!
//! The kernel gives ids in rising order, passes by those that are in use, and goes on from 300 behind `kernel.pid_max`.
//! Whoever has `CAP_CHECKPOINT_RESTORE` writes where it is (`ns_last_pid`). In a container that file is read-only, and
//! then each process that is made and reaped takes the kernel one id further: some 20,000 a second.

use std::arch::asm;
use std::fs::{read_to_string, write};
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::ids::LAST_ID;
use crate::error::{Error, Result};
use crate::signal_mask;

/// Where the kernel's way around is told.
const PID_MAX: &str = "/proc/sys/kernel/pid_max";
/// The kernel's own `RESERVED_PIDS`: what it goes on from after the highest id.
pub const FIRST_AGAIN: i32 = 300;
/// How many processes are made between two looks at the clock.
const BETWEEN_LOOKS: u32 = 256;

/// Has the kernel give id `wanted` to the next process or thread of our pid namespace, if nobody has it by then.
///
/// Others in the namespace may make processes meanwhile: the caller sees after the clone which id came, and calls this once
/// more if it is another one. The processes that are made here send no signal, and are reaped by their ids.
///
/// # Errors
/// The id cannot be had, or not `within` that time, or the kernel makes no processes. New ids begin somewhere else then.
pub fn bring_to(wanted: i32, within: Duration) -> Result<()> {
    let failed =
        |why: String, advice: &str| Error::environment(format!("bring the next process id to {wanted}"), why, advice);
    let highest = highest();
    if wanted < 2 || wanted > highest {
        return Err(failed(format!("ids end at {highest} here"), "raise it with sysctl kernel.pid_max"));
    }
    if is_next(wanted) {
        return Ok(());
    }
    if write(LAST_ID, (wanted - 1).to_string()).is_ok() && is_next(wanted) {
        return Ok(());
    }
    let blocked =
        signal_mask::block_all().map_err(|source| Error::io("block signals for", "new process ids", source))?;
    let walked = walk(wanted, within);
    blocked.restore().map_err(|source| Error::io("unblock signals after", "new process ids", source))?;
    match walked {
        Ok(()) => Ok(()),
        Err(Stopped::Refused(errno)) => Err(failed(
            format!("the kernel makes no process: {}", errno.desc()),
            "allow more processes (ulimit -u, the container's pids limit)",
        )),
        Err(Stopped::Late { at }) => Err(failed(
            format!("it is {at} after {} s of making processes", within.as_secs()),
            "write it to /proc/sys/kernel/ns_last_pid as root, or lower kernel.pid_max",
        )),
        Err(Stopped::Behind { at }) => Err(failed(
            format!("it is {at}, and goes around to {FIRST_AGAIN} alone"),
            "do it in a new container or pid namespace, where ids begin at 1",
        )),
    }
}

/// The last id that the kernel has given in our pid namespace: as /proc says, or else that of a process that is made for it.
pub fn last() -> i32 {
    told().or_else(|| take_one().ok()).unwrap_or_else(|| std::process::id() as i32)
}

fn told() -> Option<i32> {
    read_to_string(LAST_ID).ok()?.trim().parse().ok()
}

/// Why the walk has ended before its goal.
enum Stopped {
    Refused(Errno),
    Late { at: i32 },
    Behind { at: i32 },
}

fn highest() -> i32 {
    let text = read_to_string(PID_MAX).unwrap_or_default();
    // The kernel gives none that is as large.
    text.trim().parse().map_or(i32::MAX, |end: i32| end - 1)
}

/// Whether the kernel looks for an id at `wanted` next, as far as /proc says.
fn is_next(wanted: i32) -> bool {
    told().is_some_and(|last| leads_to(last, wanted))
}

/// Whether nothing is free between the two. Takes no lock and allocates nothing.
pub fn leads_to(last: i32, wanted: i32) -> bool {
    last < wanted && (last + 1..wanted).all(is_in_use)
}

/// Whether `id` is that of a process, a thread or a process group.
pub fn is_in_use(id: i32) -> bool {
    // SAFETY: signal 0 is sent to nobody, and the calls take two integers.
    let answers = [id, -id].map(|whom| Errno::result(unsafe { libc::kill(whom, 0) }));
    answers.iter().any(|answer| *answer != Err(Errno::ESRCH))
}

/// Makes and reaps processes until the next one would have the id.
fn walk(wanted: i32, within: Duration) -> Result<(), Stopped> {
    let deadline = Instant::now() + within;
    // The id before it, where that is one whose holder no signal reaches: known when it has been passed.
    let mut before = None;
    let mut last = take_one().map_err(Stopped::Refused)?;
    let mut until_look = BETWEEN_LOOKS;
    while !leads_to(last, wanted) && before != Some(last) {
        if wanted < FIRST_AGAIN && last >= wanted {
            return Err(Stopped::Behind { at: last });
        }
        let next = take_one().map_err(Stopped::Refused)?;
        if last < wanted && next >= wanted {
            before = Some(last);
        }
        last = next;
        until_look -= 1;
        if until_look == 0 {
            until_look = BETWEEN_LOOKS;
            if Instant::now() > deadline {
                return Err(Stopped::Late { at: last });
            }
        }
    }
    Ok(())
}

/// Makes a process, which ends at once, and reaps it. Its id. Signals must be blocked. Takes no lock and allocates nothing.
///
/// # Errors
/// The kernel's.
pub fn take_one() -> Result<i32, Errno> {
    let id = Errno::result(clone_that_ends())? as i32;
    loop {
        // SAFETY: reaps the one process, whose status nobody wants.
        match Errno::result(unsafe { libc::waitpid(id, std::ptr::null_mut(), libc::__WALL) }) {
            Err(Errno::EINTR) => {}
            // ECHILD: the kernel has reaped it.
            _ => return Ok(id),
        }
    }
}

/// The kernel's answer to a clone whose child does nothing but end: it shares our memory and does not touch it, so that no
/// page table is copied, and we wait until it has ended.
fn clone_that_ends() -> i64 {
    let mut answer = libc::SYS_clone;
    // SAFETY: the child makes one system call, `exit`, without a look at the stack, and this thread stands still until then.
    // Signals are blocked, so that no handler runs in it.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor edi, edi",
            "mov eax, {exit}",
            "syscall",
            "2:",
            exit = const libc::SYS_exit,
            inlateout("rax") answer,
            // No signal at its end.
            inlateout("rdi") i64::from(libc::CLONE_VM | libc::CLONE_VFORK) => _,
            in("rsi") 0_i64,
            in("rdx") 0_i64,
            in("r10") 0_i64,
            in("r8") 0_i64,
            out("rcx") _,
            out("r11") _,
            options(nostack),
        );
    }
    answer
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const WITHIN: Duration = Duration::from_secs(20);
    /// As in a container.
    const READ_ONLY: &str = "mount --bind /proc/sys /proc/sys && mount -o remount,ro,bind /proc/sys";

    /// Runs the ignored test of this name in a pid namespace, where no other process takes ids.
    fn in_new_namespace(test: &str, before: &str) {
        let this = std::env::current_exe().unwrap();
        let script = format!("{before}; exec \"$0\" --exact --ignored namespace::next_pid::tests::{test}");
        let mut unshare = Command::new("unshare");
        unshare.args(["--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", &script]).arg(this);
        let output = unshare.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }

    /// The id of a process that is made now.
    fn made() -> i32 {
        take_one().unwrap()
    }

    #[test]
    #[ignore = "it wants a pid namespace: see the tests without this mark"]
    fn each_wanted_id_comes() {
        let last = made();
        for wanted in [last + 1, last + 2, 1000, 1001, 5000] {
            bring_to(wanted, WITHIN).unwrap();
            assert_eq!(made(), wanted);
        }
        let mut holder = Command::new("sleep").arg("60").spawn().unwrap();
        let taken = holder.id() as i32;
        bring_to(taken + 1, WITHIN).unwrap();
        assert_eq!(made(), taken + 1);
        holder.kill().unwrap();
        holder.wait().unwrap();
    }

    #[test]
    #[ignore = "it wants a pid namespace: see the tests without this mark"]
    fn ids_behind_go_around() {
        bring_to(1500, WITHIN).unwrap();
        assert_eq!(made(), 1500);
        bring_to(700, WITHIN).unwrap();
        assert_eq!(made(), 700);
        let refused = bring_to(100, WITHIN).unwrap_err().to_string();
        assert!(refused.contains("goes around to 300"), "{refused}");
        let refused = bring_to(2000, WITHIN).unwrap_err().to_string();
        assert!(refused.contains("ids end at 1999"), "{refused}");
    }

    #[test]
    fn the_next_id_is_brought_there_by_writing_it() {
        if nix::unistd::geteuid().is_root() {
            in_new_namespace("each_wanted_id_comes", ":");
        }
    }

    #[test]
    fn the_next_id_is_brought_there_by_making_processes_where_it_may_not_be_written() {
        if nix::unistd::geteuid().is_root() {
            in_new_namespace("each_wanted_id_comes", READ_ONLY);
        }
    }

    #[test]
    fn ids_go_around_and_never_below_300() {
        if nix::unistd::geteuid().is_root() {
            // Before Linux 6.14 all namespaces have one end of ids in common, which is not ours to lower.
            let outer = read_to_string(PID_MAX).unwrap();
            let own_end = format!("[ $(cat {PID_MAX}) != {} ] || {{ echo 1 passed; exit 0; }}", outer.trim());
            in_new_namespace("ids_behind_go_around", &format!("{own_end}; echo 2000 >{PID_MAX}; {READ_ONLY}"));
        }
    }

    #[test]
    fn an_id_that_no_process_can_have_is_refused() {
        assert!(bring_to(0, WITHIN).is_err());
        assert!(bring_to(i32::MAX, WITHIN).is_err());
    }
}
