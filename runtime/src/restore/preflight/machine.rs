//! Is this the machine for it: processor state, page size. What becomes of the vdso is for [`crate::restore::vdso`].
//!
//! A component of the processor state must be here when a thread's registers hold it, and AVX and AVX-512 also when
//! the capturing host had them at all: the C library chose its routines by them at the program's start and would
//! meet an illegal instruction. `force` waives the second rule.

use crate::error::{Error, Result};
use crate::image::JobImage;
use crate::restore::host::Machine;
use crate::restore::xstate;

const WHAT: &str = "restart on this host";

/// Checks the job against `machine`.
pub fn check(job: &JobImage, machine: &Machine, force: bool) -> Result<()> {
    if job.host.page_bytes != machine.host.page_bytes {
        let why = format!("pages had {} bytes, here they have {}", job.host.page_bytes, machine.host.page_bytes);
        return Err(Error::environment(WHAT, why, "restart on a host with the same page size"));
    }
    check_kernel()?;
    check_processor(job, machine, force)
}

/// `PR_SET_MM_MAP` is compiled in together with the other calls that a restart needs.
fn check_kernel() -> Result<()> {
    let mut bytes = 0u32;
    let into = std::ptr::from_mut(&mut bytes);
    // SAFETY: PR_SET_MM_MAP_SIZE writes one unsigned int to `into`.
    let known = unsafe { libc::prctl(libc::PR_SET_MM, libc::PR_SET_MM_MAP_SIZE, into, 0, 0) };
    if known == 0 {
        return Ok(());
    }
    let why = "the kernel is built without CONFIG_CHECKPOINT_RESTORE";
    Err(Error::environment(WHAT, why, "use a kernel with it; those of the distributions have it"))
}

fn check_processor(job: &JobImage, machine: &Machine, force: bool) -> Result<()> {
    let threads = job.processes.iter().flat_map(|process| &process.threads);
    let used = threads.fold(0, |used, thread| used | xstate::used_components(&thread.extended_state));
    let permitted = job.processes.iter().fold(0, |permitted, process| permitted | process.permitted_components);
    let relied_upon = if force { 0 } else { xstate::relied_upon(job.host.xcr0) | permitted };
    let missing = (used | relied_upon) & !machine.host.xcr0;
    if missing != 0 {
        let why = format!("the program uses {}, which this processor or kernel lacks", xstate::names(missing));
        let advice = format!("restart on a processor that has it, such as {}", job.host.processor);
        return Err(Error::environment(WHAT, why, advice));
    }
    if job.host.xcr0 != machine.host.xcr0
        && used & !xstate::FIXED_PLACE != 0
        && vendor(&job.host.processor) != vendor(&machine.host.processor)
    {
        let why = format!("processor state of {} has another layout on {}", job.host.processor, machine.host.processor);
        return Err(Error::environment(WHAT, why, "restart on a processor of the same maker"));
    }
    Ok(())
}

fn vendor(processor: &str) -> Option<&str> {
    processor.split_ascii_whitespace().next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::restore::sample;

    #[test]
    fn the_host_of_the_capture_is_accepted() {
        let machine = Machine::this().unwrap();
        check(&sample::job(&machine), &machine, false).unwrap();
    }

    #[test]
    fn a_missing_feature_is_named() {
        let mut machine = Machine::this().unwrap();
        let mut job = sample::job(&machine);
        job.host.xcr0 |= 0xe0;
        machine.host.xcr0 = 0b111;
        let message = check(&job, &machine, false).unwrap_err().to_string();
        assert!(message.contains("AVX-512"), "{message}");
        check(&job, &machine, true).unwrap();
        job.processes[0].threads[0].extended_state[512] |= 0xe0;
        assert!(check(&job, &machine, true).unwrap_err().to_string().contains("AVX-512"));
    }

    #[test]
    fn another_layout_is_refused_only_when_something_depends_on_it() {
        let mut machine = Machine::this().unwrap();
        machine.host.processor = "AMD EPYC".into();
        let mut job = sample::job(&machine);
        job.host.processor = "Intel(R) Xeon(R)".into();
        job.host.xcr0 &= !(1 << 9);
        machine.host.xcr0 |= 1 << 9;
        check(&job, &machine, false).unwrap();
        job.processes[0].threads[0].extended_state[513] |= 0b10;
        assert!(check(&job, &machine, false).unwrap_err().to_string().contains("another layout"));
    }
}
