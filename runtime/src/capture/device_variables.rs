//! Variables of device code that the program has loaded and never asked for: kernels use them all the same.
//!
//! libckpt.so says what is loaded ([`ckpt_wire::device::CodeBlock`]). The names are read from each image once, as long as
//! nothing stands still yet; then the program's keeper asks the driver where those variables are, and records them as if
//! the program had asked: they are allocations like others, with ids that stay, and go with their module.
//!
//! An image that cannot be read or understood never fails a checkpoint: it is named in the log, once.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ckpt_wire::device::{self as wire, CODE_FILE, CODE_MODULE, CodeBlock, LoadedCode};
use ckpt_wire::{Control, SCRATCH_BYTES};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::hold::Hold;
use super::list::Walk;
use super::program::Program;
use crate::device_code;
use crate::error::{Error, Result};
use crate::ptrace::{read_memory, write_memory};
use crate::rights::Rights;

/// More blocks than a program has: the list of one that has overwritten it ends somewhere.
const BLOCKS_MAX: usize = 1 << 12;
/// The longest image that is read.
const IMAGE_BYTES_MAX: u64 = 1 << 30;
/// What a packed part of an image may take when it is unpacked.
const UNPACKED_BYTES_MAX: u64 = 256 << 20;
/// The longest path that libckpt.so keeps.
const PATH_BYTES_MAX: u64 = 64 << 10;

/// What is known of the code that a program has loaded, by its id.
#[derive(Default)]
pub struct Variables {
    of: BTreeMap<u64, Names>,
}

/// The variables of a module or a library.
#[derive(Default)]
struct Names {
    names: Vec<String>,
    /// How many contexts had come when all of them were recorded last.
    recorded_at: Option<u64>,
    /// That the driver refuses is in the log.
    is_refusal_logged: bool,
}

impl Variables {
    /// Reads the names in code that is new, and forgets what is no longer loaded: how many contexts have come so far.
    ///
    /// # Errors
    /// When the program's tables cannot be read.
    pub fn read(&mut self, program: &Program, control: &Control) -> Result<u64> {
        if control.hold == 0 {
            return Ok(0);
        }
        let mut hold = wire::Hold::new_zeroed();
        read_memory(program.pid, control.hold, hold.as_mut_bytes())?;
        let loaded = loaded(program.pid, hold.code)?;
        let ids: BTreeSet<u64> = loaded.iter().map(|code| code.id).collect();
        self.of.retain(|id, _| ids.contains(id));
        for code in &loaded {
            self.of
                .entry(code.id)
                .or_insert_with(|| Names { names: names_or_none(program.pid, code), ..Names::default() });
        }
        Ok(hold.contexts)
    }

    /// Has all of them recorded that are not yet, in a program that is held.
    ///
    /// # Errors
    /// When the program cannot be asked. That the driver refuses is none: it is logged.
    pub fn record(&mut self, hold: &Hold<'_>, program: &Program, control: &Control) -> Result<()> {
        let contexts = self.read(program, control)?;
        let unrecorded = self.of.iter_mut().filter(|(_, names)| names.recorded_at != Some(contexts));
        for (&id, names) in unrecorded {
            match record_all(hold, program, control, id, &names.names)? {
                Ok(new) => {
                    names.recorded_at = Some(contexts);
                    log::debug!("device code {id} of process {}: {new} variables are new", program.pid);
                }
                Err(error) if !std::mem::replace(&mut names.is_refusal_logged, true) => log::warn!(
                    "the CUDA driver of process {} does not say where variables of its device code are (error {error}): \
                     those that it has not asked for itself are in no checkpoint",
                    program.pid
                ),
                Err(_) => {}
            }
        }
        Ok(())
    }
}

/// Has the variables of some code recorded, as many as can be: how many are new, or the driver's error.
fn record_all(
    hold: &Hold<'_>,
    program: &Program,
    control: &Control,
    id: u64,
    names: &[String],
) -> Result<std::result::Result<u64, i32>> {
    let (mut all_new, mut refused) = (0, None);
    for name in names {
        let zero_terminated = [name.as_bytes(), b"\0"].concat();
        write_memory(program.pid, control.scratch, &zero_terminated)?;
        match hold.record_variable(id, control.scratch)? {
            Ok([_, new]) => all_new += new,
            Err(error) => refused = Some(error),
        }
    }
    Ok(refused.map_or(Ok(all_new), Err))
}

/// All code that is loaded.
fn loaded(pid: i32, newest: u64) -> Result<Vec<LoadedCode>> {
    let (mut all, mut next, mut walk) = (Vec::new(), newest, Walk::new::<CodeBlock>(BLOCKS_MAX));
    while walk.goes_on(next) {
        let mut block = vec![0_u64; size_of::<CodeBlock>() / 8];
        read_memory(pid, next, block.as_mut_bytes())?;
        // Its length and its alignment are the type's: it always fits.
        let Ok(block) = CodeBlock::ref_from_bytes(block.as_bytes()) else { break };
        all.extend(block.code.iter().filter(|code| code.id != 0).copied());
        next = block.next;
    }
    Ok(all)
}

/// The names of the variables in some code; none, and a line in the log, if it cannot be read.
fn names_or_none(pid: i32, code: &LoadedCode) -> Vec<String> {
    let what = if code.kind == CODE_MODULE { "module" } else { "library" };
    let found = image(pid, code).and_then(|image| device_code::variables_within(&image, UNPACKED_BYTES_MAX));
    let mut names: Vec<String> = found.map_or_else(
        |error| {
            log::warn!(
                "variables of a CUDA {what} of process {pid} that it does not ask for are in no checkpoint: {error}"
            );
            Vec::new()
        },
        |variables| variables.into_iter().map(|variable| variable.name).collect(),
    );
    names.dedup();
    names.retain(|name| {
        let can_be_asked_for = name.len() < SCRATCH_BYTES && !name.contains('\0');
        if !can_be_asked_for {
            let start = &name.as_bytes()[..name.len().min(64)];
            log::warn!("a variable of process {pid} is in no checkpoint, for its name is too long: {start:?}");
        }
        can_be_asked_for
    });
    names
}

/// The image that some code was loaded from.
fn image(pid: i32, code: &LoadedCode) -> Result<Vec<u8>> {
    let unreadable = |why: &str| {
        Err(Error::unsupported(
            format!("an image of {} bytes of device code", code.bytes),
            why.to_owned(),
            "have the program ask for its variables",
        ))
    };
    match code {
        LoadedCode { image: 0, .. } => unreadable("no copy of it could be kept: it is in no known form, or too long"),
        LoadedCode { place: CODE_FILE, bytes, .. } if *bytes <= PATH_BYTES_MAX => read_file(pid, &path(pid, code)?),
        _ if code.bytes > IMAGE_BYTES_MAX => unreadable("it is too long to be searched for variables"),
        _ => {
            let mut image = vec![0; code.bytes as usize];
            read_memory(pid, code.image, &mut image).map(|()| image)
        }
    }
}

/// The file of that name, as the program sees it.
fn path(pid: i32, code: &LoadedCode) -> Result<PathBuf> {
    let mut path = vec![0; code.bytes as usize];
    read_memory(pid, code.image, &mut path)?;
    let path = OsStr::from_bytes(ckpt_wire::text(&path));
    let relative = Path::new(path).strip_prefix("/").unwrap_or(Path::new(path));
    Ok(Path::new(&format!("/proc/{pid}/root")).join(relative))
}

/// What is in a file that process `pid` may read, and a zero behind it: PTX ends with one.
fn read_file(pid: i32, path: &Path) -> Result<Vec<u8>> {
    let failed = |source| Error::io("read device code in", path, source);
    // Whatever has its name by now: a pipe is not waited for.
    let open = || OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = Rights::of_process(pid)?.act(open).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    if !about.is_file() || about.len() > IMAGE_BYTES_MAX {
        return Err(failed(std::io::ErrorKind::InvalidData.into()));
    }
    let mut image = Vec::new();
    file.take(IMAGE_BYTES_MAX).read_to_end(&mut image).map_err(failed)?;
    image.push(0);
    Ok(image)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Device code as libckpt.so shows it, but in this process.
    fn code(place: u32, image: &[u8]) -> LoadedCode {
        LoadedCode { id: 1, image: image.as_ptr() as u64, bytes: image.len() as u64, place, ..LoadedCode::default() }
    }

    fn names(code: &LoadedCode) -> Vec<String> {
        names_or_none(std::process::id() as i32, code)
    }

    const PTX: &[u8] = b".version 7.0\n.target sm_80\n.address_size 64\n.global .align 4 .b8 counts[16];\n";

    #[test]
    fn names_are_read_from_memory_and_from_files_of_which_text_need_not_end_with_a_zero() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("code.ptx");
        std::fs::write(&path, PTX).unwrap();
        assert_eq!(names(&code(wire::CODE_COPY, &[PTX, b"\0"].concat())), ["counts"]);
        assert_eq!(names(&code(CODE_FILE, &[path.as_os_str().as_bytes(), b"\0"].concat())), ["counts"]);
    }

    #[test]
    fn what_cannot_be_read_has_no_names() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRUSR).unwrap();
        let file = |path: &Path| code(CODE_FILE, path.as_os_str().as_bytes());
        let wrong = [
            code(wire::CODE_COPY, &PTX[..30]),
            LoadedCode { image: 0, ..code(wire::CODE_COPY, PTX) },
            LoadedCode { image: 64, ..code(wire::CODE_IN_PLACE, PTX) },
            LoadedCode { bytes: u64::MAX, ..code(wire::CODE_IN_PLACE, PTX) },
            LoadedCode { bytes: u64::MAX, ..code(CODE_FILE, PTX) },
            file(&pipe),
            file(&folder.path().join("nothing")),
            file(folder.path()),
        ];
        for code in wrong {
            assert_eq!(names(&code), [""; 0], "{code:?}");
        }
    }
}
