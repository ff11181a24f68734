//! A running program that has libckpt.so loaded or was adopted, and where its control block is.
//!
//! The control block is found through the ELF symbol table that the dynamic linker has mapped in the program's
//! memory, not in a file: the file may have been replaced since, and in a restarted program the mapping may not even have a name.

use std::os::fd::OwnedFd;

use ckpt_wire::{
    CONTROL_BYTES_MIN, CONTROL_MAGIC, CONTROL_SYMBOL, CONTROL_VERSION, Control, STATE_READY, STATE_REFUSED,
};
use nix::unistd::geteuid;
use object::LittleEndian;
use object::elf::{
    DT_GNU_HASH, DT_STRTAB, DT_SYMTAB, Dyn64, DynamicTag, FileHeader64, PT_DYNAMIC, PT_LOAD, ProgramHeader64,
    SHN_UNDEF, Sym64,
};
use object::pod::slice_from_bytes;
use object::read::elf::GnuHashTable;
use zerocopy::FromBytes;

use super::adoption::resident::is_resident;
use super::stop;
use crate::descriptor::pidfd_open;
use crate::error::{Error, Result};
use crate::proc::{DELETED, clocks, maps, pagemap, task};
use crate::ptrace::read_memory;

/// Bytes of images that are searched in one process: a stranger may have any number of them.
const IMAGES_BYTES_MAX: u64 = 128 << 20;

type Le = LittleEndian;
const LE: Le = LittleEndian;

/// A running program that can be checkpointed.
#[derive(Debug)]
pub struct Program {
    /// Its pid.
    pub pid: i32,
    /// Readable once it has ended; also the handle by which its descriptors are fetched.
    pub pidfd: OwnedFd,
    /// Address of its control block.
    pub control_address: u64,
}

impl Program {
    /// Finds the control block of process `pid`.
    pub fn find(pid: i32) -> Result<Program> {
        let pidfd = pidfd_open(pid)?;
        let mappings = maps::outline(pid).map_err(|error| match error {
            Error::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => denied(pid),
            other => other,
        })?;
        if mappings.is_empty() {
            // The memory of a process goes with its main thread, as far as /proc shows it.
            return Err(stop::ended(pid));
        }
        // Named mappings first; the unnamed ones matter only after a restart that could not map the old file.
        let named = mappings.iter().filter(|mapping| file_name(&mapping.name).starts_with(b"libckpt"));
        let unnamed = mappings.iter().filter(|mapping| mapping.name.is_empty());
        // To look into a page that is not there would bring it in, and what is a stranger's must not notice.
        let unnamed = unnamed.filter(|mapping| pagemap::has_page(pid, mapping.start).unwrap_or(true));
        let mut left_bytes = IMAGES_BYTES_MAX;
        for mapping in named.chain(unnamed) {
            let readable = mapping.protection & libc::PROT_READ != 0;
            if mapping.offset != 0 || !readable || mapping.bytes() > 1 << 20 {
                continue;
            }
            if mapping.name.is_empty() && is_adopted(pid, mapping) {
                return Ok(Program { pid, pidfd, control_address: mapping.start });
            }
            if !is_elf(pid, mapping) {
                continue;
            }
            left_bytes = left_bytes.saturating_sub(mapping.bytes());
            if left_bytes == 0 {
                break;
            }
            // Something else, or nothing, is at that address until its constructor has run.
            if let Some(control_address) = symbol_in_memory(pid, mapping, CONTROL_SYMBOL)
                && read_control(pid, control_address).is_ok()
            {
                return Ok(Program { pid, pidfd, control_address });
            }
        }
        Err(Error::NotPreloaded { pid })
    }

    /// Reads the control block; refuses when it is not one, not ready, or from an unknown version.
    pub fn control(&self) -> Result<Box<Control>> {
        let control = read_control(self.pid, self.control_address)?;
        if control.version != CONTROL_VERSION || (control.bytes as usize) < CONTROL_BYTES_MIN {
            return Err(Error::environment(
                format!("process {}", self.pid),
                format!("its libckpt.so speaks protocol {}, this ckpt {CONTROL_VERSION}", control.version),
                "use the ckpt that belongs to its libckpt.so",
            ));
        }
        match control.state {
            STATE_READY => Ok(control),
            STATE_REFUSED => Err(Error::unsupported(
                format!("process {}", self.pid),
                String::from_utf8_lossy(ckpt_wire::text(&control.reason)),
                "start it again with this corrected",
            )),
            _ => Err(Error::environment(
                format!("process {}", self.pid),
                "it is still being loaded",
                "try again in a moment",
            )),
        }
    }

    /// Whether the constructor of libckpt.so has not come to its end yet.
    pub fn is_loading(&self) -> bool {
        let control = read_control(self.pid, self.control_address);
        control.is_ok_and(|control| !matches!(control.state, STATE_READY | STATE_REFUSED))
    }

    /// Another handle of the same program.
    pub fn try_clone(&self) -> Result<Program> {
        let pidfd = self
            .pidfd
            .try_clone()
            .map_err(|source| Error::io("keep a pidfd of", format!("/proc/{}", self.pid), source))?;
        Ok(Program { pid: self.pid, pidfd, control_address: self.control_address })
    }

    /// The job's mark and pid namespace; where it has none, the program's own pid, start time and pid namespace: a name that is
    /// never used again, and the same from wherever it is looked at.
    pub fn identity(&self) -> Result<String> {
        self.identity_by(&*self.control()?)
    }

    /// The same by its control block. Another program that it executes has the same.
    pub fn identity_by(&self, control: &Control) -> Result<String> {
        let mark = control.mark;
        let own = task::ids_in_namespaces(self.pid)?.last().copied().unwrap_or(self.pid);
        let namespace = task::link(self.pid, "ns/pid")?;
        let inode: String = String::from_utf8_lossy(&namespace).chars().filter(char::is_ascii_digit).collect();
        if mark != 0 {
            return Ok(format!("{mark:016x}-{inode}"));
        }
        Ok(format!("{own}-{}-{inode}", clocks::start_time(self.pid)?))
    }
}

/// The path of the executable of process `pid`: where the kernel shows ours, because a restart might not change that, what the
/// control block says.
pub fn executable(pid: i32, control: &Control) -> Result<Vec<u8>> {
    let told = ckpt_wire::text(&control.executable);
    if !told.is_empty() {
        return Ok(told.to_vec());
    }
    let mut path = task::link(pid, "exe")?;
    if path.ends_with(DELETED) {
        path.truncate(path.len() - DELETED.len());
    }
    Ok(path)
}

/// Finds out why the memory of process `pid` is not ours to read.
fn denied(pid: i32) -> Error {
    let status = task::text(pid, "status").unwrap_or_default();
    // Real, effective and saved user, and the one for files.
    let users: Vec<&str> = task::status_value(&status, "Uid").unwrap_or_default().split_whitespace().collect();
    let our_own = geteuid().to_string();
    let (why, advice) = if users.iter().all(|user| *user == our_own) && !users.is_empty() {
        let why = "it may not be looked at: it is not dumpable (PR_SET_DUMPABLE, rights from its executable, or an executable \
                   that may not be read)";
        (
            why,
            "let the program leave that flag as it is, or use root: ckpt checkpoint --dir DIR PID, with a directory of root's",
        )
    } else {
        ("permission denied: it belongs to another user, or may not be traced", "use the program's own user, or root")
    };
    Error::environment(format!("reading process {pid}"), why, advice)
}

/// Whether `mapping` is what a program without libckpt.so was given.
fn is_adopted(pid: i32, mapping: &maps::Mapping) -> bool {
    let mut magic = [0; 8];
    read_memory(pid, mapping.start, &mut magic).is_ok()
        && u64::from_le_bytes(magic) == CONTROL_MAGIC
        && read_control(pid, mapping.start).is_ok_and(|control| is_resident(&control, mapping.end))
}

/// The block as the program's libckpt.so has it. An older one, frozen in a checkpoint, has fewer fields: those that it
/// lacks are zero.
fn read_control(pid: i32, address: u64) -> Result<Box<Control>> {
    let not_preloaded = || Error::NotPreloaded { pid };
    let parsed = |bytes: &[u8]| Control::read_from_bytes(bytes).map(Box::new).map_err(|_| not_preloaded());
    let mut bytes = vec![0; size_of::<Control>()];
    read_memory(pid, address, &mut bytes[..CONTROL_BYTES_MIN])?;
    let first = parsed(&bytes)?;
    if first.magic != CONTROL_MAGIC {
        return Err(not_preloaded());
    }
    let end = (first.bytes as usize).clamp(CONTROL_BYTES_MIN, bytes.len());
    let later = address + CONTROL_BYTES_MIN as u64;
    read_memory(pid, later, &mut bytes[CONTROL_BYTES_MIN..end])?;
    parsed(&bytes)
}

fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}

/// Whether an ELF image begins there.
fn is_elf(pid: i32, mapping: &maps::Mapping) -> bool {
    let mut first_word = [0; 4];
    read_memory(pid, mapping.start, &mut first_word).is_ok() && first_word == object::elf::ELFMAG
}

/// Address of the defined symbol `name` in the ELF image whose first segment is `mapping`.
///
/// The first segment holds headers, hash table, symbols and strings; anything that points outside it, or does
/// not fit, means that this is not the image we look for.
fn symbol_in_memory(pid: i32, mapping: &maps::Mapping, name: &str) -> Option<u64> {
    let mut image = vec![0; mapping.bytes() as usize];
    read_memory(pid, mapping.start, &mut image).ok()?;
    let (header, _) = object::pod::from_bytes::<FileHeader64<Le>>(&image).ok()?;
    let count = header.e_phnum.get(LE) as usize;
    let table = image.get(header.e_phoff.get(LE) as usize..)?;
    let (segments, _) = slice_from_bytes::<ProgramHeader64<Le>>(table, count).ok()?;
    let first = segments.iter().find(|segment| segment.p_type.get(LE) == PT_LOAD)?;
    let bias = mapping.start.checked_sub(first.p_vaddr.get(LE))?;
    let dynamic = segments.iter().find(|segment| segment.p_type.get(LE) == PT_DYNAMIC)?;

    let mut entries = vec![0; usize::try_from(dynamic.p_memsz.get(LE)).ok()?.min(1 << 16)];
    read_memory(pid, bias.checked_add(dynamic.p_vaddr.get(LE))?, &mut entries).ok()?;
    let (entries, _) = slice_from_bytes::<Dyn64<Le>>(&entries, entries.len() / size_of::<Dyn64<Le>>()).ok()?;
    let part = |tag: DynamicTag| {
        let value = entries.iter().find(|entry| entry.d_tag.get(LE) == tag)?.d_val.get(LE);
        // glibc's dynamic linker has added the bias in place; others may not have.
        let address = if value >= bias { value } else { value.checked_add(bias)? };
        image.get(usize::try_from(address.checked_sub(mapping.start)?).ok()?..)
    };
    let hash = GnuHashTable::<FileHeader64<Le>>::parse(LE, part(DT_GNU_HASH)?).ok()?;
    let count = hash.symbol_table_length(LE)? as usize;
    let (symbols, _) = slice_from_bytes::<Sym64<Le>>(part(DT_SYMTAB)?, count).ok()?;
    let strings = part(DT_STRTAB)?;
    let symbol = symbols.iter().find(|symbol| {
        symbol.st_shndx.get(LE) != SHN_UNDEF
            && strings
                .get(symbol.st_name.get(LE) as usize..)
                .and_then(|text| text.get(..=name.len()))
                .is_some_and(|text| text.split_last() == Some((&0, name.as_bytes())))
    })?;
    bias.checked_add(symbol.st_value.get(LE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::{FromZeros, IntoBytes};

    /// The control block of this process as if libckpt.so had written `bytes` of it.
    fn control_of_bytes(bytes: usize) -> Result<Box<Control>> {
        let mut control = Box::new(Control::new_zeroed());
        (control.magic, control.version, control.state) = (CONTROL_MAGIC, CONTROL_VERSION, STATE_READY);
        (control.bytes, control.digest) = (bytes as u32, ckpt_wire::DIGEST_BLAKE3);
        let pid = std::process::id() as i32;
        let control_address = control.as_bytes().as_ptr() as u64;
        Program { pid, pidfd: pidfd_open(pid).unwrap(), control_address }.control()
    }

    #[test]
    fn a_field_that_an_older_libckpt_lacks_is_zero() {
        let bytes = size_of::<Control>();
        assert_eq!(control_of_bytes(bytes).unwrap().digest, ckpt_wire::DIGEST_BLAKE3);
        assert_eq!(control_of_bytes(bytes + 100).unwrap().digest, ckpt_wire::DIGEST_BLAKE3, "a newer one has more");
        assert_eq!(control_of_bytes(CONTROL_BYTES_MIN).unwrap().digest, ckpt_wire::DIGEST_ANY);
        assert!(control_of_bytes(CONTROL_BYTES_MIN - 1).is_err());
    }
}
