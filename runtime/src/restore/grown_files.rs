//! Files that were open for writing, have grown since the checkpoint, and are not captured: each is cut back to its size then,
//! or the program would append its output a second time. What is cut off is saved, so that nothing is lost; where that is
//! impossible, a warning says so.

use std::path::Path;

use super::reach::{self, Identity, Rights, Spot};
use super::saved_copy::SavedCopies;
use crate::error::Result;
use crate::saved_name::Saved;

/// Cuts the file at `path` back to `size` bytes, with the rights of one of its `holders`.
pub fn cut_back(
    path: &Path,
    holders: &[Rights],
    identity: Option<Identity>,
    size: u64,
    copies: &SavedCopies,
) -> Result<()> {
    let failed = |source| reach::failed("cut back to its size at the checkpoint", path, source);
    let spot = Spot::reach(path, holders).map_err(failed)?;
    if spot.look().map_err(failed)?.len() <= size {
        return Ok(());
    }
    let mut file = spot.open_regular(true, identity).map_err(failed)?;
    match copies.save(&mut file, &spot, size, Saved::Tail) {
        Ok(tail) => log::info!("{}: what was written after the checkpoint is in {}", path.display(), tail.display()),
        Err(error) => {
            log::warn!("{}: what was written after the checkpoint could not be saved: {error}", path.display());
        }
    }
    file.set_len(size).map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::restore::place::Place;
    use crate::restore::sample::ScratchDir;

    /// Those of checkpoint `id`, without a store.
    fn beside(id: u64) -> SavedCopies {
        SavedCopies::of(None, false, &Place::AsStarted, id)
    }

    #[test]
    fn what_is_cut_off_is_saved_in_the_store_where_the_file_is_below_the_root() {
        let dir = ScratchDir::new();
        let path = dir.file("log", b"before|after");
        let store = dir.path().canonicalize().unwrap().join("store");
        fs::create_dir(&store).unwrap();
        let copies = SavedCopies::of(Some(&store), false, &Place::AsStarted, 3);
        cut_back(&path, &[Rights::own().unwrap()], None, 7, &copies).unwrap();
        let saved = store.join("saved").join(path.canonicalize().unwrap().strip_prefix("/").unwrap());
        assert_eq!(fs::read(saved.with_file_name("log.ckpt-3.tail")).unwrap(), b"after");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        fs::write(&path, b"before|again").unwrap();
        let encrypted = SavedCopies::of(Some(&store), true, &Place::AsStarted, 3);
        cut_back(&path, &[Rights::own().unwrap()], None, 7, &encrypted).unwrap();
        assert_eq!(fs::read(dir.path().join("log.ckpt-3.tail")).unwrap(), b"again");
    }

    #[test]
    fn without_a_store_what_is_cut_off_is_saved_beside_the_file() {
        let dir = ScratchDir::new();
        let path = dir.file("log", b"before|after");
        cut_back(&path, &[Rights::own().unwrap()], None, 7, &beside(3)).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"before|");
        assert_eq!(fs::read(dir.path().join("log.ckpt-3.tail")).unwrap(), b"after");
        cut_back(&path, &[Rights::own().unwrap()], None, 7, &beside(3)).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_second_tail_gets_a_name_of_its_own_unless_it_is_the_same() {
        let dir = ScratchDir::new();
        let path = dir.file("log", b"");
        for (run, content) in ["x1", "x2", "x1"].iter().enumerate() {
            fs::write(&path, content).unwrap();
            cut_back(&path, &[Rights::own().unwrap()], None, 1, &beside(9)).unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"x", "run {run}");
        }
        assert_eq!(fs::read(dir.path().join("log.ckpt-9.tail")).unwrap(), b"1");
        assert_eq!(fs::read(dir.path().join("log.ckpt-9.tail.1")).unwrap(), b"2");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
    }
}
