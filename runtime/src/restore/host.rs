//! What this host offers, in the words of an image: kernel, processor state, special mappings.
//!
//! A process that is rebuilt gets its vdso and vvar by a move of the ones that the kernel gave to the restarter's
//! child, so what counts is this very process's own.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use ckpt_kernels::page_digest;

use crate::error::{Error, Result};
use crate::image::SpecialMapping;

/// Bytes of the `syscall` instruction.
const SYSCALL_CODE: [u8; 2] = [0x0f, 0x05];
/// State components every x86-64 has: x87 and SSE.
const BASE_COMPONENTS: u64 = 0b11;

/// This host.
#[derive(Debug)]
pub struct Machine {
    /// `uname -r`.
    pub kernel_release: String,
    /// Name of the processor.
    pub processor: String,
    /// XCR0.
    pub xcr0: u64,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// `[vdso]`, `[vvar]` and their like in this process, ascending.
    pub special_mappings: Vec<SpecialMapping>,
    /// Offset of a `syscall` instruction in the vdso.
    pub vdso_syscall_offset: u64,
}

impl Machine {
    /// Address of the `syscall` instruction in this process and in its forks.
    pub fn syscall(&self) -> u64 {
        let vdso = self.special_mappings.iter().find(|mapping| mapping.name == "[vdso]");
        vdso.map_or(0, |vdso| vdso.address) + self.vdso_syscall_offset
    }

    /// Looks at the host.
    pub fn this() -> Result<Machine> {
        let mut special_mappings = special_mappings()?;
        let vdso = special_mappings
            .iter_mut()
            .find(|mapping| mapping.name == "[vdso]")
            .ok_or_else(|| vdso_unusable("the kernel gives processes no vdso"))?;
        let code = own_memory(vdso)?;
        vdso.digest = Some(page_digest::sha1(&code));
        let offset = code
            .windows(SYSCALL_CODE.len())
            .position(|window| window == SYSCALL_CODE)
            .ok_or_else(|| vdso_unusable("its vdso holds no `syscall` instruction"))?;
        Ok(Machine {
            kernel_release: kernel_release()?,
            processor: processor(),
            xcr0: xcr0(),
            page_bytes: page_bytes(),
            special_mappings,
            vdso_syscall_offset: offset as u64,
        })
    }
}

fn vdso_unusable(why: &str) -> Error {
    Error::environment("rebuild a process on this kernel", why, "boot a kernel with the 64-bit vdso enabled (vdso=1)")
}

fn kernel_release() -> Result<String> {
    let name = nix::sys::utsname::uname().map_err(|source| Error::io("call uname for", "the kernel", source))?;
    Ok(name.release().to_string_lossy().into_owned())
}

fn page_bytes() -> u32 {
    // SAFETY: sysconf takes a number and has no memory effects.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as u32 }
}

fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name"));
    name.and_then(|line| line.split_once(": ")).map(|(_, name)| name.to_owned()).unwrap_or_default()
}

/// The state components that the kernel enables.
fn xcr0() -> u64 {
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

fn own_memory(mapping: &SpecialMapping) -> Result<Vec<u8>> {
    let path = Path::new("/proc/self/mem");
    let mut bytes = vec![0; mapping.bytes as usize];
    File::open(path)
        .and_then(|memory| memory.read_exact_at(&mut bytes, mapping.address))
        .map_err(|source| Error::io("read the vdso from", path, source))?;
    Ok(bytes)
}

fn special_mappings() -> Result<Vec<SpecialMapping>> {
    let path = Path::new("/proc/self/maps");
    let text = fs::read(path).map_err(|source| Error::io("read", path, source))?;
    Ok(text.split(|&byte| byte == b'\n').filter_map(special_mapping).collect())
}

/// The mapping on one line of `/proc/PID/maps`, if the kernel provides it per process.
fn special_mapping(line: &[u8]) -> Option<SpecialMapping> {
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let name = words.nth(4)?;
    if !name.starts_with("[v") || name == "[vsyscall]" {
        return None;
    }
    let address = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    Some(SpecialMapping { name: name.to_owned(), address, bytes: end.checked_sub(address)?, digest: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_kernel_provides_per_process_is_special() {
        let vvar = special_mapping(b"7f12d5fcf000-7f12d5fd3000 r--p 00000000 00:00 0                   [vvar]");
        let expected = SpecialMapping { name: "[vvar]".into(), address: 0x7f12_d5fc_f000, bytes: 0x4000, digest: None };
        assert_eq!(vvar, Some(expected));
        assert_eq!(special_mapping(b"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0  [vsyscall]"), None);
        assert_eq!(special_mapping(b"7ffc0-7ffd0 rw-p 00000000 00:00 0  [stack]"), None);
        assert_eq!(special_mapping(b"1000-2000 r--p 00000000 fe:00 7    /[vdso]"), None);
        assert_eq!(special_mapping(b""), None);
    }

    #[test]
    fn this_host_has_a_vdso_with_a_system_call_in_it() {
        let machine = Machine::this().unwrap();
        assert_eq!(machine.page_bytes, 4096);
        assert_eq!(machine.xcr0 & BASE_COMPONENTS, BASE_COMPONENTS);
        let vdso = machine.special_mappings.iter().find(|mapping| mapping.name == "[vdso]").unwrap();
        assert!(vdso.digest.is_some() && machine.vdso_syscall_offset < vdso.bytes);
    }
}
