//! `ckpt key`: the keys that open encrypted stores.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use ckpt_store::{KeyId, Store};
use clap::{Args, Subcommand};
use serde::Serialize;

use super::{print, print_json};
use crate::error::{Result, exit_code};
use crate::{location, store_key, units};

/// Make keys, and say which of them open an encrypted store
#[derive(Args)]
#[command(after_help = "\
A store that is made while CKPT_KEY names a key is encrypted and authenticated: without a key that opens it
nobody can read or change a checkpoint in there. Keep a second key elsewhere: IF ALL KEYS OF A STORE ARE LOST, ALL
ITS CHECKPOINTS ARE LOST.

Examples:
  ckpt key new ~/.ckpt-key                       make a key
  CKPT_KEY=~/.ckpt-key ckpt run -- ./app         its store, if it is made now, is encrypted
  CKPT_KEY=~/.ckpt-key ckpt restart ckpt-store   restart from it
  ckpt key new /mnt/safe/second-key              make a second key
  CKPT_KEY=~/.ckpt-key ckpt key add ckpt-store /mnt/safe/second-key
  CKPT_KEY='command:pass show ckpt' ckpt list ckpt-store")]
pub struct Arguments {
    #[command(subcommand)]
    command: KeyCommand,
}

#[derive(Subcommand)]
enum KeyCommand {
    /// Make a key, in a file that is not there yet
    New {
        /// The file; it is for its owner alone
        file: PathBuf,
    },
    /// Let another key open a store, beside those that do
    Add {
        /// The store; CKPT_KEY is a key that opens it
        dir: PathBuf,
        /// The other key: a file, or command:COMMAND
        key: OsString,
    },
    /// Let a key open a store no more
    #[command(after_help = "\
Who has used the key may have kept what it opened: to lock somebody out, copy the checkpoints into a new store
with another key (`ckpt copy`), and remove the old one. The last key of a store is not removed.")]
    Remove {
        /// The store; CKPT_KEY is a key that opens it
        dir: PathBuf,
        /// The key: its name in `ckpt key list`, a file, or command:COMMAND
        key: OsString,
    },
    /// List the keys that open a store
    List {
        /// The store; CKPT_KEY is a key that opens it
        dir: PathBuf,
        /// One JSON array, for scripts
        #[arg(long)]
        json: bool,
    },
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> Result<u8> {
    match &arguments.command {
        KeyCommand::New { file } => new(file)?,
        KeyCommand::Add { dir, key } => add(dir, key)?,
        KeyCommand::Remove { dir, key } => remove(dir, key)?,
        KeyCommand::List { dir, json } => list(dir, *json)?,
    }
    Ok(exit_code::DONE)
}

fn new(file: &Path) -> Result<()> {
    store_key::create(file)?;
    crate::say!(
        "{} is a new key; whoever loses all keys of a store loses all checkpoints in it, so keep a second one elsewhere",
        file.display()
    );
    Ok(())
}

fn add(dir: &Path, key: &OsStr) -> Result<()> {
    let id = location::open(dir)?.add_key(&store_key::read(key, Path::new("."))?)?;
    print(&format!("{id}\n"))
}

fn remove(dir: &Path, key: &OsStr) -> Result<()> {
    let store = location::open(dir)?;
    let id = id_of(&store, key)?;
    store.remove_key(id)?;
    let left = store.keys()?.len();
    let keys = if left == 1 { "1 key opens".to_owned() } else { format!("{left} keys open") };
    crate::say!(
        "{keys} {} now; without that nobody can read it. Who has used the one that was removed may still be able to",
        dir.display()
    );
    Ok(())
}

/// The name of a key, which is given as it is or by the key.
fn id_of(store: &Store, key: &OsStr) -> Result<KeyId> {
    match key.to_str().and_then(KeyId::from_text) {
        Some(id) => Ok(id),
        None => Ok(store.key_id(&store_key::read(key, Path::new("."))?)),
    }
}

/// A row of `--json`. Scripts depend on the names.
#[derive(Serialize)]
struct Line {
    key: String,
    added_unix_s: u64,
    /// It is the one that was used.
    is_yours: bool,
}

fn list(dir: &Path, json: bool) -> Result<()> {
    let store = location::open(dir)?;
    let ours = store_key::of_environment()?.map(|key| store.key_id(&key));
    let line = |key: ckpt_store::AddedKey| Line {
        key: key.id.to_string(),
        added_unix_s: key.added_unix_s,
        is_yours: Some(key.id) == ours,
    };
    let lines: Vec<Line> = store.keys()?.into_iter().map(line).collect();
    if json {
        return print_json(&lines);
    }
    let text = |line: &Line| {
        let yours = if line.is_yours { "  (CKPT_KEY)" } else { "" };
        format!("{}  added {}{yours}\n", line.key, units::local_time(line.added_unix_s))
    };
    print(&lines.iter().map(text).collect::<String>())
}
