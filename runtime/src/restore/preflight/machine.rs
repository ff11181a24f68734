//! Is this the machine for it: processor state, page size. What becomes of the vdso is for [`crate::restore::vdso`].
//!
//! A component of the processor state must be here when a thread's registers hold it, and AVX and AVX-512 also when
//! the capturing host had them at all: the C library chose its routines by them at the program's start and would
//! meet an illegal instruction. `force` waives the second rule.

use crate::error::{Error, Result};
use crate::image::ProcessImage;
use crate::restore::host::Machine;
use crate::restore::xstate;

const WHAT: &str = "restart on this host";

/// Checks the image against `machine`.
pub fn check(image: &ProcessImage, machine: &Machine, force: bool) -> Result<()> {
    if image.host.page_bytes != machine.host.page_bytes {
        let why = format!("pages had {} bytes, here they have {}", image.host.page_bytes, machine.host.page_bytes);
        return Err(Error::environment(WHAT, why, "restart on a host with the same page size"));
    }
    check_kernel()?;
    check_processor(image, machine, force)
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

fn check_processor(image: &ProcessImage, machine: &Machine, force: bool) -> Result<()> {
    let used = image.threads.iter().fold(0, |used, thread| used | xstate::used_components(&thread.extended_state));
    let relied_upon = if force { 0 } else { xstate::relied_upon(image.host.xcr0) };
    let missing = (used | relied_upon) & !machine.host.xcr0;
    if missing != 0 {
        let why = format!("the program uses {}, which this processor or kernel lacks", xstate::names(missing));
        let advice = format!("restart on a processor that has it, such as {}", image.host.processor);
        return Err(Error::environment(WHAT, why, advice));
    }
    if image.host.xcr0 != machine.host.xcr0
        && used & !xstate::FIXED_PLACE != 0
        && vendor(&image.host.processor) != vendor(&machine.host.processor)
    {
        let why =
            format!("processor state of {} has another layout on {}", image.host.processor, machine.host.processor);
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
        check(&sample::image(&machine), &machine, false).unwrap();
    }

    #[test]
    fn a_missing_feature_is_named() {
        let mut machine = Machine::this().unwrap();
        let mut image = sample::image(&machine);
        image.host.xcr0 |= 0xe0;
        machine.host.xcr0 = 0b111;
        let message = check(&image, &machine, false).unwrap_err().to_string();
        assert!(message.contains("AVX-512"), "{message}");
        check(&image, &machine, true).unwrap();
        image.threads[0].extended_state[512] |= 0xe0;
        assert!(check(&image, &machine, true).unwrap_err().to_string().contains("AVX-512"));
    }

    #[test]
    fn another_layout_is_refused_only_when_something_depends_on_it() {
        let mut machine = Machine::this().unwrap();
        machine.host.processor = "AMD EPYC".into();
        let mut image = sample::image(&machine);
        image.host.processor = "Intel(R) Xeon(R)".into();
        image.host.xcr0 &= !(1 << 9);
        machine.host.xcr0 |= 1 << 9;
        check(&image, &machine, false).unwrap();
        image.threads[0].extended_state[513] |= 0b10;
        assert!(check(&image, &machine, false).unwrap_err().to_string().contains("another layout"));
    }
}
