//! The processor's extended state: what a checkpoint carries, and what another host must have to restart it.

use std::arch::x86_64::{__cpuid, _xgetbv};

use super::finding::{Finding, State};

const PROBE: &str = "processor";
const TRIED: &str = "read cpuid and XCR0";
const OSXSAVE: u32 = 1 << 27;

/// State components of XCR0 and their names for people.
const COMPONENTS: [(u64, &str); 4] =
    [(1 << 2, "AVX"), (0b111 << 5, "AVX-512"), (1 << 9, "protection keys"), (0b11 << 17, "AMX")];

/// The probe.
pub fn probe() -> Finding {
    let Some(xcr0) = xcr0() else {
        return Finding::new(PROBE, TRIED, State::No, "no XSAVE", "use a processor and a kernel with XSAVE").required();
    };
    let names = COMPONENTS.iter().filter(|(bits, _)| xcr0 & bits == *bits).map(|(_, name)| *name);
    let names = names.collect::<Vec<_>>().join(", ");
    Finding::new(PROBE, TRIED, State::Ok, format!("XCR0 {xcr0:#x}: {names}"), "").required()
}

fn xcr0() -> Option<u64> {
    if __cpuid(1).ecx & OSXSAVE == 0 {
        return None;
    }
    // SAFETY: OSXSAVE says that the instruction may be used.
    Some(unsafe { read_xcr0() })
}

#[target_feature(enable = "xsave")]
fn read_xcr0() -> u64 {
    // SAFETY: register 0 exists on every processor with XSAVE.
    unsafe { _xgetbv(0) }
}
