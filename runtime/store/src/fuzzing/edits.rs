//! A damaged store: the small one, after a few edits that the fuzzer chooses.
//!
//! Input: a byte whose lowest bit says whether checksums are mended afterwards, then 16 bytes an edit: file, kind, two
//! bytes without meaning, place (4 bytes; from the end of the file when the highest bit is set), value (8 bytes).

use std::sync::OnceLock;

use super::{FileMap, Found, mend, small_store, small_store_for, use_all, use_all_for};
use crate::{Key, StoreError, format::fields::Fields};

const EDITS_MAX: usize = 64;
const EDIT_BYTES: usize = 16;

/// Inputs to begin with.
pub(super) const SEEDS: [(&str, &[u8]); 4] = [
    ("no-edit", &[0]),
    ("a-flipped-byte", &[0, 1, 0, 0, 0, 100, 0, 0, 0, 0xff, 0, 0, 0, 0, 0, 0, 0]),
    ("more-runs", &[1, 5, 1, 0, 0, 44, 0, 0, 0x80, 0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0]),
    ("another-number", &[1, 2, 6, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
];

/// Uses the store that these edits leave of the small one.
pub fn store(bytes: &[u8]) {
    static WHOLE: OnceLock<FileMap> = OnceLock::new();
    let mut files = WHOLE.get_or_init(|| small_store().expect("a store in memory")).clone();
    let Some((mended, edits)) = bytes.split_first() else { return };
    for edit in edits.as_chunks::<EDIT_BYTES>().0.iter().take(EDITS_MAX) {
        apply(&mut files, edit);
    }
    if mended & 1 == 1 {
        mend(&mut files);
    }
    match use_all(&files) {
        Ok(found) => found.errors().for_each(check),
        // A header may say so.
        Err(StoreError::KeyNeeded { .. }) => {}
        Err(error) => check(&error),
    }
}

/// Uses the encrypted store that the edits of [`store`] leave of the small one, by its key, which who edits has not: no page
/// is another than the one that was written.
pub fn encrypted_store(bytes: &[u8]) {
    static WHOLE: OnceLock<(FileMap, Found)> = OnceLock::new();
    let key = Some(Key::from_bytes([7; 32]));
    let (files, whole) = WHOLE.get_or_init(|| {
        let files = small_store_for(key).expect("a store in memory");
        let whole = use_all_for(&files, key).expect("it is whole");
        (files, whole)
    });
    let mut files = files.clone();
    for edit in bytes.as_chunks::<EDIT_BYTES>().0.iter().take(EDITS_MAX) {
        apply(&mut files, edit);
    }
    match use_all_for(&files, key) {
        Ok(found) => {
            found.errors().for_each(check);
            let before =
                |id| whole.pages.iter().find(|(other, _)| other == id).and_then(|(_, pages)| pages.as_ref().ok());
            for (id, pages) in found.pages.iter().filter_map(|(id, pages)| Some((id, pages.as_ref().ok()?))) {
                assert!(before(id) == Some(pages), "checkpoint {id} has pages that were never in it");
            }
        }
        // Without the file of a key it opens the store no more, and with another header it is another store's.
        Err(StoreError::WrongKey { .. } | StoreError::NotEncrypted { .. }) => {}
        Err(error) => check(&error),
    }
}

/// Files that are there can be read: nothing is left but damage, and what a hostile header may say.
fn check(error: &StoreError) {
    use StoreError::{Corrupt, NoSuchCheckpoint, NotAStore, UnsupportedFeature};
    let expected =
        matches!(error, Corrupt { .. } | NoSuchCheckpoint { .. } | NotAStore { .. } | UnsupportedFeature { .. });
    assert!(expected, "{error}");
}

fn apply(files: &mut FileMap, edit: &[u8; EDIT_BYTES]) {
    let mut fields = Fields(edit);
    let (file, kind, _, place, value) = (fields.u8(), fields.u8(), fields.u16(), fields.u32(), fields.take::<8>());
    let Some(name) = files.keys().nth(usize::from(file) % files.len().max(1)).cloned() else { return };
    let number = u64::from_le_bytes(value);
    match kind % 8 {
        5 => drop(files.remove(&name)),
        6 => {
            let to = renamed(&name, number);
            let bytes = files[&name].clone();
            files.insert(to, bytes);
        }
        7 => {
            let other = files.keys().nth(number as usize % files.len()).cloned().unwrap_or_default();
            let (one, two) = (files[&name].clone(), files[&other].clone());
            files.extend([(name, two), (other, one)]);
        }
        kind => change(files.entry(name).or_default(), kind, place, value),
    }
}

/// The same kind of file of another attempt.
fn renamed(name: &str, number: u64) -> String {
    match name.split_once('/') {
        Some((dir, file)) => format!("{dir}/{number:010}{}", file.get(10..).unwrap_or_default()),
        None => name.to_owned(),
    }
}

fn change(bytes: &mut Vec<u8>, kind: u8, place: u32, value: [u8; 8]) {
    let distance = (place & 0x7fff_ffff) as usize % (bytes.len() + 1);
    let at = if place >> 31 == 0 { distance } else { bytes.len() - distance };
    match kind {
        0 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= value[0]),
        1 => bytes.iter_mut().skip(at).zip(value).for_each(|(byte, new)| *byte = new),
        2 => bytes.iter_mut().skip(at).zip(&value[..4]).for_each(|(byte, new)| *byte = *new),
        3 => drop(bytes.splice(at..at, value)),
        _ => bytes.truncate(at),
    }
}
