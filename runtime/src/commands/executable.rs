//! Which file a command line really executes, and whether the dynamic linker will load libckpt.so into it.
//!
//! Static programs have no dynamic linker and are adopted by their agent; set-uid programs have one that ignores LD_PRELOAD,
//! and nobody may look at them. Saying so before the program starts is better than an hour of computing that cannot be
//! checkpointed. Scripts are followed to the interpreter that runs them, as the kernel does.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{AccessFlags, access, getgid, getuid};

use crate::error::{Error, Result};
use crate::linkage::Linkage;

/// The kernel follows this many interpreters of scripts.
const INTERPRETERS_MAX: usize = 5;
/// Bytes that the kernel reads of a script's first line.
const SCRIPT_LINE_BYTES: usize = 256;
/// What runs a text without `#!`.
const SHELL: &str = "/bin/sh";

/// How the program is linked that `command` executes, as far as that can be known.
///
/// # Errors
/// If it cannot be checkpointed.
pub fn check(command: &OsStr) -> Result<Option<Linkage>> {
    let path_list = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/bin:/usr/bin"));
    let mut path = resolve(command, &path_list)
        .ok_or_else(|| Error::io("start", command, std::io::Error::from_raw_os_error(libc::ENOENT)))?;
    for _ in 0..INTERPRETERS_MAX {
        let start = read_start(&path)?;
        if start.starts_with(b"\x7fELF") {
            check_rights(&path)?;
            return linkage(&path).map(Some);
        }
        match interpreter(&start, &path_list) {
            Some(interpreter) => path = interpreter,
            None if start.starts_with(b"#!") => break,
            None => path = PathBuf::from(SHELL),
        }
    }
    // The kernel is about to say what is wrong with it.
    Ok(None)
}

/// The file that the shell would execute for `command`.
fn resolve(command: &OsStr, path_list: &OsStr) -> Option<PathBuf> {
    if command.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(command));
    }
    if command.is_empty() {
        return None;
    }
    std::env::split_paths(path_list)
        .map(|dir| if dir.as_os_str().is_empty() { Path::new(".").join(command) } else { dir.join(command) })
        .find(|path| path.is_file() && access(path, AccessFlags::X_OK).is_ok())
}

fn read_start(path: &Path) -> Result<Vec<u8>> {
    let failed = |source| Error::io("start", path, source);
    let mut start = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(SCRIPT_LINE_BYTES as u64).read_to_end(&mut start).map_err(failed)?,
        // A program may be executable without being readable; then there is nothing to check.
        Err(error)
            if error.kind() == std::io::ErrorKind::PermissionDenied && access(path, AccessFlags::X_OK).is_ok() =>
        {
            log::warn!("{} cannot be read, so ckpt does not know whether it can be checkpointed", path.display());
            return Ok(b"#!".to_vec());
        }
        Err(error) => return Err(failed(error)),
    };
    Ok(start)
}

/// The program that runs the script beginning with `start`. `#!/usr/bin/env NAME` is followed to NAME.
fn interpreter(start: &[u8], path_list: &OsStr) -> Option<PathBuf> {
    let line = start.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let mut words = line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
    let first = Path::new(OsStr::from_bytes(words.next()?));
    if first.file_name() == Some(OsStr::new("env"))
        && let Some(name) = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='))
        && let Some(found) = resolve(OsStr::from_bytes(name), path_list)
    {
        return Some(found);
    }
    Some(first.to_owned())
}

/// How the ELF file is linked; refuses one for another machine.
fn linkage(path: &Path) -> Result<Linkage> {
    match Linkage::of(path)? {
        Linkage::Foreign => {
            Err(Error::unsupported(path.display().to_string(), "it is not for 64-bit x86", "run a 64-bit build of it"))
        }
        linkage => Ok(linkage),
    }
}

/// Refuses a program that changes its rights when it starts: its dynamic linker ignores LD_PRELOAD.
fn check_rights(path: &Path) -> Result<()> {
    let found = std::fs::metadata(path).map_err(|source| Error::io("start", path, source))?;
    let reason = if changes_identity(&found, getuid().as_raw(), getgid().as_raw()) {
        "it is set-uid or set-gid"
    } else if !getuid().is_root() && has_capabilities(path) {
        "it has file capabilities"
    } else {
        return Ok(());
    };
    if rights_are_ignored(path) {
        return Ok(());
    }
    Err(Error::unsupported(
        path.display().to_string(),
        format!("{reason}, and nobody but root may look into such programs"),
        "run a copy without these rights, or run it as the user it changes to",
    ))
}

fn changes_identity(file: &Metadata, uid: u32, gid: u32) -> bool {
    let set_uid = file.mode() & libc::S_ISUID != 0 && file.uid() != uid;
    let both = libc::S_ISGID | libc::S_IXGRP;
    set_uid || (file.mode() & both == both && file.gid() != gid)
}

fn has_capabilities(path: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: both texts end with a zero; with a size of 0 nothing is written.
    unsafe { libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

/// Whether the kernel ignores such rights: because of the mount, or of us.
fn rights_are_ignored(path: &Path) -> bool {
    let no_new_privileges = nix::sys::prctl::get_no_new_privs().unwrap_or(false);
    no_new_privileges || statvfs(path).is_ok_and(|mount| mount.flags().contains(FsFlags::ST_NOSUID))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;

    fn write(dir: &Path, name: &str, content: &[u8], mode: u32) -> PathBuf {
        let path = dir.join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    /// A static program, or None where there is no C compiler with a static C library.
    fn static_program(dir: &Path) -> Option<PathBuf> {
        write(dir, "empty.c", b"int main(void) { return 0; }\n", 0o600);
        let path = dir.join("static");
        let built = Command::new("cc").arg("-static").arg("-o").arg(&path).arg(dir.join("empty.c")).output();
        built.is_ok_and(|output| output.status.success()).then_some(path)
    }

    #[test]
    fn a_dynamic_program_passes_by_name_and_by_path() {
        for command in ["true", "/bin/true", "/lib64/ld-linux-x86-64.so.2"] {
            assert_eq!(check(OsStr::new(command)).unwrap(), Some(Linkage::Dynamic));
        }
    }

    #[test]
    fn a_command_that_does_not_exist_fails_like_a_start_of_it() {
        for name in ["no-such-command-here", "/no/such/file", ""] {
            let error = check(OsStr::new(name)).unwrap_err();
            assert_eq!(error.exit_code(), crate::error::exit_code::FAILED, "{error}");
        }
    }

    #[test]
    fn a_static_program_is_noticed_also_behind_a_script() {
        let dir = tempfile::tempdir().unwrap();
        let Some(program) = static_program(dir.path()) else {
            eprintln!("skipped: no static C library");
            return;
        };
        let script = write(dir.path(), "script", format!("#! {} -x\n", program.display()).as_bytes(), 0o700);
        for path in [&program, &script] {
            assert_eq!(check(path.as_os_str()).unwrap(), Some(Linkage::Static));
        }
    }

    #[test]
    fn scripts_are_followed_to_their_interpreter() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [("a", "#!/bin/sh\n"), ("b", "#!/usr/bin/env -S FOO=1 sh -e\n"), ("c", "echo no line\n")] {
            check(write(dir.path(), name, text.as_bytes(), 0o700).as_os_str()).unwrap();
        }
        let path_list = OsStr::new("/bin");
        assert_eq!(interpreter(b"#!/usr/bin/env sh\n", path_list), Some(PathBuf::from("/bin/sh")));
        assert_eq!(interpreter(b"#! \t/bin/sed -f\nx", path_list), Some(PathBuf::from("/bin/sed")));
        assert_eq!(interpreter(b"echo", path_list), None);
    }

    #[test]
    fn scripts_that_name_each_other_end_the_search() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("loop");
        let script = write(dir.path(), "loop", format!("#!{}\n", path.display()).as_bytes(), 0o700);
        check(script.as_os_str()).unwrap();
    }

    #[test]
    fn another_machines_program_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut program = std::fs::read("/bin/true").unwrap();
        program[18] = 183; // e_machine: AArch64
        let path = write(dir.path(), "arm", &program, 0o700);
        assert!(check(path.as_os_str()).unwrap_err().to_string().contains("64-bit x86"));
        program[4] = 1; // ELFCLASS32
        let path = write(dir.path(), "narrow", &program, 0o700);
        assert!(check(path.as_os_str()).unwrap_err().to_string().contains("64-bit x86"));
    }

    #[test]
    fn a_program_that_changes_its_user_or_group_is_noticed_but_not_for_that_user() {
        let dir = tempfile::tempdir().unwrap();
        let set_uid = std::fs::metadata(write(dir.path(), "u", b"", 0o4755)).unwrap();
        assert!(changes_identity(&set_uid, set_uid.uid() + 1, set_uid.gid()));
        assert!(!changes_identity(&set_uid, set_uid.uid(), set_uid.gid() + 1));
        let set_gid = std::fs::metadata(write(dir.path(), "g", b"", 0o2755)).unwrap();
        assert!(changes_identity(&set_gid, set_gid.uid(), set_gid.gid() + 1));
        let locking = std::fs::metadata(write(dir.path(), "l", b"", 0o2745)).unwrap();
        assert!(!changes_identity(&locking, locking.uid(), locking.gid() + 1));
    }
}
