//! What this host offers to a rebuilt process: kernel, processor, special mappings.
//!
//! A process that is rebuilt gets its vdso and vvar by a move of the ones that the kernel gave to the restarter's
//! child, so what counts is this very process's own.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use ckpt_kernels::page_digest;

use crate::error::{Error, Result};
use crate::host;
use crate::image::{Host, SpecialMapping};
use crate::proc::maps::{self, Mapping};

/// Bytes of the `syscall` instruction.
const SYSCALL_CODE: [u8; 2] = [0x0f, 0x05];

/// This host.
#[derive(Debug)]
pub struct Machine {
    /// Kernel and processor.
    pub host: Host,
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
        vdso.content = Some(code.into());
        Ok(Machine { host: host::this(), special_mappings, vdso_syscall_offset: offset as u64 })
    }
}

fn vdso_unusable(why: &str) -> Error {
    Error::environment("rebuild a process on this kernel", why, "boot a kernel with the 64-bit vdso enabled (vdso=1)")
}

fn own_memory(mapping: &SpecialMapping) -> Result<Vec<u8>> {
    let path = Path::new("/proc/self/mem");
    let mut bytes = vec![0; mapping.bytes as usize];
    File::open(path)
        .and_then(|memory| memory.read_exact_at(&mut bytes, mapping.address))
        .map_err(|source| Error::io("read the vdso from", path, source))?;
    Ok(bytes)
}

/// The mappings that the kernel provides per process, as far as their place goes.
fn special_mappings() -> Result<Vec<SpecialMapping>> {
    let own = maps::outline(std::process::id() as i32)?;
    Ok(own.iter().filter(|mapping| mapping.name.starts_with(b"[v")).map(special_mapping).collect())
}

fn special_mapping(mapping: &Mapping) -> SpecialMapping {
    let name = String::from_utf8_lossy(&mapping.name).into_owned();
    SpecialMapping { name, address: mapping.start, bytes: mapping.bytes(), digest: None, content: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_has_a_vdso_with_a_system_call_in_it() {
        let machine = Machine::this().unwrap();
        let vdso = machine.special_mappings.iter().find(|mapping| mapping.name == "[vdso]").unwrap();
        assert!(vdso.digest.is_some() && machine.vdso_syscall_offset < vdso.bytes);
    }
}
