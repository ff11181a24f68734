//! Who loads an executable: the kernel alone, or a dynamic linker, which loads libckpt.so too.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use object::elf;
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, ReadCache};

use crate::error::{Error, Result};

/// How an executable is linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linkage {
    /// It has a dynamic linker, or is one.
    Dynamic,
    /// The kernel loads it, and nobody loads libckpt.so.
    Static,
    /// It is for another machine.
    Foreign,
}

impl Linkage {
    /// How the ELF file `path` is linked; a link as /proc/PID/exe is followed.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn of(path: &Path) -> Result<Linkage> {
        let file = File::open(path).map_err(|source| Error::io("open", path, source))?;
        let cache = ReadCache::new(file);
        let Ok(executable) = ElfFile64::<Endianness, _>::parse(&cache) else {
            return Ok(Linkage::Foreign);
        };
        let (header, endian) = (executable.elf_header(), executable.endian());
        if header.e_machine(endian) != elf::EM_X86_64 {
            return Ok(Linkage::Foreign);
        }
        let mut segments = executable.elf_program_headers().iter();
        let has_linker = segments.any(|segment| segment.p_type(endian) == elf::PT_INTERP);
        Ok(if has_linker || is_dynamic_linker(path) { Linkage::Dynamic } else { Linkage::Static })
    }
}

/// Whether `path` is a dynamic linker, which loads LD_PRELOAD by itself: `ld.so ./program`.
fn is_dynamic_linker(path: &Path) -> bool {
    std::fs::canonicalize(path).is_ok_and(|path| {
        path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"ld-linux") || name == "ld.so")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_with_a_dynamic_linker_and_the_linker_itself_are_dynamic() {
        for path in ["/bin/true", "/proc/self/exe", "/lib64/ld-linux-x86-64.so.2"] {
            assert_eq!(Linkage::of(Path::new(path)).unwrap(), Linkage::Dynamic, "{path}");
        }
    }

    #[test]
    fn another_machines_program_is_foreign() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("program");
        let mut program = std::fs::read("/bin/true").unwrap();
        program[18] = 183; // e_machine: AArch64
        std::fs::write(&path, &program).unwrap();
        assert_eq!(Linkage::of(&path).unwrap(), Linkage::Foreign);
        program[4] = 1; // ELFCLASS32
        std::fs::write(&path, &program).unwrap();
        assert_eq!(Linkage::of(&path).unwrap(), Linkage::Foreign);
        assert!(Linkage::of(&dir.path().join("none")).is_err());
    }
}
