//! Paths in an image.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::{Backing, FileKind, JobImage, Objects, ProcessImage};

/// The bytes of an image as a path.
pub fn path_of(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// Directories that are elsewhere now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathMap {
    /// Old and new, without slashes at their ends; the longest old ones first.
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl PathMap {
    /// A map of these pairs of absolute paths, old and new.
    pub fn new(pairs: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) -> PathMap {
        let trimmed = |path: Vec<u8>| {
            let end = path.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
            path[..end].to_vec()
        };
        let mut pairs: Vec<_> = pairs.into_iter().map(|(old, new)| (trimmed(old), trimmed(new))).collect();
        pairs.sort_by_key(|(old, _)| std::cmp::Reverse(old.len()));
        PathMap { pairs }
    }

    fn apply(&self, path: &mut Vec<u8>) {
        let rest = |old: &[u8]| path.strip_prefix(old).filter(|rest| rest.is_empty() || rest[0] == b'/');
        let found = self.pairs.iter().find_map(|(old, new)| rest(old).map(|rest| [new.as_slice(), rest].concat()));
        match found {
            Some(moved) if moved.is_empty() => *path = b"/".to_vec(),
            Some(moved) => *path = moved,
            None => {}
        }
    }
}

impl JobImage {
    /// Lets every path under an old directory lead under the new one. What programs themselves remember stays as it is.
    pub fn map_paths(&mut self, paths: &PathMap) {
        for process in &mut self.processes {
            process.map_paths(paths);
        }
        self.objects.map_paths(paths);
    }
}

impl ProcessImage {
    fn map_paths(&mut self, paths: &PathMap) {
        paths.apply(&mut self.executable);
        paths.apply(&mut self.working_directory);
        paths.apply(&mut self.root_directory);
        for region in &mut self.regions {
            match &mut region.backing {
                Backing::PrivateFile(file) | Backing::SharedFile { file, .. } => paths.apply(&mut file.path),
                Backing::Anonymous | Backing::SharedObject { .. } => {}
            }
        }
    }
}

impl Objects {
    fn map_paths(&mut self, paths: &PathMap) {
        for file in &mut self.files {
            match &mut file.kind {
                FileKind::Regular { path, .. } | FileKind::Directory { path, .. } | FileKind::Named { path, .. } => {
                    paths.apply(path)
                }
                FileKind::Socket(socket) => paths.apply(&mut socket.directory),
                FileKind::Fanotify(group) => group.marks.iter_mut().for_each(|mark| paths.apply(&mut mark.path)),
                FileKind::Inotify { watches } => watches.iter_mut().for_each(|watch| paths.apply(&mut watch.path)),
                _ => {}
            }
        }
        for fifo in self.pipes.iter_mut().filter_map(|pipe| pipe.fifo.as_mut()) {
            paths.apply(&mut fifo.path);
        }
        for file in &mut self.captured_files {
            paths.apply(&mut file.path);
        }
        for tree in &mut self.captured_trees {
            paths.apply(tree);
        }
        self.directories.iter_mut().for_each(|directory| paths.apply(&mut directory.path));
        for file in self.unlinked_files.iter_mut().filter(|file| file.memory_seals.is_none()) {
            paths.apply(&mut file.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_under_an_old_directory_lead_under_the_new_one_and_no_others() {
        let map = |pairs: &[(&str, &str)]| {
            PathMap::new(pairs.iter().map(|(old, new)| (old.as_bytes().to_vec(), new.as_bytes().to_vec())))
        };
        let paths = map(&[("/home/a", "/home/b"), ("/home/a/big/", "/scratch/"), ("/x", "/")]);
        for (old, new) in [
            ("/home/a", "/home/b"),
            ("/home/a/f", "/home/b/f"),
            ("/home/ab/f", "/home/ab/f"),
            ("/home/a/big/f", "/scratch/f"),
            ("/x", "/"),
            ("/x/y", "/y"),
            ("home/a", "home/a"),
        ] {
            let mut path = old.as_bytes().to_vec();
            paths.apply(&mut path);
            assert_eq!(String::from_utf8(path).unwrap(), new, "{old}");
        }
        let mut path = b"/f".to_vec();
        map(&[("/", "/image")]).apply(&mut path);
        assert_eq!(path, b"/image/f");
    }
}
