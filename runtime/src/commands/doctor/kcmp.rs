//! Finding out whether two descriptors are one open file.

use std::os::fd::AsRawFd;

use super::finding::{Finding, State};
use super::trial::{Failure, Outcome, checked, in_child, unless_deadly};

const PROBE: &str = "kcmp";
const TRIED: &str = "compare a descriptor with its duplicate and with another file";
const ADVICE: &str = "allow kcmp in the container's seccomp profile (and CONFIG_KCMP in the kernel); without it, \
                      shared offsets of duplicated descriptors are recognised by other, weaker means";
const KCMP_FILE: i32 = 0;

/// The probe.
pub fn probe() -> Finding {
    Finding::of(PROBE, TRIED, in_child(compare), State::Degraded, ADVICE)
        .gives_up("tables that processes share by clone (kcmp)", "--cap-add SYS_PTRACE")
}

fn compare() -> Outcome {
    unless_deadly(&[libc::SYS_kcmp])?;
    let open = || std::fs::File::open("/dev/null").map_err(|error| Failure::wrong(format!("/dev/null: {error}")));
    let (first, second) = (open()?, open()?);
    let duplicate = first.try_clone().map_err(|error| Failure::wrong(format!("dup: {error}")))?;
    let (first, duplicate, second) = (first.as_raw_fd(), duplicate.as_raw_fd(), second.as_raw_fd());
    if order(first, duplicate)? != 0 || order(first, second)? == 0 {
        return Err(Failure::wrong("it does not tell descriptors apart"));
    }
    Ok("works".to_owned())
}

fn order(one: i32, other: i32) -> Result<i64, Failure> {
    let me = std::process::id() as i32;
    // SAFETY: kcmp takes five integers.
    checked("kcmp", unsafe { libc::syscall(libc::SYS_kcmp, me, me, KCMP_FILE, one, other) })
}
