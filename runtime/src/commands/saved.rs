//! `ckpt saved`: what restarts have replaced, and kept in the store.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use walkdir::WalkDir;

use super::store_owner::read_as_owner;
use super::table::{Align, Table};
use super::{default_store, print, print_json};
use crate::error::{Error, Result, exit_code};
use crate::saved_name::{self, Saved};
use crate::{sparse, units};

/// List, take out or drop what files held before a restart put them back
#[derive(Args)]
#[command(override_usage = "ckpt saved [DIR] [N --to PATH | N... --rm]")]
#[command(after_help = "\
A restart gives files the content of the checkpoint. What they held until then is kept in the store; of a file that had only grown, the
part that was cut off (tail). Of another user's store root does all of this as that user.

Examples:
  ckpt saved                           list it, of ./ckpt-store
  ckpt saved 2 --to results.newer      take the second one out
  ckpt saved /scratch/heat 1 2 --rm    drop two")]
pub struct Arguments {
    /// The store, a directory [default: $CKPT_DIR or ./ckpt-store], and numbers in the list
    #[arg(value_name = "[DIR] N...")]
    place: Vec<OsString>,
    /// Copy it to this path, where nothing may be yet
    #[arg(long, value_name = "PATH", conflicts_with = "rm")]
    to: Option<PathBuf>,
    /// Drop them
    #[arg(long)]
    rm: bool,
    /// One JSON array, for scripts
    #[arg(long, conflicts_with_all = ["to", "rm"])]
    json: bool,
}

/// What one restart has saved of one file.
#[derive(Debug, Serialize)]
struct SavedFile {
    number: u64,
    checkpoint: u64,
    saved_unix_s: u64,
    bytes: u64,
    /// whole, tail, or directory.
    what: &'static str,
    path: PathBuf,
    /// Where it is in the store.
    kept_at: PathBuf,
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> Result<u8> {
    let (dir, numbers) = default_store::with_numbers(&arguments.place, "ckpt saved")?;
    let is_change = arguments.to.is_some() || arguments.rm;
    match (is_change, numbers.as_slice()) {
        (false, []) => read_as_owner(&dir, || list(&dir, arguments.json)),
        (false, _) => Err(Error::Usage("say what is to be done with it: --to PATH, or --rm".to_owned())),
        (true, []) => Err(Error::Usage("name it by its number in the list of `ckpt saved`".to_owned())),
        (true, numbers) => read_as_owner(&dir, || change(&dir, numbers, arguments.to.as_deref())),
    }
}

fn list(dir: &Path, is_json: bool) -> Result<u8> {
    let all = all_of(dir)?;
    if is_json {
        print_json(&all)?;
    } else if all.is_empty() {
        crate::say!("no restart has saved anything in {}", dir.display());
    } else {
        print(&table(&all).to_string())?;
    }
    Ok(exit_code::DONE)
}

fn change(dir: &Path, numbers: &[u64], to: Option<&Path>) -> Result<u8> {
    let all = all_of(dir)?;
    let chosen = numbers.iter().map(|number| {
        let missing =
            || Error::Usage(format!("there is no number {number}; `ckpt saved {}` has the list", dir.display()));
        all.iter().find(|saved| saved.number == *number).ok_or_else(missing)
    });
    let chosen: Vec<&SavedFile> = chosen.collect::<Result<_>>()?;
    match (to, chosen.as_slice()) {
        (Some(to), [one]) => copy(&one.kept_at, to)?,
        (Some(_), _) => return Err(Error::Usage("one of them has room at one path".to_owned())),
        (None, chosen) => chosen.iter().try_for_each(|saved| remove(&saved.kept_at))?,
    }
    Ok(exit_code::DONE)
}

/// All that is there, oldest first.
fn all_of(dir: &Path) -> Result<Vec<SavedFile>> {
    let root = dir.join(saved_name::DIRECTORY);
    dir.metadata().map_err(|source| Error::io("open the store", dir, source))?;
    let mut all = Vec::new();
    if !root.is_dir() {
        return Ok(all);
    }
    let mut entries = WalkDir::new(&root).sort_by_file_name().into_iter();
    while let Some(entry) = entries.next() {
        let entry = entry.map_err(|error| Error::io("list", &root, io::Error::from(error)))?;
        let Some((name, checkpoint, saved)) = saved_name::parse(entry.file_name()) else { continue };
        let metadata = entry.metadata().map_err(|error| Error::io("examine", entry.path(), io::Error::from(error)))?;
        if metadata.is_dir() {
            entries.skip_current_dir();
        }
        let below = entry.path().strip_prefix(&root).unwrap_or(entry.path());
        all.push(SavedFile {
            number: 0,
            checkpoint,
            // When it came there: a file that was renamed has kept its other times.
            saved_unix_s: u64::try_from(metadata.ctime()).unwrap_or(0),
            bytes: metadata.len(),
            what: match saved {
                _ if metadata.is_dir() => "directory",
                Saved::Whole => "whole",
                Saved::Tail => "tail",
            },
            path: Path::new("/").join(below).with_file_name(name),
            kept_at: entry.path().to_owned(),
        });
    }
    all.sort_by_key(|saved| saved.saved_unix_s);
    (1..).zip(&mut all).for_each(|(number, saved)| saved.number = number);
    Ok(all)
}

fn table(all: &[SavedFile]) -> Table {
    let mut table = Table::new(&[
        ("n", Align::Right),
        ("checkpoint", Align::Right),
        ("time", Align::Left),
        ("size", Align::Right),
        ("what", Align::Left),
        ("path", Align::Left),
    ]);
    for saved in all {
        table.row([
            saved.number.to_string(),
            saved.checkpoint.to_string(),
            units::local_time(saved.saved_unix_s),
            units::bytes(saved.bytes),
            saved.what.to_owned(),
            saved.path.display().to_string(),
        ]);
    }
    table
}

/// Copies a file, symbolic link or directory to where nothing is.
fn copy(from: &Path, to: &Path) -> Result<()> {
    for entry in WalkDir::new(from) {
        let entry = entry.map_err(|error| Error::io("list", from, io::Error::from(error)))?;
        let below = entry.path().strip_prefix(from).unwrap_or(Path::new(""));
        let target = if below.as_os_str().is_empty() { to.to_owned() } else { to.join(below) };
        copy_one(entry.path(), &entry.file_type(), &target).map_err(|source| Error::io("make", &target, source))?;
    }
    Ok(())
}

fn copy_one(from: &Path, kind: &fs::FileType, to: &Path) -> io::Result<()> {
    if kind.is_dir() {
        return DirBuilder::new().mode(0o700).create(to);
    }
    if kind.is_symlink() {
        return symlink(fs::read_link(from)?, to);
    }
    let read = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(from)?;
    let metadata = read.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is neither a file nor a directory"));
    }
    let written = File::create_new(to)?;
    sparse::copy(&read, &written, metadata.len())?;
    written.set_permissions(metadata.permissions())
}

fn remove(kept: &Path) -> Result<()> {
    let is_directory = kept.symlink_metadata().is_ok_and(|metadata| metadata.is_dir());
    let removed = if is_directory { fs::remove_dir_all(kept) } else { fs::remove_file(kept) };
    removed.map_err(|source| Error::io("remove", kept, source))?;
    // Those above it that are empty now; the first that is not ends it.
    let above = kept
        .ancestors()
        .skip(1)
        .take_while(|above| above.file_name().is_some_and(|name| name != saved_name::DIRECTORY));
    for directory in above {
        if fs::remove_dir(directory).is_err() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_saved_is_listed_taken_out_and_dropped() {
        let store = tempfile::tempdir().unwrap();
        let place = store.path().join("saved/data/run");
        fs::create_dir_all(place.join("new.ckpt-2/below")).unwrap();
        fs::write(place.join("log.ckpt-1.tail"), "tail").unwrap();
        fs::write(place.join("new.ckpt-2/below/file.ckpt-1"), "deep").unwrap();
        let all = all_of(store.path()).unwrap();
        let mut found: Vec<_> =
            all.iter().map(|saved| (saved.path.to_str().unwrap(), saved.checkpoint, saved.what)).collect();
        found.sort_unstable();
        assert_eq!(found, [("/data/run/log", 1, "tail"), ("/data/run/new", 2, "directory")]);

        let to = store.path().join("out");
        let number = |what| all.iter().find(|saved| saved.what == what).unwrap().number;
        change(store.path(), &[number("directory")], Some(&to)).unwrap();
        assert_eq!(fs::read(to.join("below/file.ckpt-1")).unwrap(), b"deep");
        assert!(change(store.path(), &[number("tail")], Some(&to)).is_err(), "something is there");
        change(store.path(), &[1, 2], None).unwrap();
        assert!(all_of(store.path()).unwrap().is_empty() && !store.path().join("saved/data").exists());
        assert!(matches!(change(store.path(), &[1], None), Err(Error::Usage(_))));
    }
}
