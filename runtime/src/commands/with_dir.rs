//! Directories that are to be captured with all that is in them, as a user names them.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ckpt_wire::PATH_BYTES;

use super::absolute;
use crate::error::{Error, Result};

/// Their absolute paths. They must be there: a name mistyped would be a directory that is missing after a restart.
pub fn with_dirs(named: &[PathBuf]) -> Result<Vec<PathBuf>> {
    named.iter().map(|dir| check(dir)).collect()
}

fn check(dir: &Path) -> Result<PathBuf> {
    match dir.is_dir() {
        true => absolute(dir),
        false => Err(Error::Usage(format!("--with-dir {}: there is no such directory", dir.display()))),
    }
}

/// The same as one value of `CKPT_WITH_DIR`.
pub fn joined(named: &[PathBuf]) -> Result<OsString> {
    let usage = |what: &str| Error::Usage(format!("--with-dir: {what}"));
    let joined = std::env::join_paths(with_dirs(named)?).map_err(|_| usage("a colon in a path"))?;
    match joined.as_bytes().len() {
        bytes if bytes >= PATH_BYTES => Err(usage("the paths are too long together")),
        _ => Ok(joined),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_named_by_their_absolute_paths_and_must_be_there() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(with_dirs(&["src".into(), "/tmp".into()]).unwrap(), [here.join("src"), "/tmp".into()]);
        assert_eq!(joined(&["/tmp".into(), "/usr".into()]).unwrap(), "/tmp:/usr");
        for missing in ["/no/such", "Cargo.toml"] {
            assert!(matches!(with_dirs(&[missing.into()]), Err(Error::Usage(_))), "{missing}");
        }
    }
}
