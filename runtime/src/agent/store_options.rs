//! How the agent opens the program's store, or makes it: the way the user wants it.
//!
//! What a store names its pages by is settled when it is made. A user who asks for something else later is told, since
//! the checkpoints are good either way and refusing them would help nobody.

use std::collections::BTreeSet;

use ckpt_store::{Digest, Store, StoreOptions};
use ckpt_wire::{
    CHUNK_BYTES_DEFAULT, Control, DIGEST_ANY, DIGEST_BLAKE3, DIGEST_SHA1, METHOD_FULL_DUMP, METHOD_INC_TRACKING,
    METHOD_LOCAL_DEDUP, METHOD_PAGES, METHOD_TREE, TREE_MIN_BYTES_DEFAULT, VERIFY_ALL, VERIFY_NOTHING, is_chunk_length,
};

use super::request::Method;
use crate::capture::TreeOptions;
use crate::error::{Error, Result};
use crate::proc::task;

/// What the program's user wants a new store to name its pages by, if anything.
pub fn wanted_digest(control: &Control) -> Result<Option<Digest>> {
    match control.digest {
        DIGEST_ANY => Ok(None),
        DIGEST_SHA1 => Ok(Some(Digest::Sha1)),
        DIGEST_BLAKE3 => Ok(Some(Digest::Blake3)),
        unknown => Err(Error::environment(
            "making the store",
            format!("libckpt.so asks for digest {unknown}, which this ckpt does not know"),
            "use the ckpt that belongs to it",
        )),
    }
}

/// How the agent opens or makes its store, with this much memory for buffers; 0 for the default.
pub fn options_of(wanted: Option<Digest>, memory_bytes: u64) -> StoreOptions {
    let mut options = StoreOptions { digest: wanted.unwrap_or_default(), ..StoreOptions::default() };
    if memory_bytes > 0 {
        options.memory_bytes = usize::try_from(memory_bytes).unwrap_or(usize::MAX);
    }
    options
}

/// What a new store of a program names its pages by when its user has no wish: SHA-1 and XXH3-64, which are faster, where all
/// pages are one user's, and BLAKE3 where several users write them. Of two pages that one user has made to look alike another
/// one's would be stored once, and XXH3-64 does not stop somebody who tries.
pub fn default_digest(pid: i32) -> Digest {
    if has_several_users(pid) { Digest::Blake3 } else { Digest::Sha1 }
}

/// Whether processes of several users are in the program `pid` and what descends from it.
fn has_several_users(pid: i32) -> bool {
    let (mut users, mut processes) = (BTreeSet::new(), vec![pid]);
    while let Some(pid) = processes.pop() {
        // Those that have ended meanwhile are nobody's.
        users.extend(users_of(pid));
        processes.extend(task::children(pid).unwrap_or_default());
    }
    users.len() > 1
}

/// The user ids of a process: real, effective, saved, and that for files.
fn users_of(pid: i32) -> Vec<u32> {
    let status = task::text(pid, "status").unwrap_or_default();
    let ids = task::status_value(&status, "Uid").unwrap_or_default();
    ids.split_whitespace().filter_map(|id| id.parse().ok()).collect()
}

/// Says once that a job has got other users since its store was made.
#[derive(Debug, Default)]
pub struct UsersWatch {
    has_said: bool,
}

impl UsersWatch {
    /// What to tell the user of `store`, into which a checkpoint of program `pid` has been taken.
    pub fn warning(&mut self, store: &Store, pid: i32) -> Option<String> {
        if self.has_said || store.digest() == Digest::Blake3 || !has_several_users(pid) {
            return None;
        }
        self.has_said = true;
        let dir = store.dir().display();
        Some(format!(
            "processes of several users are in this job, and {dir} names pages by sha1 and xxh3: a user can make two pages that \
             count as one, also for the others; for pages by blake3 set CKPT_DIGEST=blake3 and name a directory without a store"
        ))
    }
}

/// How the program's user wants memory to be stored.
pub fn wanted_method(control: &Control) -> Result<Method> {
    match control.method {
        METHOD_PAGES => Ok(Method::Pages),
        METHOD_TREE => Ok(Method::Tree),
        METHOD_FULL_DUMP => Ok(Method::FullDump),
        METHOD_LOCAL_DEDUP => Ok(Method::LocalDedup),
        METHOD_INC_TRACKING => Ok(Method::IncTracking),
        unknown => Err(unknown_wish(format!("method {unknown}"))),
    }
}

/// How it is stored by method `tree`. Half of the memory is for digests then, and the other for buffers.
pub fn tree_options(control: &Control, options: &StoreOptions) -> Result<TreeOptions> {
    // An older libckpt.so does not say.
    let or = |value: u64, default: u64| if value == 0 { default } else { value };
    let chunk_bytes = or(control.chunk_bytes, CHUNK_BYTES_DEFAULT);
    if !is_chunk_length(chunk_bytes) {
        return Err(unknown_wish(format!("chunks of {chunk_bytes} bytes")));
    }
    Ok(TreeOptions {
        chunk_bytes: chunk_bytes as u32,
        min_bytes: or(control.tree_min_bytes, TREE_MIN_BYTES_DEFAULT),
        // And a third of it for lists while a difference is found.
        digest_bytes: options.memory_bytes as u64 / 8 * 3,
        verify_memory: control.verify_matches != VERIFY_NOTHING,
        verify_all: control.verify_matches == VERIFY_ALL,
    })
}

/// What copies of pages may take that are made before a stop: three quarters of the memory for
/// buffers, of which the store needs a tenth.
pub fn copies_bytes(options: &StoreOptions) -> u64 {
    options.memory_bytes as u64 / 4 * 3
}

fn unknown_wish(what: String) -> Error {
    let why = format!("libckpt.so asks for {what}, which this ckpt does not know");
    Error::environment("taking checkpoints", why, "use the ckpt that belongs to it")
}

/// What to tell a user whose wish came too late for `store`.
pub fn digest_warning(store: &Store, wanted: Option<Digest>) -> Option<String> {
    let (kept, wanted) = (store.digest(), wanted?);
    (kept != wanted).then(|| {
        let dir = store.dir().display();
        format!("{dir} was made with digest {kept} and keeps it; for {wanted} name a directory without a store")
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ckpt_wire::VERIFY_HOST;

    use super::*;

    fn open_store(directory: &Path, wanted: Option<Digest>) -> Store {
        Store::create_or_open_with(directory, &options_of(wanted, 0)).unwrap()
    }

    #[test]
    fn large_memory_is_stored_as_the_program_asks_and_an_old_one_gets_the_defaults() {
        let mut control: Control = zerocopy::FromZeros::new_zeroed();
        let of = |control: &Control| tree_options(control, &options_of(None, 64 << 20)).unwrap();
        assert_eq!(wanted_method(&control).unwrap(), Method::Pages);
        let default = TreeOptions {
            chunk_bytes: 128,
            min_bytes: 16 << 20,
            digest_bytes: 24 << 20,
            verify_memory: false,
            verify_all: false,
        };
        assert_eq!(of(&control), default);
        control.method = METHOD_TREE;
        (control.chunk_bytes, control.tree_min_bytes, control.verify_matches) = (64, 7, 1);
        assert_eq!(wanted_method(&control).unwrap(), Method::Tree);
        assert_eq!(
            of(&control),
            TreeOptions { chunk_bytes: 64, min_bytes: 7, verify_memory: true, verify_all: true, ..default }
        );
        control.verify_matches = VERIFY_HOST;
        let by_default = of(&control);
        assert!(by_default.verify_memory && !by_default.verify_all, "{by_default:?}");
        (control.chunk_bytes, control.method) = (33, METHOD_INC_TRACKING + 1);
        assert!(wanted_method(&control).is_err() && tree_options(&control, &options_of(None, 0)).is_err());
    }

    /// A shell with a child that is another user's.
    struct TwoUsers(std::process::Child);

    impl TwoUsers {
        fn start() -> Self {
            use std::os::unix::process::CommandExt;
            let mut shell = std::process::Command::new("sh");
            shell.args(["-c", "setpriv --reuid=65534 --clear-groups sleep 60 & wait"]).process_group(0);
            let shell = Self(shell.spawn().unwrap());
            let begun = std::time::Instant::now();
            while !has_several_users(shell.0.id() as i32) {
                assert!(begun.elapsed().as_secs() < 30, "no process of another user");
                std::thread::yield_now();
            }
            shell
        }
    }

    impl Drop for TwoUsers {
        fn drop(&mut self) {
            let group = nix::unistd::Pid::from_raw(self.0.id() as i32);
            let _ = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL);
            let _ = self.0.wait();
        }
    }

    #[test]
    fn stores_of_several_users_get_blake3_and_who_has_another_is_told_once() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("SKIPPED: only root can start a process of another user");
            return;
        }
        let mut alone = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert_eq!(default_digest(alone.id() as i32), Digest::Sha1);
        let several = TwoUsers::start();
        let pid = several.0.id() as i32;
        assert_eq!(default_digest(pid), Digest::Blake3);
        let dir = tempfile::tempdir().unwrap();
        let store = open_store(&dir.path().join("sha1"), None);
        let mut watch = UsersWatch::default();
        assert_eq!(watch.warning(&store, alone.id() as i32), None);
        let warning = watch.warning(&store, pid).unwrap();
        assert!(warning.contains("CKPT_DIGEST=blake3"), "{warning}");
        assert_eq!(watch.warning(&store, pid), None, "it has been said");
        let other = open_store(&dir.path().join("blake3"), Some(Digest::Blake3));
        assert_eq!(UsersWatch::default().warning(&other, pid), None);
        alone.kill().and_then(|()| alone.wait()).unwrap();
    }

    #[test]
    fn a_new_store_gets_the_digest_that_is_wanted_and_keeps_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let made = open_store(&path, Some(Digest::Blake3));
        assert_eq!((made.digest(), digest_warning(&made, Some(Digest::Blake3))), (Digest::Blake3, None));
        let opened = open_store(&path, Some(Digest::Sha1));
        assert_eq!(opened.digest(), Digest::Blake3);
        let warning = digest_warning(&opened, Some(Digest::Sha1)).unwrap();
        assert!(warning.contains("digest blake3 and keeps it; for sha1"), "{warning}");
        assert_eq!(digest_warning(&open_store(&path, None), None), None, "who has no wish is told nothing");
        assert_eq!(open_store(&dir.path().join("other"), None).digest(), Digest::Sha1);
    }
}
