//! Directories that the paths of a job lead through: those that are missing are made again, before anything is opened or bound there.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::geteuid;

use super::process::{Call, HalfBuilt};
use super::reach::{self, Rights, Spot};
use crate::error::Result;
use crate::image::{DirectoryRights, JobImage, ProcessImage, path_of};

/// Directories that have been made. They are removed again, unless they are kept.
#[derive(Debug, Default)]
pub struct MadeDirectories(Vec<Spot>);

impl MadeDirectories {
    /// Makes those of `job` that are missing.
    ///
    /// # Errors
    /// When one cannot be made. Then none is left.
    pub fn of(job: &JobImage) -> Result<MadeDirectories> {
        let mut made = MadeDirectories::default();
        let holders = all_rights(job);
        for directory in &job.objects.directories {
            let path = path_of(&directory.path);
            let failed = |source| reach::failed("make the directory", path, source);
            match path.symlink_metadata() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // What is there instead, or cannot be looked at, is named by whatever needs it.
                _ => continue,
            }
            let holders = owner_first(&directory.rights, &holders);
            let spot = Spot::reach(path, &holders).map_err(failed)?;
            make(&spot, &directory.rights, &holders).map_err(failed)?;
            made.0.push(spot);
        }
        if !made.0.is_empty() {
            let names: Vec<_> = made.0.iter().map(|spot| spot.path().display().to_string()).collect();
            log::info!("missing directories have been made again: {}", names.join(", "));
        }
        Ok(made)
    }

    /// They stay.
    pub fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for MadeDirectories {
    fn drop(&mut self) {
        for spot in self.0.iter().rev() {
            if let Err(error) = spot.remove_directory() {
                log::warn!("{} was made for the restart and stays: {error}", spot.path().display());
            }
        }
    }
}

/// Who had the directory can make it again without root's rights, where its parent is theirs.
fn owner_first(rights: &DirectoryRights, holders: &[Rights]) -> Vec<Rights> {
    let owner = Rights { user: rights.user, group: rights.group, groups: Vec::new(), effective: 0 };
    let is_root = geteuid().is_root() && !owner.is_root();
    is_root.then_some(owner).into_iter().chain(holders.iter().cloned()).collect()
}

/// Makes a directory at `spot` that has `rights`. Where others may have put one of root's in its place, it is not given away.
pub fn make(spot: &Spot, rights: &DirectoryRights, holders: &[Rights]) -> io::Result<std::fs::File> {
    let directory = spot.make_directory()?;
    if geteuid().is_root() && directory.metadata()?.uid() != rights.user && !reach::is_out_of_others_reach(spot.path())
    {
        log::warn!(
            "{} is not given to user {}, because others can change its path",
            spot.path().display(),
            rights.user
        );
        return Ok(directory);
    }
    let given = reach::give(&directory, spot.path(), (rights.user, rights.group), rights.mode, &holders[0]);
    if given.is_err() {
        spot.remove_directory()?;
    }
    given.map(|()| directory)
}

/// Whether a restart makes the directory at `path` if it is missing.
pub fn is_made(job: &JobImage, path: &Path) -> bool {
    job.objects.directories.iter().any(|directory| path_of(&directory.path) == path)
}

/// Gives the process the root directory that it had. Its working directory stays. Needs the scratch area.
///
/// # Errors
/// Where it may not (CAP_SYS_CHROOT).
pub fn change_root(process: &mut HalfBuilt, image: &ProcessImage) -> Result<()> {
    const CHROOT: Call = Call("chroot", libc::SYS_chroot);
    // What it shares with its parent, that one has changed already.
    if image.root_directory.is_empty() || image.family.shares_places {
        return Ok(());
    }
    let path = process.put(&[image.root_directory.as_slice(), b"\0"].concat())?;
    let shown = path_of(&image.root_directory).display();
    process.call(0, CHROOT, &[path], format_args!("{shown}, which takes CAP_SYS_CHROOT")).map(drop)
}

/// The rights of all processes, those of ordinary users first.
pub fn all_rights(job: &JobImage) -> Vec<Rights> {
    let mut all: Vec<Rights> = Vec::new();
    for rights in job.processes.iter().map(Rights::of) {
        if !all.contains(&rights) {
            all.push(rights);
        }
    }
    all.sort_by_key(Rights::is_root);
    all
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::chown;

    use super::*;
    use crate::image::Directory;
    use crate::restore::host::Machine;
    use crate::restore::sample::{self, ScratchDir};

    const USER: u32 = 65534;

    #[test]
    fn missing_directories_are_their_owners_and_gone_again_unless_they_are_kept() {
        if !geteuid().is_root() {
            return println!("SKIPPED: directories of several users need root");
        }
        let dir = ScratchDir::new();
        let of_user = dir.path().join("of_user");
        std::fs::create_dir(&of_user).unwrap();
        chown(&of_user, Some(USER), Some(USER)).unwrap();
        let mut job = sample::job(&Machine::this().unwrap());
        (job.processes[0].uids, job.processes[0].gids) = ([0; 4], [0; 4]);
        let record = |path: &Path, user: u32| Directory {
            path: path.as_os_str().as_bytes().to_vec(),
            rights: DirectoryRights { mode: 0o750, user, group: user },
        };
        let (own, below, others) = (of_user.join("own"), of_user.join("own/below"), of_user.join("others"));
        job.objects.directories = vec![record(&own, USER), record(&below, USER), record(&others, 1)];
        std::os::unix::fs::chown(dir.path(), Some(0), Some(0)).unwrap();
        std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();

        let made = MadeDirectories::of(&job).unwrap();
        for path in [&own, &below] {
            let about = path.metadata().unwrap();
            assert_eq!((about.uid(), about.mode() & 0o7777), (USER, 0o750), "{}", path.display());
        }
        assert_eq!(others.metadata().unwrap().uid(), 0, "its parent's owner could have put another one there");
        drop(made);
        assert!(!own.exists() && !others.exists());
        MadeDirectories::of(&job).unwrap().keep();
        assert!(below.exists());
        MadeDirectories::of(&job).unwrap();
        assert!(below.exists(), "it was there");
    }
}
