//! What fuzz targets, the tests of hostile stores and benchmarks of decoders call: only with the feature `fuzzing`, which no
//! build of ckpt has.
//!
//! Decoders are private, and they stay so: nobody outside may depend on what lies in a file. But a fuzzer that had only
//! [`crate::Store`] would spend its life on checksums. So each record has one function here that takes any bytes, first
//! as they are and then with the checksums set right ([`mend`]), and [`store`] does with a whole damaged store all that
//! readers and writers do. None of them may panic, hang, or take more memory than the bytes justify; what they find is
//! of no matter. The same functions run in the fuzzer (runtime/store/fuzz) and, over the saved inputs, in a test.

mod edits;
mod forged;
mod mend;
mod small_store;
mod usage;

use std::{collections::BTreeMap, sync::Arc};

pub use edits::{encrypted_store, store};
pub use forged::{Child, Node, page_list, root_of, store_of_nodes, store_of_run};
pub use mend::mend;
pub use small_store::{small_store, small_store_for};
pub use usage::{Found, use_all, use_all_but_reclaim, use_all_for};

use crate::{
    Compression, PAGE_BYTES, Result,
    backend::Memory,
    codec::{self, Codec},
    files::{Files, Input, Kind, PackName},
    format::{condemned, fields::Fields, header::Header, manifest, node, pack, pack::RUN_PAGES_MAX, row},
};

/// A store's files by their names.
pub type FileMap = BTreeMap<String, Vec<u8>>;

/// The number of the small store and of every store that is forged here.
const STORE_ID: [u8; 16] = *b"fuzzed store no1";

const FIRST_PACK: PackName = PackName { attempt: 1, sequence: 0 };

/// The file `name` alone, as it is and then mended.
fn with_and_without_sums(name: &str, bytes: &[u8], read: impl Fn(&Input)) {
    let mut files = FileMap::from([(name.to_owned(), bytes.to_vec())]);
    for _ in 0..2 {
        let opened = Files::new(Arc::new(Memory::of_files(&files))).open(name);
        read(&opened.expect("it is there"));
        mend(&mut files);
    }
}

/// The file `header`.
pub fn header(bytes: &[u8]) {
    with_and_without_sums("header", bytes, |input| {
        if let Ok(header) = Header::read(input) {
            assert_eq!(header.encode().len(), bytes.len());
        }
    });
}

/// The row of a failed attempt.
pub fn row(bytes: &[u8]) {
    with_and_without_sums(&Kind::Failed.name(1), bytes, |input| {
        if let Ok(row) = row::read(input, 1) {
            row::encode(&row).expect("a row that has been read can be written");
        }
    });
}

/// A manifest: head, row, contents and state.
pub fn manifest(bytes: &[u8]) {
    let id = Fields(bytes.get(16..).unwrap_or_default()).u64();
    with_and_without_sums(&Kind::Manifest.name(1), bytes, |input| {
        let whole = manifest::read(input, &STORE_ID, id);
        assert!(whole.is_err() || manifest::read_row(input, &STORE_ID, id).is_ok());
    });
}

/// A list of condemned packs.
pub fn condemned(bytes: &[u8]) {
    with_and_without_sums(&Kind::Condemned.name(1), bytes, |input| {
        if let Ok(packs) = condemned::read(input) {
            assert_eq!(condemned::encode(&packs).len(), bytes.len());
        }
    });
}

/// A pack: header page, trailer and footer, and every run and node in it.
pub fn pack(bytes: &[u8]) {
    let mut numbers = Fields(bytes.get(32..).unwrap_or_default());
    let name = PackName { attempt: numbers.u64(), sequence: numbers.u32() };
    with_and_without_sums(&FIRST_PACK.name(), bytes, |input| {
        let Ok(trailer) = pack::read_trailer(input, &STORE_ID, name) else { return };
        for run in &trailer.runs {
            let stored = input.read(run.offset, run.stored_bytes.into()).expect("a run lies in the pack");
            let _ = codec::decode(run.codec, &stored, &mut vec![0; usize::from(run.pages) * PAGE_BYTES]);
        }
        for place in &trailer.nodes {
            node(&input.read(place.offset, place.bytes.into()).expect("a node lies in the pack"));
        }
    });
}

/// A node of a page list.
pub fn node(bytes: &[u8]) {
    let level = bytes.first().copied().unwrap_or_default();
    if let Ok(children) = node::decode(level, bytes) {
        assert!(children.windows(2).all(|pair| pair[0].0 < pair[1].0));
        let again = node::encode(level, children.iter().copied());
        assert_eq!(node::decode(level, &again), Ok(children));
    }
}

/// A stored page run: codec, pages, and then the stored bytes.
pub fn run(bytes: &[u8]) {
    let [_, pages, ..] = bytes else { return };
    decode_run(bytes, &mut vec![0; (usize::from(*pages) % RUN_PAGES_MAX + 1) * PAGE_BYTES]);
}

/// Decodes what [`run`] takes into `room`; whether that is what it holds.
pub fn decode_run(bytes: &[u8], room: &mut [u8]) -> bool {
    let [codec, _, stored @ ..] = bytes else { return false };
    Codec::from_number(*codec % 3).is_some_and(|codec| codec::decode(codec, stored, room).is_ok())
}

/// A page run as [`run`] takes it, or `None` where it is better stored raw. For benches/codecs.rs.
pub fn encode_run(compression: Compression, pages: &[u8]) -> Option<Vec<u8>> {
    let (codec, stored) = codec::encode(compression, pages)?;
    let head = [codec as u8, (pages.len() / PAGE_BYTES - 1) as u8];
    Some([&head[..], &stored].concat())
}

/// The first inputs of the targets, from real records: target, name and bytes of each.
///
/// # Errors
///
/// Those of a store in memory: none.
pub fn seeds() -> Result<Vec<(&'static str, String, Vec<u8>)>> {
    let mut seeds = Vec::new();
    for (name, bytes) in small_store()? {
        let target = match name.split_once('/') {
            Some(("packs", _)) => "pack",
            Some(("manifests", name)) if name.ends_with(".condemned") => "condemned",
            Some(("manifests", _)) => "manifest",
            Some(("attempts", _)) => "row",
            _ => "header",
        };
        if target == "pack" {
            seeds.extend(pieces(&name, &bytes)?);
        }
        seeds.push((target, name.replace('/', "-"), bytes));
    }
    seeds.extend(forged::SEEDS.iter().map(|(name, bytes)| ("page_list", (*name).to_owned(), bytes.to_vec())));
    // Without the byte that says whether checksums are mended.
    seeds.extend(edits::SEEDS.iter().map(|(name, bytes)| ("encrypted_store", (*name).to_owned(), bytes[1..].to_vec())));
    seeds.extend(edits::SEEDS.iter().map(|(name, bytes)| ("store", (*name).to_owned(), bytes.to_vec())));
    Ok(seeds)
}

/// The first node and the first compressed run of a pack.
fn pieces(name: &str, bytes: &[u8]) -> Result<Vec<(&'static str, String, Vec<u8>)>> {
    let files = FileMap::from([(name.to_owned(), bytes.to_vec())]);
    let input = Files::new(Arc::new(Memory::of_files(&files))).open(name)?;
    let pack_name = PackName::parse(name.trim_start_matches("packs/")).unwrap_or(FIRST_PACK);
    let trailer = pack::read_trailer(&input, &STORE_ID, pack_name)?;
    let mut pieces = Vec::new();
    if let Some(node) = trailer.nodes.last() {
        pieces.push(("node", name.replace('/', "-node-"), input.read(node.offset, node.bytes.into())?));
    }
    if let Some(run) = trailer.runs.iter().find(|run| run.codec != Codec::Raw) {
        let head = [run.codec as u8, run.pages as u8 - 1];
        let stored = input.read(run.offset, run.stored_bytes.into())?;
        pieces.push(("run", name.replace('/', "-run-"), [&head[..], &stored].concat()));
    }
    Ok(pieces)
}
