//! The kernel.

use super::finding::{Finding, State};

const PROBE: &str = "kernel";
const TRIED: &str = "read uname";
/// PAGEMAP_SCAN and userfaultfd's asynchronous write protection came with it.
const FAST_SINCE: (u32, u32) = (6, 7);
/// clone3 with set_tid, which a restart needs.
const POSSIBLE_SINCE: (u32, u32) = (5, 9);

/// The probe.
pub fn probe() -> Finding {
    let release = super::finding::setting("/proc/sys/kernel/osrelease").unwrap_or_default();
    let (state, advice) = match version(&release) {
        Some(version) if version >= FAST_SINCE => (State::Ok, ""),
        Some(version) if version >= POSSIBLE_SINCE => {
            (State::Degraded, "use Linux 6.7 or newer: before it, every checkpoint reads all memory")
        }
        Some(_) => (State::No, "use Linux 5.9 or newer, better 6.7"),
        None => (State::Degraded, "see whether the other rows are ok: the version is not readable"),
    };
    Finding::new(PROBE, TRIED, state, format!("Linux {release}"), advice).required()
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|character: char| !character.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_version_is_the_first_two_numbers() {
        assert_eq!(super::version("6.18.44-fc-v595"), Some((6, 18)));
        assert_eq!(super::version("5.10-generic"), Some((5, 10)));
        assert_eq!(super::version("x"), None);
    }
}
