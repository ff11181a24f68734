//! Puts back the seccomp filters that a program had added itself.
//!
//! They judge no call before the program runs: until then they are suspended, so what is rebuilt after them need not pass them. A filter
//! that all threads have is put on all at once, as one object: the kernel lets a thread give its filters to the others only if
//! theirs are among its own.

use super::process::{Call, HalfBuilt};
use crate::capabilities::{CAP_SYS_ADMIN, OwnCapabilities};
use crate::error::{Error, Result};
use crate::image::{Filter, Host, JobImage, ProcessImage};
use crate::ptrace::Options;

const SECCOMP: Call = Call("seccomp", libc::SYS_seccomp);

/// Refuses a job with filters where we can neither suspend nor add any: we are on host `now`.
pub fn check(job: &JobImage, now: &Host) -> Result<()> {
    let Some(process) = job.processes.iter().find(|process| !process.filters.is_empty()) else { return Ok(()) };
    let is_admin = OwnCapabilities::read().is_ok_and(|own| own.effective() & 1 << CAP_SYS_ADMIN != 0);
    let why = match now.filters {
        Some(0) if is_admin && !now.is_in_user_namespace() => return Ok(()),
        Some(0) => "we lack CAP_SYS_ADMIN on this machine",
        _ => "we live under a seccomp filter",
    };
    Err(Error::environment(
        "restart",
        format!("process {} has added seccomp filters, which cannot be put back: {why}", process.pid),
        "restart it as root, outside of any sandbox or container",
    ))
}

/// Puts them on the threads of `process`.
pub fn put_on(process: &mut HalfBuilt, image: &ProcessImage) -> Result<()> {
    if image.filters.is_empty() {
        return Ok(());
    }
    for index in 0..image.threads.len() {
        process.thread_mut(index)?.suspend_filters(Options::EXPENDABLE)?;
    }
    let filters = |index: usize| image.threads[index].filters.as_slice();
    let common = (1..image.threads.len()).fold(filters(0).len(), |common, index| {
        filters(0)[..common].iter().zip(filters(index)).take_while(|(one, other)| one == other).count()
    });
    for &number in &filters(0)[..common] {
        add(process, 0, &image.filters[number as usize], libc::SECCOMP_FILTER_FLAG_TSYNC)?;
    }
    for index in 0..image.threads.len() {
        for &number in &filters(index)[common..] {
            add(process, index, &image.filters[number as usize], 0)?;
        }
    }
    Ok(())
}

fn add(process: &mut HalfBuilt, index: usize, filter: &Filter, flags: u64) -> Result<()> {
    let instructions = filter.instructions.len() / Filter::INSTRUCTION_BYTES;
    // struct sock_fprog: how many instructions, and where they are: behind it.
    let start = process.scratch()?.start;
    let mut program = [instructions as u64, start + 16].map(u64::to_ne_bytes).concat();
    program.extend_from_slice(&filter.instructions);
    let address = process.put(&program)?;
    let flags = flags | if filter.logs { libc::SECCOMP_FILTER_FLAG_LOG } else { 0 };
    let arguments = [libc::SECCOMP_SET_MODE_FILTER.into(), flags, address];
    let purpose = format_args!("a filter of {instructions} instructions");
    match process.call(index, SECCOMP, &arguments, purpose)? {
        0 => Ok(()),
        thread => {
            let why = format!("thread {thread} does not take the filter of another");
            Err(Error::environment("restart", why, "please report this"))
        }
    }
}
