//! Saving what a restart replaces in files.
//!
//! It goes into the store, where the job does not look: a copy beside the file would be found by the job's own `*` and by all that list their
//! directory. It goes beside the file, as it always did, where it must not lie in the store in the clear (an encrypted one), and where the
//! store is not ours alone to write, is full, or is on another file system than a directory that is to be moved.

use std::cell::Cell;
use std::fs::{DirBuilder, File, Permissions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, PermissionsExt, fchown};
use std::path::{Component, Path, PathBuf};

use nix::unistd::geteuid;

use super::reach::{self, Rights, Spot};
use crate::image::path_of;
use crate::restore::place::Place;
use crate::saved_name::{self, Saved, saved_name};
use crate::sparse;

/// Copies kept of one file and checkpoint.
const COPIES_MAX: u32 = 100;
/// Bytes compared at a time.
const COMPARED_BYTES: usize = 1 << 20;

/// Where one restart saves what it replaces, and how much it has.
#[derive(Debug)]
pub struct SavedCopies {
    /// The directory in the store, if it can have them.
    root: Option<PathBuf>,
    store: PathBuf,
    /// The checkpoint.
    id: u64,
    in_store: Cell<u32>,
    beside: Cell<u32>,
}

impl SavedCopies {
    /// For the restart of checkpoint `id`, whose program has its next checkpoints in `store`, if it has any. Root's restart looks who else can write
    /// there, unless it is root in a user namespace of the program alone, and an ordinary user outside.
    pub fn of(store: Option<&Path>, is_encrypted: bool, place: &Place, id: u64) -> SavedCopies {
        let (store, has_store) = (store.unwrap_or(Path::new("")), store.is_some());
        let store = store.canonicalize().unwrap_or_else(|_| store.to_owned());
        let root = store.join(saved_name::DIRECTORY);
        // Others could lead us elsewhere by it.
        let is_ours = || match store.metadata() {
            Ok(metadata) if metadata.is_dir() && metadata.uid() == geteuid().as_raw() => {
                let is_root = geteuid().is_root() && !place.is_own_user_namespace();
                !is_root || reach::is_out_of_others_reach(&root)
            }
            _ => false,
        };
        let root = (has_store && !is_encrypted && is_ours()).then_some(root);
        SavedCopies { root, store, id, in_store: Cell::new(0), beside: Cell::new(0) }
    }

    /// Saves what lies from `start` on in `file`, which is at `spot`; gives its place. A copy that exists already with the same content
    /// will do.
    pub fn save(&self, file: &mut File, spot: &Spot, start: u64, saved: Saved) -> io::Result<PathBuf> {
        self.in_store(spot, |place| save(file, place, start, self.id, saved)).or_else(|_| {
            let path = save(file, spot, start, self.id, saved)?;
            self.beside.update(|files| files + 1);
            Ok(path)
        })
    }

    /// Moves what is at `spot` out of the way; gives its new path.
    pub fn move_aside(&self, spot: &Spot) -> io::Result<PathBuf> {
        self.in_store(spot, |place| move_to(spot, place, self.id)).or_else(|_| {
            let path = move_within(spot, self.id)?;
            self.beside.update(|files| files + 1);
            Ok(path)
        })
    }

    /// Does `work` with the place in the store that is to `spot` as its path from there is to that from the root.
    fn in_store(&self, spot: &Spot, work: impl FnOnce(&Spot) -> io::Result<PathBuf>) -> io::Result<PathBuf> {
        let root = self.root.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let below = spot.path().strip_prefix("/").map_err(io::Error::other)?;
        if !below.components().all(|component| matches!(component, Component::Normal(_))) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let place = root.join(below);
        if let Some(directory) = place.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        let outcome = Spot::reach(&place, &[Rights::own()?]).and_then(|place| work(&place));
        match &outcome {
            Ok(_) => self.in_store.update(|files| files + 1),
            Err(error) => log::debug!("{} cannot be saved in the store: {error}", spot.path().display()),
        }
        outcome
    }

    /// Says what has been saved, if anything.
    pub fn tell(&self) {
        let (in_store, beside) = (self.in_store.get(), self.beside.get());
        let id = self.id;
        let again = |files: u32| match files {
            1 => "one file is again as it was".to_owned(),
            files => format!("{files} files are again as they were"),
        };
        if in_store > 0 {
            let store = self.store.display();
            crate::say!(
                "{} at checkpoint {id}; what was there until now is in the store (ckpt saved {store})",
                again(in_store)
            );
        }
        if beside > 0 {
            crate::say!(
                "{} at checkpoint {id}; what was there until now is beside it, as NAME.ckpt-{id} or NAME.ckpt-{id}.tail",
                again(beside)
            );
        }
    }
}

/// Saves what lies from `start` on in `file` under the first free name of those that `spot` gives.
fn save(file: &mut File, spot: &Spot, start: u64, id: u64, saved: Saved) -> io::Result<PathBuf> {
    for number in 0..COPIES_MAX {
        let beside = beside(spot, id, saved, number)?;
        file.seek(SeekFrom::Start(start))?;
        match beside.make(libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL, 0o600, None) {
            Ok(mut copy) => {
                let copied = match saved {
                    Saved::Whole => file.metadata().and_then(|metadata| sparse::copy(file, &copy, metadata.len())),
                    Saved::Tail => io::copy(file, &mut copy).map(drop),
                };
                let copied = copied.and_then(|()| share_as(file, &copy)).and_then(|()| copy.sync_all());
                if copied.is_err() {
                    let _ = beside.remove(); // half a copy is worse than none
                }
                return copied.map(|()| beside.path().to_owned());
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if beside.open_regular(false, None).and_then(|copy| same_content(file, start, &copy))? {
                    return Ok(beside.path().to_owned());
                }
            }
            Err(error) => return Err(error),
        }
    }
    Err(too_many())
}

/// Lets those read `copy` who may read `file`. It stays its owner's alone where it cannot have the group of the file.
fn share_as(file: &File, copy: &File) -> io::Result<()> {
    let metadata = file.metadata()?;
    let user = geteuid().is_root().then_some(metadata.uid());
    let has_group = fchown(copy, user, Some(metadata.gid())).is_ok() || copy.metadata()?.gid() == metadata.gid();
    let shared = if has_group { 0o777 } else { 0o700 };
    copy.set_permissions(Permissions::from_mode(metadata.mode() & shared))
}

/// Moves what is at `spot` to the first free name of those that `place` gives; what cannot be renamed to there is copied, and removed here.
fn move_to(spot: &Spot, place: &Spot, id: u64) -> io::Result<PathBuf> {
    for number in 0..COPIES_MAX {
        let free = beside(place, id, Saved::Whole, number)?;
        match spot.move_to(&free) {
            Ok(()) => return Ok(free.path().to_owned()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                log::debug!("{} is copied: {error}", spot.path().display());
                return copy_to(spot, place, id);
            }
        }
    }
    Err(too_many())
}

/// Copies the file or symbolic link at `spot`, and removes it here.
fn copy_to(spot: &Spot, place: &Spot, id: u64) -> io::Result<PathBuf> {
    let kind = spot.look()?.file_type();
    let path = match () {
        () if kind.is_file() => save(&mut spot.open_regular(false, None)?, place, 0, id, Saved::Whole)?,
        () if kind.is_symlink() => {
            let target = spot.link_target()?;
            let free =
                (0..COPIES_MAX).map(|number| beside(place, id, Saved::Whole, number)).find_map(|free| match free {
                    Ok(free) => free.make_link(path_of(&target)).map(|()| free.path().to_owned()).ok(),
                    Err(_) => None,
                });
            free.ok_or_else(too_many)?
        }
        // A directory, say.
        () => return Err(io::ErrorKind::CrossesDevices.into()),
    };
    spot.remove()?;
    Ok(path)
}

/// Renames what is at `spot` to the first free name beside it.
fn move_within(spot: &Spot, id: u64) -> io::Result<PathBuf> {
    for number in 0..COPIES_MAX {
        let beside = beside(spot, id, Saved::Whole, number)?;
        match spot.rename_to(beside.name()) {
            Ok(()) => return Ok(beside.path().to_owned()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(too_many())
}

fn too_many() -> io::Error {
    io::Error::other(format!("there are {COPIES_MAX} copies already"))
}

fn beside(spot: &Spot, id: u64, saved: Saved, number: u32) -> io::Result<Spot> {
    let name = saved_name(spot.path(), id, saved, number);
    spot.beside(name.file_name().unwrap_or_default())
}

/// Whether what lies from `start` on in `file` is all of `copy`.
fn same_content(file: &File, start: u64, copy: &File) -> io::Result<bool> {
    let bytes = copy.metadata()?.len();
    if file.metadata()?.len() != start + bytes {
        return Ok(false);
    }
    let (mut one, mut other) = (vec![0; COMPARED_BYTES], vec![0; COMPARED_BYTES]);
    for at in (0..bytes).step_by(COMPARED_BYTES) {
        let wanted = (bytes - at).min(COMPARED_BYTES as u64) as usize;
        file.read_exact_at(&mut one[..wanted], start + at)?;
        copy.read_exact_at(&mut other[..wanted], at)?;
        if one[..wanted] != other[..wanted] {
            return Ok(false);
        }
    }
    Ok(true)
}
