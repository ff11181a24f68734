//! Which file systems cannot hold a store, and what a refused lock means.
//!
//! Whoever writes passes here: when a store's directory is made, and when its lock is taken. Reading is never refused: a
//! store on a USB stick can be restarted from. Only what is known to break a promise is refused by name; what depends
//! on a mount option or a server is found out by trying (flock), and the rest is told in FORMAT.md.

use std::{io, path::Path};

use rustix::io::Errno;

/// Names and magic numbers as in linux/magic.h and the drivers' sources.
const NAMES: &[(u64, &str)] = &[
    (0x4d44, "FAT"),
    (0x2011_bab0, "exFAT"),
    (0x5346_544e, "NTFS"),
    (0x7366_746e, "NTFS"),
    (0x9fa0, "proc"),
    (0x6265_6572, "sysfs"),
    (0x6969, "NFS"),
    (0x0bd0_0bd0, "Lustre"),
    (0x6573_5546, "FUSE"),
    (0x0102_1997, "9p"),
    (0xff53_4d42, "SMB"),
    (0xfe53_4d42, "SMB"),
];

fn name(magic: u64) -> &'static str {
    NAMES.iter().find(|(known, _)| *known == magic).map_or("this file system", |(_, name)| name)
}

/// Why a store may not be written on the file system with this magic number; `None` when nothing is known against it.
fn refusal(magic: u64) -> Option<String> {
    let why = match name(magic) {
        "FAT" | "exFAT" => {
            "it keeps neither owners nor modes, so that others could read the memory of programs, and a power cut during \
             a rename can lose both names"
        }
        "NTFS" => {
            "its driver in Linux keeps no journal of its own writes, so that a power cut during a rename can lose both names"
        }
        "proc" | "sysfs" => "it holds no files of users",
        _ => return None,
    };
    Some(format!("on {} {why}", name(magic)))
}

fn magic(dir: &Path) -> io::Result<u64> {
    // The field is wider or narrower on other processors.
    Ok(rustix::fs::statfs(dir)?.f_type as u64 & 0xffff_ffff)
}

/// An error of kind `Unsupported` with the reason, where a store cannot be safe.
pub(crate) fn check(dir: &Path) -> io::Result<()> {
    match refusal(magic(dir)?) {
        Some(why) => Err(io::Error::new(io::ErrorKind::Unsupported, why)),
        None => Ok(()),
    }
}

/// The answer of flock(2) as an error that says what it means for a store in `dir`.
pub(crate) fn lock_error(dir: &Path, error: io::Error) -> io::Error {
    let no_locks = [Errno::NOSYS, Errno::OPNOTSUPP, Errno::NOLCK, Errno::INVAL];
    if !no_locks.into_iter().any(|errno| Errno::from_io_error(&error) == Some(errno)) {
        return error;
    }
    let name = magic(dir).map_or("this file system", name);
    let remedy = match name {
        "Lustre" => "mount it with -o flock (not localflock, if several nodes use the store)",
        "NFS" => "mount it with version 4, or start the lock service of version 3",
        _ => "ask whoever mounts it for flock(2)",
    };
    let why = format!(
        "flock(2) does not work on {name} here ({error}), so that two writers could begin at once and a dead one could \
         not be told from a living one; {remedy}"
    );
    io::Error::new(io::ErrorKind::Unsupported, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_without_modes_or_safe_renames_are_refused_by_name_and_others_are_not() {
        for (magic, name) in [(0x4d44, "on FAT"), (0x2011_bab0, "on exFAT"), (0x7366_746e, "on NTFS")] {
            assert!(refusal(magic).is_some_and(|why| why.starts_with(name)), "{name}");
        }
        // ext4, XFS, btrfs, tmpfs, NFS, Lustre, FUSE, overlayfs, 9p.
        let usable = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x6969, 0x0bd0_0bd0, 0x6573_5546, 0x794c_7630];
        assert!(usable.into_iter().all(|magic| refusal(magic).is_none()));
        check(&std::env::temp_dir()).unwrap();
        assert_eq!(check(Path::new("/proc")).unwrap_err().kind(), io::ErrorKind::Unsupported);
    }

    #[test]
    fn a_file_system_without_flock_is_refused_with_what_to_do_and_other_errors_stay_as_they_are() {
        for errno in [Errno::NOSYS, Errno::OPNOTSUPP, Errno::NOLCK] {
            let error = lock_error(Path::new("/proc"), errno.into());
            assert_eq!(error.kind(), io::ErrorKind::Unsupported);
            assert!(error.to_string().contains("flock(2) does not work on proc here"), "{error}");
        }
        let other = lock_error(Path::new("/proc"), Errno::INTR.into());
        assert_eq!(Errno::from_io_error(&other), Some(Errno::INTR));
    }
}
