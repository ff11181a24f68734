//! This host, in the words of an image: what a restart compares with the host of the capture.

use ckpt_wire::Confinement;

use crate::image::Host;
use crate::net;
use crate::proc::confinement;

/// State components every x86-64 has: x87 and SSE.
const BASE_COMPONENTS: u64 = 0b11;

/// This host.
pub fn this() -> Host {
    with(confinement::own())
}

/// This host, with what confined the job when it began.
pub fn with(confinement: Option<Confinement>) -> Host {
    Host {
        kernel_release: kernel_release(),
        processor: processor(),
        xcr0: xcr0(),
        page_bytes: page_bytes(),
        ckpt_version: env!("CARGO_PKG_VERSION").to_owned(),
        user_map: user_map(),
        filters: confinement.map(|confinement| confinement.filters),
        no_new_privs: confinement.is_some_and(|confinement| confinement.no_new_privs),
        interfaces: net::interfaces(),
    }
}

fn user_map() -> Vec<[u32; 3]> {
    rows(&std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default())
}

fn rows(text: &str) -> Vec<[u32; 3]> {
    let row = |line: &str| {
        let mut numbers = line.split_ascii_whitespace().map_while(|word| word.parse().ok());
        Some([numbers.next()?, numbers.next()?, numbers.next()?])
    };
    text.lines().filter_map(row).collect()
}

/// Whether `user` stands for all users outside of our user namespace, root among them: they have one number in there.
pub fn is_user_from_outside(user: u32) -> bool {
    let overflow = std::fs::read_to_string("/proc/sys/kernel/overflowuid").unwrap_or_default();
    overflow.trim().parse() == Ok(user) && !is_in_map(&user_map(), user)
}

fn is_in_map(map: &[[u32; 3]], user: u32) -> bool {
    map.iter().any(|&[first, _, count]| user.checked_sub(first).is_some_and(|place| place < count))
}

fn kernel_release() -> String {
    // uname(2) fails only for a bad pointer.
    nix::sys::utsname::uname().map(|name| name.release().to_string_lossy().into_owned()).unwrap_or_default()
}

fn page_bytes() -> u32 {
    // SAFETY: sysconf takes a number and has no memory effects.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as u32 }
}

fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name"));
    name.and_then(|line| line.split_once(": ")).map(|(_, name)| name.to_owned()).unwrap_or_default()
}

/// The state components that the kernel enables.
pub fn xcr0() -> u64 {
    if !std::arch::is_x86_feature_detected!("xsave") {
        return BASE_COMPONENTS;
    }
    #[target_feature(enable = "xsave")]
    fn enabled() -> u64 {
        // SAFETY: register 0 exists wherever xsave is enabled by the system, which the detection checked.
        unsafe { std::arch::x86_64::_xgetbv(0) }
    }
    // SAFETY: xsave was detected above.
    unsafe { enabled() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_in_a_map_are_told_from_those_outside() {
        let map = rows("         0       1000          1\n       500        500        100\n");
        assert!(is_in_map(&map, 0) && is_in_map(&map, 599));
        assert!(!is_in_map(&map, 1) && !is_in_map(&map, 600) && !is_in_map(&[], 0));
        assert!(is_in_map(&rows("         0          0 4294967295\n"), 65534));
    }

    #[test]
    fn this_host_has_pages_of_4_kib_and_at_least_sse() {
        let host = this();
        assert_eq!(host.page_bytes, 4096);
        assert_eq!(host.xcr0 & BASE_COMPONENTS, BASE_COMPONENTS);
        assert!(!host.kernel_release.is_empty());
        assert!(!host.user_map.is_empty());
    }
}
