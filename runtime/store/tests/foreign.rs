//! What somebody else has put in the place of a part of a store: refused by name, and nothing waits for it.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::{
    fs,
    os::unix::{fs::chown, fs::symlink, net::UnixListener},
    path::Path,
    sync::mpsc,
    thread,
    time::Duration,
};

use ckpt_store::{Result, Store, StoreError, StoreOptions};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

mod story;
use story::{checkpoint, read_back, start};

const SOMEBODY: u32 = 12_345;
const PARTS: [&str; 8] = [
    "",
    "packs",
    "manifests",
    "attempts",
    "header",
    "packs/0000000001-0000.pack",
    "manifests/0000000001.manifest",
    "attempts/0000000002.failed",
];

/// A store of a checkpoint and a failed attempt, with a lock and the row of an attempt whose writer has died.
fn store_in(dir: &Path) {
    let store = Store::create_or_open(dir).unwrap();
    checkpoint(&store, "a", &[1]).unwrap();
    store.begin(start("a")).unwrap().fail("for the test", 0.0).unwrap();
    drop(store.begin(start("a")).unwrap());
}

/// All that is done with a store: the first error of it.
fn use_all(dir: &Path, options: &StoreOptions) -> Result<()> {
    let store = Store::open_with(dir, options)?;
    store.attempts()?;
    store.newest_sealed(Some("a"))?;
    read_back(&store, 1, 1)?;
    store.verifier().checkpoint(1, &mut |_| ())?;
    let mut attempt = store.begin(start("a"))?;
    attempt.write_pages(&story::pages(&[1, 5]))?;
    attempt.fail("for the test", 0.0)
}

/// [`use_all`] on a thread of its own, which must come back.
fn use_in_time(dir: &Path, what: &str) -> Result<()> {
    let (done, result) = mpsc::channel();
    let dir = dir.to_path_buf();
    thread::spawn(move || done.send(use_all(&dir, &StoreOptions::default())));
    result.recv_timeout(Duration::from_secs(20)).unwrap_or_else(|_| panic!("{what} is waited for"))
}

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("SKIPPED: only root can give files away and make devices");
    }
    root
}

#[test]
fn each_part_that_belongs_to_somebody_else_is_refused_by_its_name() {
    if !is_root() {
        return;
    }
    for part in PARTS.into_iter().chain(["lock", "attempts/0000000003.writing"]) {
        let dir = tempfile::tempdir().unwrap();
        store_in(dir.path());
        use_all(dir.path(), &StoreOptions::default()).unwrap();
        store_in(dir.path());
        let path = dir.path().join(part);
        if part.contains("writing") {
            // The attempt before has left none: its place is taken by a file that somebody made.
            fs::write(&path, "").unwrap();
        }
        chown(&path, Some(SOMEBODY), None).unwrap();
        match use_all(dir.path(), &StoreOptions::default()).unwrap_err() {
            StoreError::ForeignOwner { path: refused, owner: SOMEBODY, .. } => {
                assert_eq!(refused, path.canonicalize().unwrap());
            }
            error => panic!("{part}: {error}"),
        }
    }
}

#[test]
fn who_trusts_the_owner_of_a_store_trusts_nobody_else() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    store_in(dir.path());
    let trusting = StoreOptions { trust_owner: true, ..StoreOptions::default() };
    PARTS.iter().for_each(|part| chown(dir.path().join(part), Some(SOMEBODY), None).unwrap());
    assert!(matches!(use_all(dir.path(), &StoreOptions::default()), Err(StoreError::ForeignOwner { .. })));
    use_all(dir.path(), &trusting).unwrap();
    for part in &PARTS[1..] {
        chown(dir.path().join(part), Some(SOMEBODY + 1), None).unwrap();
        let error = use_all(dir.path(), &trusting).unwrap_err();
        assert!(matches!(error, StoreError::ForeignOwner { owner, .. } if owner == SOMEBODY + 1), "{part}: {error}");
        chown(dir.path().join(part), Some(SOMEBODY), None).unwrap();
    }
}

/// Puts something else in the place of a file or directory.
type Replace = fn(&Path);

const REPLACEMENTS: [(&str, Replace); 6] = [
    ("a link to what was there", |path| {
        let moved = path.with_extension("moved");
        fs::rename(path, &moved).unwrap();
        symlink(moved, path).unwrap();
    }),
    ("a link to nothing", |path| {
        remove(path);
        symlink("/nowhere/at/all", path).unwrap();
    }),
    ("a FIFO", |path| {
        remove(path);
        mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    }),
    ("a socket", |path| {
        remove(path);
        // Its name may be 107 bytes long, and stays when it is closed.
        drop(UnixListener::bind(path).unwrap());
    }),
    ("a device", |path| {
        remove(path);
        // The one that gives zeros for ever.
        mknodat(CWD, path, FileType::CharacterDevice, Mode::RUSR | Mode::WUSR, makedev(1, 5)).unwrap();
    }),
    ("a file or directory", |path| {
        let was_dir = path.is_dir();
        remove(path);
        if was_dir { fs::write(path, "").unwrap() } else { fs::create_dir(path).unwrap() }
    }),
];

fn remove(path: &Path) {
    if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
}

#[test]
fn what_is_no_file_and_no_directory_is_refused_without_waiting() {
    if !is_root() {
        return;
    }
    for (what, replace) in REPLACEMENTS {
        for part in PARTS[1..].iter().chain(&["lock"]) {
            let dir = tempfile::tempdir().unwrap();
            store_in(dir.path());
            replace(&dir.path().join(part));
            let error = use_in_time(dir.path(), &format!("{what} as {part}")).expect_err(&format!("{what} as {part}"));
            let expected = matches!(error, StoreError::Io { .. } | StoreError::NotAStore { .. });
            assert!(expected && error.to_string().contains(part), "{what} as {part}: {error}");
        }
    }
}
