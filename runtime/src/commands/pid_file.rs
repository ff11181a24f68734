//! `--pid-file`: which process the program is, for whoever watches over it.
//!
//! The file is there before the program's first instruction, and it is not there if the program has never run. So whoever
//! finds it when `ckpt run` or `ckpt restart` has ended knows that the exit status is the program's own. It stays after
//! the program's end, and a start removes the one of an earlier life first.
//!
//! It has the pid alone, as other pid files. Beside it, and before it, is `FILE.id`: the pid once more, and in a second line the time at
//! which that process was started, in clock ticks since boot, and the id of the boot. A process that has the pid later has another
//! start time.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::absolute;
use crate::error::{Error, Result};
use crate::outlet::Unfinished;
use crate::proc::{clocks, task};

/// A pid file that is about to be written, and the one beside it. Dropping them unwritten leaves nothing.
pub struct PidFile {
    pid: Part,
    id: Part,
}

struct Part {
    path: PathBuf,
    unfinished: Unfinished,
}

impl PidFile {
    /// Removes the file of an earlier life, and makes sure that a new one can be written.
    pub fn prepare(path: &Path) -> Result<PidFile> {
        if path.as_os_str().is_empty() {
            return Err(Error::Usage("--pid-file needs the path of a file".to_owned()));
        }
        let path = absolute(path)?;
        let mut id = path.clone().into_os_string();
        id.push(".id");
        // The one that says that there is a program goes first, and comes last.
        let pid = Part::prepare(path)?;
        Ok(PidFile { pid, id: Part::prepare(id.into())? })
    }

    /// Says that process `pid` is the program. Each file appears in one step.
    pub fn write(&self, pid: i32) -> Result<()> {
        let start_ticks = task::start_time(pid)?;
        self.id.write(&format!("{pid}\n{start_ticks} {}\n", clocks::boot_id()?))?;
        self.pid.write(&format!("{pid}\n"))
    }

    /// Takes them back: the program has not run after all.
    pub fn remove(&self) {
        // Nobody is served by hearing that besides why the program has not run.
        let _ = self.pid.unfinished.remove_published();
        let _ = self.id.unfinished.remove_published();
    }
}

impl Part {
    fn prepare(path: PathBuf) -> Result<Part> {
        let unfinished = Unfinished::create(&path, &format!(".{}", std::process::id()))
            .map_err(|source| Error::io("write", &path, source))?;
        unfinished.remove_published().map_err(|source| Error::io("remove", &path, source))?;
        Ok(Part { path, unfinished })
    }

    fn write(&self, text: &str) -> Result<()> {
        (&self.unfinished.file)
            .write_all(text.as_bytes())
            .and_then(|()| self.unfinished.publish())
            .map_err(|source| Error::io("write", &self.path, source))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn it_names_the_process_and_tells_it_from_later_ones_with_its_pid() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pid");
        let pid = std::process::id() as i32;
        let file = PidFile::prepare(&path).unwrap();
        assert!(!path.exists(), "nothing runs yet");
        file.write(pid).unwrap();
        drop(file);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{pid}\n"));
        let text = fs::read_to_string(dir.path().join("pid.id")).unwrap();
        let (first, second) = text.split_once('\n').unwrap();
        assert_eq!(first, pid.to_string());
        let (start, boot) = second.trim_end().split_once(' ').unwrap();
        assert_eq!(start.parse::<u64>().unwrap(), task::start_time(pid).unwrap());
        assert_eq!(boot.len(), 36, "{text}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn that_of_an_earlier_life_is_gone_before_there_is_a_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pid");
        fs::write(&path, "1\n").unwrap();
        let file = PidFile::prepare(&path).unwrap();
        assert!(!path.exists());
        file.write(std::process::id() as i32).unwrap();
        file.remove();
        drop(file);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "the program has not run");
    }

    #[test]
    fn a_link_at_the_name_that_it_has_before_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, target) = (dir.path().join("pid"), dir.path().join("target"));
        fs::write(&target, "kept").unwrap();
        symlink(&target, dir.path().join(format!("pid.{}", std::process::id()))).unwrap();
        PidFile::prepare(&path).unwrap().write(std::process::id() as i32).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"kept");
        assert!(!path.is_symlink() && fs::read(&path).unwrap().ends_with(b"\n"));
    }

    #[test]
    fn where_it_cannot_be_written_is_said_before_anything_runs() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(PidFile::prepare(dir.path()), Err(Error::Io { operation: "remove", .. })));
        let missing = dir.path().join("no/pid");
        assert!(PidFile::prepare(&missing).err().unwrap().to_string().contains("no/pid"));
        assert!(matches!(PidFile::prepare(Path::new("")), Err(Error::Usage(_))));
    }
}
