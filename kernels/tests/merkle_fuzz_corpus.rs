//! The saved inputs of the fuzz target `difference`.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::{fs, path::Path};

mod hostile;
#[path = "../../runtime/store/tests/measured/mod.rs"]
mod measured;

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../runtime/store/fuzz/corpus/difference");

#[test]
fn no_saved_input_panics_or_takes_much_memory() {
    let alone = measured::alone();
    let mut inputs = 0;
    for entry in fs::read_dir(CORPUS).unwrap() {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        measured::within_bounds(&alone, &path.display().to_string(), || hostile::difference(&bytes));
        inputs += 1;
    }
    assert!(inputs >= 4, "{inputs} inputs");
}

#[test]
fn what_each_method_gives_is_among_the_saved_inputs() {
    let _alone = measured::alone();
    for (method, bytes) in hostile::lineage_and_next().1 {
        let saved = fs::read(Path::new(CORPUS).join(format!("{method:?}"))).unwrap();
        assert!(saved == bytes, "{method:?}: `write_seeds` writes the inputs of a new format");
    }
}

/// `cargo test -p ckpt-kernels --test merkle_fuzz_corpus -- --ignored` writes the inputs that fuzzing begins with.
#[test]
#[ignore = "writes the first inputs of the fuzz target; to be run when the format has changed"]
fn write_seeds() {
    let _alone = measured::alone();
    fs::create_dir_all(CORPUS).unwrap();
    for (method, bytes) in hostile::lineage_and_next().1 {
        fs::write(Path::new(CORPUS).join(format!("{method:?}")), bytes).unwrap();
    }
}
