//! A checkpoint that is about to be used is complete, or is completed now.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ckpt_store::{AttemptState, Depth, Manifest, Store};

use super::completion::{StoredFiles, changed, complete};
use super::open::{MappedFiles, open_regular};
use crate::error::{Error, Result};
use crate::image::{self, Backing, path_of};
use crate::units;

/// Between two looks at a checkpoint that somebody else completes.
const PAUSE: Duration = Duration::from_millis(20);
/// How long that may take until it is said.
const PATIENCE: Duration = Duration::from_secs(1);

/// Sees to it that checkpoint `id` is complete. One that a writer which lives is completing is waited for; one whose writer
/// was killed is completed from the files, if they have not changed.
///
/// # Errors
/// When a file has changed: by name, with a checkpoint that is complete. The store's.
pub fn settle(store: &Store, id: u64) -> Result<()> {
    wait_or(store, id, complete_from_paths)
}

/// The same for who may not write to the store: one that nobody completes is refused.
///
/// # Errors
/// When it is not complete, and nobody is at it. The store's.
pub fn wait_until_complete(store: &Store, id: u64) -> Result<()> {
    wait_or(store, id, |_, _| {
        let why = "pages of files that its program has mapped are not stored, and a copy writes nothing to the store";
        let advice =
            "let the store's owner complete it (`ckpt restart` or `ckpt extract` does), or use an older one (--id N)";
        Err(Error::environment(format!("checkpoint {id}"), why, advice))
    })
}

/// Waits for whoever completes checkpoint `id`; does `otherwise` if nobody does.
fn wait_or(store: &Store, id: u64, otherwise: impl Fn(&Store, &Manifest) -> Result<()>) -> Result<()> {
    let begun = Instant::now();
    let mut is_said = false;
    loop {
        let manifest = store.manifest(id)?;
        if manifest.row.pending_bytes == 0 {
            return Ok(());
        }
        if !store.is_being_completed(&manifest.row.job)? {
            // The writer has begun before the seal: what it has not completed when it is gone stays so.
            let manifest = store.manifest(id)?;
            return match manifest.row.pending_bytes {
                0 => Ok(()),
                _ => otherwise(store, &manifest),
            };
        }
        if begun.elapsed() > PATIENCE && !std::mem::replace(&mut is_said, true) {
            let bytes = units::bytes(manifest.row.pending_bytes);
            crate::say!("checkpoint {id}: waiting until {bytes} of the files that its program has mapped are stored");
        }
        thread::sleep(PAUSE);
    }
}

fn complete_from_paths(store: &Store, manifest: &Manifest) -> Result<()> {
    let id = manifest.id;
    let image = image::job_of(manifest)?;
    let mut files = MappedFiles::default();
    for (region, pending) in image.pending() {
        if files.has(&pending.file) {
            continue;
        }
        let (Backing::PrivateFile(identity) | Backing::SharedFile { file: identity, .. }) = &region.backing else {
            continue;
        };
        let path = path_of(&identity.path);
        match open_regular(path).filter(|(_, metadata)| pending.file.is_that_of(metadata)) {
            Some((file, _)) => files.hold(pending.file, file),
            None => return Err(with_another(store, manifest, path)),
        }
    }
    let bytes = units::bytes(manifest.row.pending_bytes);
    crate::say!(
        "checkpoint {id}: storing {bytes} of the files that its program had mapped: its agent was killed before"
    );
    let attempt = store.begin_completion(&manifest.row.job)?;
    complete(store, attempt, id, &files, &mut StoredFiles::default(), &mut |_, _| {}).map(drop)
}

/// The error for a file that has changed, with a checkpoint that lacks nothing.
fn with_another(store: &Store, manifest: &Manifest, path: &Path) -> Error {
    let error = changed(manifest.id, path);
    let Error::Environment { what, why, advice } = error else { return error };
    let is_whole = |row: &&ckpt_store::AttemptRow| {
        (row.state, row.depth, row.pending_bytes) == (AttemptState::Sealed, Depth::Full, 0)
            && row.job == manifest.row.job
    };
    let rows = store.attempts().unwrap_or_default();
    let advice = match rows.iter().rfind(is_whole) {
        Some(row) => format!("use checkpoint {}, which has all", row.id),
        None => format!("{advice}, if there is one"),
    };
    Error::environment(what, why, advice)
}
