//! The saved inputs of the fuzz targets, through the functions that the targets call.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::{fs, path::Path};

use ckpt_store::fuzzing;

mod measured;

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus");

/// Runs every saved input of `target`.
fn replay(target: &str, run: fn(&[u8])) {
    let alone = measured::alone();
    let mut inputs = 0;
    for entry in fs::read_dir(Path::new(CORPUS).join(target)).unwrap() {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        measured::within_bounds(&alone, &path.display().to_string(), || run(&bytes));
        inputs += 1;
    }
    assert!(inputs > 0, "no input of {target}");
}

macro_rules! replayed {
    ($($target:ident)*) => {
        $(#[test]
        fn $target() {
            replay(stringify!($target), fuzzing::$target);
        })*

        /// `image` is a record of the runtime, which reads `device_code` too, and `difference` one of the kernels; they
        /// are replayed there.
        #[test]
        fn every_target_is_replayed() {
            let mut targets: Vec<_> =
                fs::read_dir(CORPUS).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            targets.sort();
            let mut replayed = vec!["device_code", "difference", "image", $(stringify!($target)),*];
            replayed.sort();
            assert_eq!(targets, replayed);
        }
    };
}

replayed! { condemned encrypted_store header manifest node pack page_list row run store }

/// `cargo test -p ckpt-store --test fuzz_corpus -- --ignored` writes the inputs that fuzzing begins with.
#[test]
#[ignore = "writes the first inputs of the fuzz targets; to be run when the format has changed"]
fn write_seeds() {
    let _alone = measured::alone();
    for (target, name, bytes) in fuzzing::seeds().unwrap() {
        let dir = Path::new(CORPUS).join(target);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(name), bytes).unwrap();
    }
}
