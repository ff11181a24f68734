//! The file system of a store.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::sys::statfs::statfs;

use super::super::growth::free_bytes;
use super::finding::{Finding, State};
use crate::units;

const PROBE: &str = "file system";
const TRIED: &str = "write, fsync and rename a file, fsync its directory, ask for free space";
/// Less is a warning.
const FREE_BYTES_MIN: u64 = 1 << 30;

/// File systems by the magic number of statfs(2): name, and whether a server keeps them.
const FILE_SYSTEMS: &[(i64, &str, bool)] = &[
    (0xef53, "ext4", false),
    (0x5846_5342, "xfs", false),
    (0x9123_683e, "btrfs", false),
    (0x0102_1994, "tmpfs", false),
    (0x2fc1_2fc1, "zfs", false),
    (0xf2f5_2010, "f2fs", false),
    (0x794c_7630, "overlayfs", false),
    (0xca45_1a4e, "bcachefs", false),
    (0x6969, "nfs", true),
    (0xff53_4d42, "cifs", true),
    (0xfe53_4d42, "smb2", true),
    (0x0bd0_0bd0, "lustre", true),
    (0x4750_4653, "gpfs", true),
    (0x00c3_6400, "ceph", true),
    (0x0102_1997, "9p", true),
    (0x6573_5546, "fuse", true),
    (0x1983_0326, "beegfs", true),
];

/// The probe, in `dir` or the directory above it that exists.
pub fn probe(dir: &Path) -> Finding {
    let dir = existing(dir);
    let (name, remote) = file_system(&dir);
    let place = format!("{} ({name})", dir.display());
    match seal_a_file(&dir) {
        Err(error) => {
            let advice = "choose another directory with --dir or CKPT_DIR";
            return Finding::new(PROBE, TRIED, State::No, format!("{place}: {error}"), advice).required();
        }
        Ok(()) if remote => {
            let advice = "see that fsync reaches the server's disk; a local disk is faster and surer";
            return Finding::new(PROBE, TRIED, State::Degraded, format!("{place}: works, over a network"), advice)
                .required();
        }
        Ok(()) => {}
    }
    let free = free_bytes(&dir).unwrap_or(0);
    let found = format!("{place}: works, {} free", units::bytes(free));
    let (state, advice) = match () {
        () if free < FREE_BYTES_MIN => (State::Degraded, "make room: a checkpoint takes up to as much as the memory"),
        () if name == "tmpfs" => (State::Degraded, "checkpoints here are lost when the machine restarts"),
        () => (State::Ok, ""),
    };
    Finding::new(PROBE, TRIED, state, found, advice).required()
}

/// `dir`, or the nearest directory above it that exists.
fn existing(dir: &Path) -> PathBuf {
    let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    dir.ancestors().find(|dir| dir.is_dir()).map_or_else(|| PathBuf::from("/"), Path::to_owned)
}

fn file_system(dir: &Path) -> (String, bool) {
    let Ok(found) = statfs(dir) else { return ("unknown".to_owned(), false) };
    // The field is signed, and some numbers have their upper bit set.
    let magic = found.filesystem_type().0 & 0xffff_ffff;
    match FILE_SYSTEMS.iter().find(|(known, _, _)| *known == magic) {
        Some((_, name, remote)) => ((*name).to_owned(), *remote),
        None => (format!("{magic:#x}"), false),
    }
}

/// What sealing a checkpoint does, with a file that is removed again.
fn seal_a_file(dir: &Path) -> io::Result<()> {
    let name = format!(".ckpt-doctor.{}", std::process::id());
    let (unfinished, finished) = (dir.join(format!("{name}.unfinished")), dir.join(name));
    let outcome = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
        file.write_all(b"ckpt doctor")?;
        file.sync_all()?;
        fs::rename(&unfinished, &finished)?;
        File::open(dir)?.sync_all()
    })();
    let _ = fs::remove_file(&unfinished);
    let _ = fs::remove_file(&finished);
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_not_there_yet_is_tried_in_the_one_above() {
        let dir = tempfile::tempdir().unwrap();
        let finding = probe(&dir.path().join("a/b"));
        assert_ne!(finding.state, State::No, "{}", finding.found);
        assert!(finding.found.starts_with(&dir.path().display().to_string()), "{}", finding.found);
    }

    #[test]
    fn a_place_that_cannot_be_written_is_a_no() {
        assert_eq!(probe(Path::new("/proc/self")).state, State::No);
    }
}
