//! Reading another process's memory.

use std::io::{IoSlice, IoSliceMut};

use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};

use super::finding::{Finding, State};
use super::trial::{Child, Failure, Outcome, in_child};

const PROBE: &str = "process memory";
const TRIED: &str = "process_vm_readv and process_vm_writev on a child";
const ADVICE: &str = "allow process_vm_readv and process_vm_writev in the container's seccomp profile";
const PATTERN: [u8; 16] = *b"sixteen bytes...";

/// The probe.
pub fn probe() -> Finding {
    Finding::of(PROBE, TRIED, in_child(copy_back_and_forth), State::No, ADVICE).required()
}

fn copy_back_and_forth() -> Outcome {
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
