//! Reading another process's memory.

use std::fs::OpenOptions;
use std::io::{IoSlice, IoSliceMut};
use std::os::unix::fs::FileExt;

use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};

use super::finding::{Finding, State};
use super::trial::{Child, Failure, Outcome, in_child, unless_deadly};

const PROBE: &str = "process memory";
const TRIED: &str = "process_vm_readv and process_vm_writev on a child; else its /proc/PID/mem";
const ADVICE: &str = "allow process_vm_readv and process_vm_writev in the container's seccomp profile";
const ADVICE_FILE: &str = "nothing needs to be done: memory is read and written through /proc/PID/mem; allow process_vm_readv and \
                           process_vm_writev in the container's seccomp profile to do it faster";
const PATTERN: [u8; 16] = *b"sixteen bytes...";

/// The probe.
pub fn probe() -> Finding {
    let finding = match in_child(copy_by_calls) {
        Ok(found) => Finding::new(PROBE, TRIED, State::Ok, found, ""),
        Err(failure) => match in_child(copy_by_file) {
            Ok(found) => Finding::new(PROBE, TRIED, State::Degraded, format!("{found} ({failure})"), ADVICE_FILE),
            Err(other) => Finding::new(PROBE, TRIED, State::No, format!("{failure}; {other}"), ADVICE),
        },
    };
    finding.required().gives_up("fast reading of memory (process_vm_readv)", "--cap-add SYS_PTRACE")
}

/// As with a seized program: the file wants the rights of a tracer, which a parent has of its child.
fn copy_by_file() -> Outcome {
    let original = PATTERN;
    let child = Child::idle()?;
    let path = format!("/proc/{}/mem", child.pid());
    let failed = |what: &str, error: std::io::Error| Failure::wrong(format!("{what} {path}: {error}"));
    let file = OpenOptions::new().read(true).write(true).open(&path).map_err(|error| failed("open", error))?;
    let address = original.as_ptr() as u64;
    file.write_all_at(&[b'x'; PATTERN.len()], address).map_err(|error| failed("write", error))?;
    let mut copy = [0; PATTERN.len()];
    file.read_exact_at(&mut copy, address).map_err(|error| failed("read", error))?;
    if copy != [b'x'; PATTERN.len()] || std::hint::black_box(original) != PATTERN {
        return Err(Failure::wrong(format!("{path} has something else than was written")));
    }
    Ok("works through /proc/PID/mem".to_owned())
}

fn copy_by_calls() -> Outcome {
    unless_deadly(&[libc::SYS_process_vm_readv, libc::SYS_process_vm_writev])?;
    let original = PATTERN;
    // The child has a copy of `original` at the same address.
    let child = Child::idle()?;
    let place = [RemoteIoVec { base: original.as_ptr() as usize, len: original.len() }];
    let read = || {
        let mut copy = [0; PATTERN.len()];
        process_vm_readv(child.pid(), &mut [IoSliceMut::new(&mut copy)], &place)
            .map_err(|errno| Failure::call("process_vm_readv", errno))?;
        Ok::<_, Failure>(copy)
    };
    if read()? != PATTERN {
        return Err(Failure::wrong("process_vm_readv read something else than there was"));
    }
    process_vm_writev(child.pid(), &[IoSlice::new(&[b'x'; PATTERN.len()])], &place)
        .map_err(|errno| Failure::call("process_vm_writev", errno))?;
    if read()? != [b'x'; PATTERN.len()] || std::hint::black_box(original) != PATTERN {
        return Err(Failure::wrong("process_vm_writev wrote something else than it should"));
    }
    Ok("works".to_owned())
}
