//! `--stdio`: what the program's standard streams are to be.

use std::fs::File;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::major;

use crate::error::{Error, Result};
use crate::outlet;
use crate::restore::Stdio;

/// Major number of /dev/null and its kin.
const MEMORY_DEVICES: u64 = 1;

/// The argument of `--stdio`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// `inherit`.
    Inherit,
    /// Anything else.
    File(PathBuf),
}

/// Reads the argument.
pub fn check_stdio(text: &str) -> Result<Choice, String> {
    match text {
        "" => Err("write inherit, or the path of a file".to_owned()),
        "inherit" => Ok(Choice::Inherit),
        path => Ok(Choice::File(PathBuf::from(path))),
    }
}

/// What it means; opens the file.
pub fn chosen(choice: Option<&Choice>) -> Result<Stdio> {
    Ok(match choice {
        None => Stdio::Outside,
        Some(Choice::Inherit) => Stdio::Inherit,
        Some(Choice::File(path)) => Stdio::File(Arc::new(open(path)?)),
    })
}

/// Opens the file at `path` to be appended to, or makes it. A named pipe would have to be waited for and a terminal has
/// more to it than output, so both are refused.
fn open(path: &Path) -> Result<File> {
    let refused = |why: &str| {
        let what = format!("--stdio {}", path.display());
        Error::environment(what, why, "name a file that can be written to, or one that is not there yet")
    };
    let opened = outlet::open(path, OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_CREAT);
    let file = opened.map_err(|source| refused(&source.to_string()))?;
    let found = file.metadata().map_err(|source| refused(&source.to_string()))?;
    let kind = found.file_type();
    let is_memory_device = kind.is_char_device() && major(found.rdev()) == MEMORY_DEVICES;
    if !kind.is_file() && !is_memory_device {
        return Err(refused("it is neither a regular file nor /dev/null"));
    }
    fcntl(&file, FcntlArg::F_SETFL(OFlag::O_APPEND)).map_err(|source| refused(source.desc()))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write;
    use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn a_file_is_appended_to_or_made_for_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        for text in ["one ", "two"] {
            open(&path).unwrap().write_all(text.as_bytes()).unwrap();
        }
        assert_eq!(std::fs::read(&path).unwrap(), b"one two");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        open(Path::new("/dev/null")).unwrap();
    }

    #[test]
    fn what_cannot_be_appended_to_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        mkfifo(&fifo, Mode::S_IRWXU).unwrap();
        let reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&fifo).unwrap();
        let pty = nix::pty::openpty(None, None).unwrap();
        let terminal = nix::unistd::ttyname(&pty.slave).unwrap();
        for path in [dir.path(), &dir.path().join("no/such"), &fifo, &terminal] {
            let error = open(path).unwrap_err();
            assert!(error.to_string().contains(&format!("--stdio {}", path.display())), "{error}");
            assert_eq!(error.exit_code(), crate::error::exit_code::ENVIRONMENT);
        }
        drop(reader);
        assert!(open(&fifo).is_err());
    }

    #[test]
    fn inherit_is_a_word_and_everything_else_a_path() {
        assert_eq!(check_stdio("inherit"), Ok(Choice::Inherit));
        assert_eq!(check_stdio("./inherit"), Ok(Choice::File(PathBuf::from("./inherit"))));
        assert!(check_stdio("").is_err());
    }
}
