//! What a process may do to files, taken on by a thread for a moment: root is more able than it may be for another user's process.

use std::io;

use nix::errno::Errno;
use nix::unistd::{Gid, Uid, geteuid, setfsgid, setfsuid};

use crate::capabilities::OwnCapabilities;
use crate::error::Result;
use crate::image::ProcessImage;
use crate::proc::task;

/// Leaves a file-system id as it is: the call only tells it.
const SAME: u32 = u32::MAX;
/// An id that no user has.
const NOBODY: u32 = u32::MAX - 1;

/// The ids that the file system looks at, and the capabilities in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// File-system user.
    pub user: u32,
    /// File-system group.
    pub group: u32,
    /// Supplementary groups, ascending.
    pub groups: Vec<u32>,
    /// Effective capabilities; bit n is capability n.
    pub effective: u64,
}

impl Rights {
    /// Those that the process of `image` had.
    pub fn of(image: &ProcessImage) -> Rights {
        let mut groups = image.groups.clone();
        groups.sort_unstable();
        groups.dedup();
        Rights { user: image.uids[3], group: image.gids[3], groups, effective: image.capabilities.effective }
    }

    /// Those that process `pid` has.
    ///
    /// # Errors
    /// When it is gone.
    pub fn of_process(pid: i32) -> Result<Rights> {
        let status = task::text(pid, "status")?;
        let ids = |name| {
            let ids = task::status_value(&status, name).unwrap_or("").split_whitespace();
            ids.flat_map(str::parse).collect::<Vec<u32>>()
        };
        // A process that ends while we read has no ids, and gets no rights.
        let last = |ids: Vec<u32>| ids.get(3).copied().unwrap_or(NOBODY);
        let mut groups = ids("Groups");
        groups.sort_unstable();
        let effective = task::capabilities(pid)?.effective;
        Ok(Rights { user: last(ids("Uid")), group: last(ids("Gid")), groups, effective })
    }

    /// Those of this thread.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn own() -> io::Result<Rights> {
        let mut groups = own_groups()?;
        groups.sort_unstable();
        groups.dedup();
        let user = setfsuid(Uid::from_raw(SAME)).as_raw();
        let group = setfsgid(Gid::from_raw(SAME)).as_raw();
        Ok(Rights { user, group, groups, effective: OwnCapabilities::read()?.effective() })
    }

    /// Whether a process with them is root, as far as files go.
    pub fn is_root(&self) -> bool {
        self.user == 0
    }

    /// Does `work` in this thread with these rights, as far as the thread has them. Only root has others than its own.
    ///
    /// # Errors
    /// What `work` fails with, or if the rights cannot be changed.
    pub fn act<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if !geteuid().is_root() {
            return work();
        }
        let own = Rights::own()?;
        if own == *self {
            return work();
        }
        let back = Regained { own, dumpable: dumpable() };
        self.take_on(&back.own)?;
        work()
    }

    /// Does `work` with the rights of one of the `holders` after the other, until it is not denied.
    ///
    /// # Errors
    /// What `work` fails with for another reason, or that it is denied to all.
    pub fn act_as_any<T>(holders: &[Rights], work: impl Fn() -> io::Result<T>) -> io::Result<T> {
        let mut denied = io::Error::from(io::ErrorKind::PermissionDenied);
        for rights in holders {
            match rights.act(&work) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => denied = error,
                outcome => return outcome,
            }
        }
        Err(denied)
    }

    /// Takes them on: capabilities last, because the change of the user changes them, too.
    fn take_on(&self, own: &Rights) -> io::Result<()> {
        if self.groups != own.groups {
            match set_groups(&self.groups) {
                // Of root in a container, which may not, its groups are seldom asked for.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied && self.is_root() => {}
                outcome => outcome?,
            }
        }
        setfsgid(Gid::from_raw(self.group));
        setfsuid(Uid::from_raw(self.user));
        // They say nothing where they are not allowed.
        let now = (setfsuid(Uid::from_raw(SAME)).as_raw(), setfsgid(Gid::from_raw(SAME)).as_raw());
        if now != (self.user, self.group) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let mut capabilities = OwnCapabilities::read()?;
        capabilities.set_effective(self.effective);
        Ok(capabilities.apply()?)
    }
}

/// Gives a thread its own rights back when it is dropped, and the process its dumpability, which a change of rights takes away.
struct Regained {
    own: Rights,
    dumpable: i32,
}

impl Drop for Regained {
    fn drop(&mut self) {
        let regain = || -> io::Result<()> {
            // First what allows the rest.
            let mut capabilities = OwnCapabilities::read()?;
            capabilities.set_effective(self.own.effective);
            capabilities.apply()?;
            setfsuid(Uid::from_raw(self.own.user));
            setfsgid(Gid::from_raw(self.own.group));
            if Rights::own()?.groups != self.own.groups {
                set_groups(&self.own.groups)?;
            }
            Ok(capabilities.apply()?)
        };
        if let Err(error) = regain() {
            // The rest of the restart would have another user's rights.
            log::error!("regaining the rights of this command: {error}");
            std::process::abort();
        }
        // SAFETY: this prctl takes numbers only.
        unsafe { libc::prctl(libc::PR_SET_DUMPABLE, self.dumpable as libc::c_ulong, 0, 0, 0) };
    }
}

fn dumpable() -> i32 {
    // SAFETY: this prctl takes no further arguments.
    unsafe { libc::prctl(libc::PR_GET_DUMPABLE) }
}

/// The supplementary groups of this thread. The C library looks up in /proc how many there can be at most, each time.
fn own_groups() -> io::Result<Vec<u32>> {
    let mut groups = Vec::new();
    loop {
        // SAFETY: the call writes as many ids as it is told that there is room for, and none for 0.
        let count = unsafe { libc::getgroups(groups.len() as libc::c_int, groups.as_mut_ptr()) };
        match Errno::result(count).map(|count| count as usize) {
            Ok(count) if groups.is_empty() && count > 0 => groups.resize(count, 0),
            Ok(count) => {
                groups.truncate(count);
                return Ok(groups);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Sets the supplementary groups of this thread alone: the C library's function sets those of all threads.
fn set_groups(groups: &[u32]) -> io::Result<()> {
    // SAFETY: the call reads so many ids from `groups`.
    let set = unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) };
    Errno::result(set).map(drop).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    const STRANGER: u32 = 65534;

    fn stranger() -> Rights {
        Rights { user: STRANGER, group: STRANGER, groups: vec![7, 8], effective: 0 }
    }

    #[test]
    fn a_file_is_opened_and_made_with_the_rights_that_are_taken_on() {
        if !geteuid().is_root() {
            println!("SKIPPED: taking on another user's rights needs root");
            return;
        }
        let scratch = tempfile::tempdir().unwrap();
        fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let secret = scratch.path().join("secret");
        fs::write(&secret, "s").unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        let before = Rights::own().unwrap();

        let refused = stranger().act(|| fs::read(&secret)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        let made = scratch.path().join("made");
        stranger().act(|| fs::write(&made, "m")).unwrap();
        assert_eq!(fs::metadata(&made).unwrap().uid(), STRANGER);
        let seen = stranger().act(Rights::own).unwrap();
        assert_eq!(seen, stranger());

        assert_eq!(Rights::own().unwrap(), before);
        assert_eq!(fs::read(&secret).unwrap(), b"s");
    }

    #[test]
    fn no_other_thread_has_them_meanwhile() {
        if !geteuid().is_root() {
            println!("SKIPPED: taking on another user's rights needs root");
            return;
        }
        let (ask, asked) = std::sync::mpsc::channel();
        let (answer, answered) = std::sync::mpsc::channel();
        let other = std::thread::spawn(move || {
            let () = asked.recv().unwrap();
            answer.send(Rights::own().unwrap()).unwrap();
        });
        let own = Rights::own().unwrap();
        let seen = stranger().act(|| {
            ask.send(()).unwrap();
            Ok(answered.recv().unwrap())
        });
        assert_eq!(seen.unwrap(), own);
        other.join().unwrap();
    }

    #[test]
    fn the_process_stays_as_dumpable_as_it_was() {
        let before = dumpable();
        stranger().act(|| Ok(())).unwrap();
        assert_eq!(dumpable(), before);
    }
}
