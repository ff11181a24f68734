//! The `restart.sh` at the top of every store: how to come back without remembering how.

use std::fs::{self, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use crate::error::{Error, Result};

const NAME: &str = "restart.sh";
const MODE: u32 = 0o700;

/// Writes `restart.sh` into the store at `dir`, for the executable at `ckpt`. A script that is already right is
/// left alone; another one is replaced in one step.
pub fn write_restart_script(dir: &Path, ckpt: &Path) -> Result<()> {
    let path = dir.join(NAME);
    let content = script(ckpt);
    let mode = fs::symlink_metadata(&path).ok().filter(|found| found.is_file()).map(|found| found.permissions().mode());
    if mode.is_some_and(|mode| mode & 0o777 == MODE) && fs::read(&path).is_ok_and(|found| found == content) {
        return Ok(());
    }
    let unfinished = dir.join(format!(".{NAME}.{}", std::process::id()));
    let outcome = write(&unfinished, &content)
        .and_then(|()| fs::rename(&unfinished, &path))
        .map_err(|source| Error::io("write", &path, source));
    if outcome.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    outcome
}

fn write(path: &Path, content: &[u8]) -> std::io::Result<()> {
    // Left behind by a process that had our pid and died here.
    let _ = fs::remove_file(path);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(path)?;
    file.set_permissions(Permissions::from_mode(MODE))?;
    file.write_all(content)?;
    file.sync_all()
}

fn script(ckpt: &Path) -> Vec<u8> {
    let mut script = b"#!/bin/sh
# Restarts the newest checkpoint of this store; arguments are those of `ckpt restart`.
# Set CKPT to use another ckpt. Written by ckpt: changes are lost at the next checkpoint.
ckpt="
        .to_vec();
    quote(ckpt.as_os_str().as_bytes(), &mut script);
    script.extend_from_slice(
        b"
ckpt=${CKPT:-$ckpt}
if ! command -v \"$ckpt\" >/dev/null 2>&1; then
    echo \"restart.sh: $ckpt is not there; set CKPT to the path of ckpt\" >&2
    exit 125
fi
exec \"$ckpt\" restart \"$(dirname \"$0\")\" \"$@\"
",
    );
    script
}

/// `text` as one word of the shell.
fn quote(text: &[u8], script: &mut Vec<u8>) {
    script.push(b'\'');
    for &byte in text {
        match byte {
            b'\'' => script.extend_from_slice(b"'\\''"),
            byte => script.push(byte),
        }
    }
    script.push(b'\'');
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::os::unix::fs::MetadataExt;
    use std::process::{Command, Output};
    use std::time::{Duration, Instant};

    use super::*;

    fn write_executable(path: &Path, content: &[u8]) {
        write(path, content).unwrap();
    }

    /// Another test may be forking at the moment, and its child have what was written still open: then it cannot be executed, by
    /// us or by the shell.
    fn output(command: &mut Command) -> Output {
        const NOT_EXECUTABLE: i32 = 126;
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            match command.output() {
                Err(error) if error.kind() == ErrorKind::ExecutableFileBusy && Instant::now() < deadline => {}
                Ok(output) if output.status.code() == Some(NOT_EXECUTABLE) && Instant::now() < deadline => {}
                outcome => return outcome.unwrap(),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn the_script_restarts_its_own_directory_with_the_arguments_it_got() {
        let dir = tempfile::tempdir().unwrap();
        let ckpt = dir.path().join("it's a $(ckpt)");
        write_executable(&ckpt, b"#!/bin/sh\nprintf '<%s>' \"$@\"\n");
        write_restart_script(dir.path(), &ckpt).unwrap();
        let output = output(Command::new(dir.path().join(NAME)).args(["--id", "3 4"]).env_remove("CKPT"));
        let expected = format!("<restart><{}><--id><3 4>", dir.path().display());
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    }

    #[test]
    fn a_missing_ckpt_is_named_and_ckpt_in_the_environment_replaces_it() {
        let dir = tempfile::tempdir().unwrap();
        write_restart_script(dir.path(), Path::new("/nonexistent/ckpt")).unwrap();
        let script = dir.path().join(NAME);
        let missing = output(Command::new(&script).env_remove("CKPT"));
        assert_eq!(missing.status.code(), Some(125));
        assert!(String::from_utf8_lossy(&missing.stderr).contains("/nonexistent/ckpt is not there"));
        let replaced = output(Command::new(&script).env("CKPT", "echo"));
        assert!(replaced.stdout.starts_with(b"restart "));
    }

    #[test]
    fn a_script_that_is_right_is_left_alone_and_another_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let inode = || fs::metadata(dir.path().join(NAME)).unwrap().ino();
        write_restart_script(dir.path(), Path::new("/a/ckpt")).unwrap();
        let first = inode();
        write_restart_script(dir.path(), Path::new("/a/ckpt")).unwrap();
        assert_eq!(inode(), first);
        write_restart_script(dir.path(), Path::new("/b/ckpt")).unwrap();
        assert!(fs::read_to_string(dir.path().join(NAME)).unwrap().contains("/b/ckpt"));
        assert_eq!(fs::metadata(dir.path().join(NAME)).unwrap().mode() & 0o7777, MODE);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
