//! A name in a directory, reached with the rights of those that had what it leads to.

use std::ffi::{CString, OsStr, OsString};
use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use nix::fcntl::{AtFlags, OFlag, RenameFlags, readlinkat, renameat2};
use nix::sys::stat::{Mode, major, minor, mkdirat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchownat, geteuid, mkfifoat, symlinkat, unlinkat};

use super::{Rights, trust};
use crate::without_links::{self, Diverted};

/// The bits of a mode that have a program run as the file's owner or group.
const SET_ID: u32 = 0o6000;

/// The file that an image means, where it says so: device (major, minor) and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Major and minor number.
    pub device: (u32, u32),
    /// Inode number.
    pub inode: u64,
}

impl Identity {
    fn of(metadata: &Metadata) -> Identity {
        let device = (major(metadata.dev()) as u32, minor(metadata.dev()) as u32);
        Identity { device, inode: metadata.ino() }
    }
}

/// A name in a directory. The directory stays the one that was reached, whatever its path leads to later.
#[derive(Debug)]
pub struct Spot {
    path: PathBuf,
    name: OsString,
    /// How it was reached, in the order in which they are tried.
    ways: Vec<Way>,
}

/// The directory, as it was reached with some rights. None: those of this command.
#[derive(Debug)]
struct Way {
    rights: Option<Rights>,
    directory: File,
}

impl Way {
    /// Whether more than the rights of one ordinary user of a job's process are used, or those of the user who restarts it.
    fn is_able(&self) -> bool {
        !geteuid().is_root() || self.rights.as_ref().is_none_or(Rights::is_root)
    }

    fn act<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        match &self.rights {
            Some(rights) => rights.act(work),
            None => work(),
        }
    }
}

impl Spot {
    /// The place that `path` names, reached with the rights of one of its `holders`, or those of this command if these do not
    /// suffice and others cannot change the path.
    ///
    /// # Errors
    /// When none of them reaches its directory, or a symbolic link is on the way.
    pub fn reach(path: &Path, holders: &[Rights]) -> io::Result<Spot> {
        let (directory, name) = trust::split(path).ok_or(io::ErrorKind::InvalidInput)?;
        let flags = libc::O_PATH | libc::O_DIRECTORY;
        let mut ways = Vec::new();
        let mut denied = io::Error::from(io::ErrorKind::PermissionDenied);
        for rights in holders {
            match rights.act(|| without_links::open(directory, flags, 0)) {
                Ok(directory) => ways.push(Way { rights: Some(rights.clone()), directory }),
                Err(error) if is_denied(&error) => denied = error,
                Err(error) => return Err(error),
            }
        }
        if ways.is_empty() {
            ways.push(trusted_way(directory)?.ok_or(denied)?);
        }
        Ok(Spot { path: path.to_owned(), name: name.to_owned(), ways })
    }

    /// Another name in the same directory.
    pub fn beside(&self, name: &OsStr) -> io::Result<Spot> {
        let ways =
            self.ways.iter().map(|way| Ok(Way { rights: way.rights.clone(), directory: way.directory.try_clone()? }));
        let ways = ways.collect::<io::Result<_>>()?;
        Ok(Spot { path: self.path.with_file_name(name), name: name.to_owned(), ways })
    }

    /// Its name in the directory.
    pub fn name(&self) -> &OsStr {
        &self.name
    }

    /// Its path, for people.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens what is there. `identity` is that of the file that the image means, if it says so.
    ///
    /// # Errors
    /// Those of open(2); and if others can have put another file there, one of several names.
    pub fn open(&self, flags: i32, identity: Option<Identity>) -> io::Result<File> {
        self.make(flags & !(libc::O_CREAT | libc::O_EXCL), 0, identity)
    }

    /// Opens a regular file, whatever the name may have come to lead to meanwhile.
    pub fn open_regular(&self, write: bool, identity: Option<Identity>) -> io::Result<File> {
        let access = if write { libc::O_RDWR } else { libc::O_RDONLY };
        let file = self.open(access | libc::O_NONBLOCK | libc::O_NOCTTY, identity)?;
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::Error::other("it is not a regular file")),
        }
    }

    /// The same, with all of open's flags; `mode` is for a file that is made.
    pub fn make(&self, flags: i32, mode: u32, identity: Option<Identity>) -> io::Result<File> {
        let open = |way: &Way| {
            let opened = way.act(|| without_links::open_at(&way.directory, &self.name, flags, mode))?;
            if way.is_able() {
                self.refuse_foreign(&opened, identity)?;
            }
            Ok(opened)
        };
        match self.attempt(open) {
            Err(error) if is_denied(&error) => self.open_proven(flags, identity).ok_or(error),
            outcome => outcome.map_err(|error| without_links::explain(error, &self.path)),
        }
    }

    /// Opens a file with the rights of this command, if it is certain to be the one that the job had: it has the same inode and no
    /// other name.
    fn open_proven(&self, flags: i32, identity: Option<Identity>) -> Option<File> {
        let way = self.ways.first()?;
        let path_only = without_links::open_at(&way.directory, &self.name, libc::O_PATH, 0).ok()?;
        let is_it = |file: &File| {
            let metadata = file.metadata().ok()?;
            (Some(Identity::of(&metadata)) == identity && metadata.nlink() == 1 && metadata.is_file()).then_some(())
        };
        is_it(&path_only)?;
        let opened = without_links::open_at(&way.directory, &self.name, flags & !libc::O_CREAT, 0).ok()?;
        is_it(&opened)?;
        Some(opened)
    }

    /// Refuses a file with several names that is not the one that the image means, where others can have given it this one.
    fn refuse_foreign(&self, file: &File, identity: Option<Identity>) -> io::Result<()> {
        let metadata = file.metadata()?;
        let is_it = identity.is_none_or(|identity| identity == Identity::of(&metadata));
        if is_it || !metadata.is_file() || metadata.nlink() <= 1 || self.is_trusted() {
            return Ok(());
        }
        Err(Diverted::error(
            "it is another file than at the checkpoint, has other names (hard links), and others can change its directory",
            "put a copy in its place",
        ))
    }

    /// Whether none but root and the user of this command can put something else there.
    fn is_trusted(&self) -> bool {
        let directory = self.path.parent().unwrap_or(&self.path);
        trust::directory(directory, geteuid().as_raw()).is_ok_and(|directory| directory.is_some())
    }

    /// A descriptor of what is there, only as a path; of a symbolic link itself.
    pub fn itself(&self) -> io::Result<File> {
        self.attempt(|way| way.act(|| open_itself(&way.directory, &self.name)))
    }

    /// What is there; a symbolic link itself.
    pub fn look(&self) -> io::Result<Metadata> {
        self.itself()?.metadata()
    }

    /// Where the symbolic link that is there leads to.
    pub fn link_target(&self) -> io::Result<Vec<u8>> {
        let read = |way: &Way| way.act(|| Ok(readlinkat(&way.directory, self.name.as_os_str())?));
        self.attempt(read).map(OsString::into_vec)
    }

    /// Makes a directory that is its owner's alone.
    pub fn make_directory(&self) -> io::Result<File> {
        let mode = Mode::from_bits_truncate(0o700);
        self.attempt(|way| way.act(|| Ok(mkdirat(&way.directory, self.name.as_os_str(), mode)?)))?;
        self.open(libc::O_RDONLY | libc::O_DIRECTORY, None)
    }

    /// Makes a symbolic link to `target`.
    pub fn make_link(&self, target: &Path) -> io::Result<()> {
        self.attempt(|way| way.act(|| Ok(symlinkat(target, &way.directory, self.name.as_os_str())?)))
    }

    /// Makes a named pipe that is its owner's alone, and opens it for reading.
    pub fn make_fifo(&self) -> io::Result<File> {
        let mode = Mode::from_bits_truncate(0o600);
        self.attempt(|way| way.act(|| Ok(mkfifoat(&way.directory, self.name.as_os_str(), mode)?)))?;
        let made = self.open(libc::O_RDONLY | libc::O_NONBLOCK, None)?;
        match made.metadata()?.file_type().is_fifo() {
            true => Ok(made),
            false => Err(Diverted::error("another has put something else in its place", "restart again")),
        }
    }

    /// Removes what is there, which is no directory.
    pub fn remove(&self) -> io::Result<()> {
        self.unlink(UnlinkatFlags::NoRemoveDir)
    }

    /// Removes the empty directory that is there.
    pub fn remove_directory(&self) -> io::Result<()> {
        self.unlink(UnlinkatFlags::RemoveDir)
    }

    fn unlink(&self, flags: UnlinkatFlags) -> io::Result<()> {
        self.attempt(|way| way.act(|| Ok(unlinkat(&way.directory, self.name.as_os_str(), flags)?)))
    }

    /// Renames what is there to `name` in the same directory.
    ///
    /// # Errors
    /// `AlreadyExists` if that name is taken.
    pub fn rename_to(&self, name: &OsStr) -> io::Result<()> {
        let rename = |way: &Way, flags| {
            way.act(|| Ok(renameat2(&way.directory, self.name.as_os_str(), &way.directory, name, flags)?))
        };
        self.attempt(|way| match rename(way, RenameFlags::RENAME_NOREPLACE) {
            // Some network file systems cannot say so in one call.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                match way.act(|| open_itself(&way.directory, name)) {
                    Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
                    Err(_) => rename(way, RenameFlags::empty()),
                }
            }
            outcome => outcome,
        })
    }

    /// Renames what is there to `other`, where this command itself may write.
    ///
    /// # Errors
    /// `AlreadyExists` if something is there. `CrossesDevices` on another file system. Those of rename(2), also where the holder may not
    /// write there.
    pub fn move_to(&self, other: &Spot) -> io::Result<()> {
        let there = other.ways.first().ok_or(io::ErrorKind::NotFound)?;
        self.attempt(|way| {
            let flags = RenameFlags::RENAME_NOREPLACE;
            way.act(|| {
                Ok(renameat2(&way.directory, self.name.as_os_str(), &there.directory, other.name.as_os_str(), flags)?)
            })
        })
    }

    /// Gives the symbolic link that is there to a user and a group, if this command may give files away.
    pub fn give_link_to(&self, (user, group): (u32, u32)) -> io::Result<()> {
        if !geteuid().is_root() {
            return Ok(());
        }
        let way = self.ways.first().ok_or(io::ErrorKind::NotFound)?;
        let link = open_itself(&way.directory, &self.name)?;
        if !link.metadata()?.is_symlink() {
            return Err(Diverted::error("it is no symbolic link any more", "restart again"));
        }
        fchownat(&link, c"", Some(Uid::from_raw(user)), Some(Gid::from_raw(group)), AtFlags::AT_EMPTY_PATH)?;
        Ok(())
    }

    /// The rights of the owner of the directory, without capabilities. None if that is root.
    pub fn rights_of_owner(&self) -> io::Result<Option<Rights>> {
        let way = self.ways.first().ok_or(io::ErrorKind::NotFound)?;
        let metadata = way.directory.metadata()?;
        let owner = Rights { user: metadata.uid(), group: metadata.gid(), groups: Vec::new(), effective: 0 };
        Ok(Some(owner).filter(|owner| !owner.is_root()))
    }

    /// Tries all ways until one is not denied; at last the rights of this command, where others cannot change the path or the
    /// directory's entries.
    fn attempt<T>(&self, work: impl Fn(&Way) -> io::Result<T>) -> io::Result<T> {
        let mut denied = io::Error::from(io::ErrorKind::PermissionDenied);
        for way in &self.ways {
            match work(way) {
                Err(error) if is_denied(&error) => denied = error,
                outcome => return outcome,
            }
        }
        match self.path.parent().map(trusted_way).transpose()?.flatten() {
            Some(way) => work(&way),
            None => Err(denied),
        }
    }
}

/// The directory, reached with the rights of this command, if that is root and none but root can change the path.
fn trusted_way(directory: &Path) -> io::Result<Option<Way>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    Ok(trust::directory(directory, 0)?.map(|directory| Way { rights: None, directory }))
}

/// A descriptor of the entry itself, were that a symbolic link. The name has no slash in it.
fn open_itself(directory: &File, name: &OsStr) -> io::Result<File> {
    let name = CString::new(name.as_bytes())?;
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let opened = nix::fcntl::openat(directory, name.as_c_str(), flags, Mode::empty())?;
    Ok(File::from(opened))
}

fn is_denied(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

/// Gives a file that has been made at `path` the owner and the mode that it had, as far as this command may. What cannot be given to
/// its group is taken from the group and from others; and bits that have a program run as another user or group come back only
/// if that is the user or group of the process that had it, its `holder`.
///
/// # Errors
/// When the mode cannot be set.
pub fn give(file: &File, path: &Path, (user, group): (u32, u32), mode: u32, holder: &Rights) -> io::Result<()> {
    let given = match geteuid().is_root() {
        true => fchown(file, Some(user), Some(group)),
        // A member of the group may.
        false => fchown(file, None, Some(group)),
    };
    let now = file.metadata()?;
    let mut mode = mode & 0o7777;
    if let Err(error) = given.or_else(|error| if now.gid() == group { Ok(()) } else { Err(error) }) {
        log::warn!("{} cannot be given to group {group} ({error}): it is for its owner alone", path.display());
        mode &= !0o077;
    }
    let is_of_holder = now.uid() == holder.user && (now.gid() == holder.group || holder.groups.contains(&now.gid()));
    if mode & SET_ID != 0 && !is_of_holder && !now.is_dir() {
        log::warn!(
            "{} ran as its owner or group, user {}: it is put back without that right",
            path.display(),
            now.uid()
        );
        mode &= !SET_ID;
    }
    file.set_permissions(Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    const USER: u32 = 65534;

    fn is_root() -> bool {
        if !geteuid().is_root() {
            println!("SKIPPED: files of several users need root");
        }
        geteuid().is_root()
    }

    fn rights(user: u32) -> Rights {
        Rights { user, group: user, groups: Vec::new(), effective: 0 }
    }

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    /// A directory of root's, and one in it that is user [`USER`]'s.
    fn directories() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let scratch = tempfile::tempdir().unwrap();
        let top = scratch.path().canonicalize().unwrap();
        mode(&top, 0o755);
        let theirs = top.join("theirs");
        fs::create_dir(&theirs).unwrap();
        chown(&theirs, Some(USER), Some(USER)).unwrap();
        (scratch, top, theirs)
    }

    #[test]
    fn a_file_that_others_cannot_exchange_is_opened_for_who_gave_up_the_right_to() {
        if !is_root() {
            return;
        }
        let (_scratch, top, theirs) = directories();
        for (directory, is_opened) in [(&top, true), (&theirs, false)] {
            let path = directory.join("log");
            fs::write(&path, "content").unwrap();
            mode(&path, 0o600);
            let opened = Spot::reach(&path, &[rights(USER)]).unwrap().open_regular(true, None);
            assert_eq!(opened.is_ok(), is_opened, "{}: {opened:?}", path.display());
        }
        // Where everybody can make files, one of root's with the name is none that the process had.
        mode(&top, 0o1777);
        let opened = Spot::reach(&top.join("log"), &[rights(USER)]).unwrap().open_regular(true, None);
        assert!(is_denied(&opened.unwrap_err()));
        mode(&top, 0o755);
        // The very file of the checkpoint may lie anywhere, as long as it has no other name.
        let path = theirs.join("log");
        let identity = Some(Identity::of(&fs::metadata(&path).unwrap()));
        let spot = Spot::reach(&path, &[rights(USER)]).unwrap();
        spot.open_regular(true, identity).unwrap();
        fs::hard_link(&path, theirs.join("another")).unwrap();
        assert!(is_denied(&spot.open_regular(true, identity).unwrap_err()));
    }

    #[test]
    fn root_opens_no_file_that_another_user_may_have_linked_there() {
        if !is_root() {
            return;
        }
        let (_scratch, top, theirs) = directories();
        let own = theirs.join("log");
        fs::write(&own, "of the program").unwrap();
        let identity = Some(Identity::of(&fs::metadata(&own).unwrap()));
        let secret = top.join("secret");
        fs::write(&secret, "of root").unwrap();
        fs::remove_file(&own).unwrap();
        fs::hard_link(&secret, &own).unwrap();
        let refused = Spot::reach(&own, &[rights(0)]).unwrap().open_regular(true, identity).unwrap_err();
        assert!(refused.to_string().contains("hard links"), "{refused}");
        // A file that was put back by other means has one name.
        fs::remove_file(&own).unwrap();
        fs::write(&own, "from a backup").unwrap();
        Spot::reach(&own, &[rights(0)]).unwrap().open_regular(true, identity).unwrap();
    }

    #[test]
    fn nothing_is_done_through_a_link() {
        let scratch = tempfile::tempdir().unwrap();
        let top = scratch.path().canonicalize().unwrap();
        fs::create_dir(top.join("there")).unwrap();
        fs::write(top.join("there/file"), "content").unwrap();
        symlink("there", top.join("link")).unwrap();
        symlink("file", top.join("there/alias")).unwrap();
        let own = [Rights::own().unwrap()];
        assert!(Spot::reach(&top.join("link/file"), &own).is_err());
        let alias = Spot::reach(&top.join("there/alias"), &own).unwrap();
        assert!(alias.look().unwrap().is_symlink());
        assert!(alias.open_regular(true, None).is_err());
        assert!(alias.make(libc::O_WRONLY | libc::O_CREAT, 0o600, None).is_err());
        alias.rename_to(OsStr::new("aside")).unwrap();
        assert_eq!(fs::read(top.join("there/file")).unwrap(), b"content");
        alias.beside(OsStr::new("aside")).unwrap().remove().unwrap();
        assert_eq!(fs::read_dir(top.join("there")).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_cannot_have_its_group_is_its_owners_alone() {
        if !is_root() {
            return;
        }
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("file");
        let file = File::create(&path).unwrap();
        fchown(&file, Some(USER), Some(USER)).unwrap();
        let given = |group: u32| {
            let file = file.try_clone().unwrap();
            let path = path.clone();
            let put_back = move || {
                // SAFETY: the calls change the ids of this thread alone, which ends with this.
                unsafe {
                    libc::syscall(libc::SYS_setgroups, 1, [1234u32].as_ptr());
                    libc::syscall(libc::SYS_setresuid, USER, USER, USER);
                }
                give(&file, &path, (0, group), 0o664, &rights(USER)).unwrap();
            };
            std::thread::spawn(put_back).join().unwrap();
            let now = fs::metadata(scratch.path().join("file")).unwrap();
            (now.gid(), now.mode() & 0o7777)
        };
        assert_eq!(given(1234), (1234, 0o664), "a member of the group may give the file to it");
        assert_eq!(given(4321), (1234, 0o600), "and who is none takes its rights away");
    }

    #[test]
    fn a_file_runs_as_its_owner_again_only_if_that_is_who_had_it() {
        if !is_root() {
            return;
        }
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("file");
        let file = File::create(&path).unwrap();
        let given = |owner, holder| {
            give(&file, &path, (owner, owner), 0o6755, &rights(holder)).unwrap();
            fs::metadata(&path).unwrap().mode() & 0o7777
        };
        assert_eq!(given(0, USER), 0o755);
        assert_eq!(given(USER, USER), 0o6755);
        assert_eq!(given(0, 0), 0o6755);
    }
}
