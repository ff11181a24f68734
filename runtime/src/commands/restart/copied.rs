//! Where the checkpoints of a copy go.

use std::path::{Path, PathBuf};

use ckpt_wire::ENV_DIR;

use super::arguments::Arguments;
use crate::commands::interval::interval_ms;
use crate::commands::run::store_dir;
use crate::error::{Error, Result};
use crate::location::Location;

/// The directory that is named for the checkpoints of a copy of what is at `source`; none if there is none, and CKPT_DIR names the source.
///
/// # Errors
/// If `--dir` names the source, to which a copy writes nothing; if there is an interval and no directory.
pub fn next_dir(arguments: &Arguments, source: &Location) -> Result<Option<PathBuf>> {
    let is_source = |dir: &Path| matches!(source, Location::Directory(from) if is_same(from, dir));
    match &arguments.next_dir {
        Some(named) => match store_dir(Some(named))? {
            dir if is_source(&dir) => Err(Error::Usage(format!(
                "--dir {}: a copy writes nothing to the store that it comes from; name another directory",
                dir.display()
            ))),
            dir => Ok(Some(dir)),
        },
        None => {
            let by_environment = std::env::var_os(ENV_DIR).filter(|dir| !dir.is_empty());
            let dir = by_environment.map(|_| store_dir(None)).transpose()?.filter(|dir| !is_source(dir));
            match (&dir, &arguments.interval) {
                (None, Some(interval)) if interval_ms(interval) != Some(0) => Err(Error::Usage(
                    "--interval: a copy has no store for checkpoints unless one is named; give --dir DIR".to_owned(),
                )),
                _ => Ok(dir),
            }
        }
    }
}

fn is_same(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}
