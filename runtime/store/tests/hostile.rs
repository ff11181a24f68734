//! Stores that somebody has forged, with checksums and digests that are right: refused in bounded time and memory.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::{
    fs::File,
    sync::Arc,
    time::{Duration, Instant},
};

use ckpt_store::{
    Compression, PageListRef, Store, StoreError, StoreOptions,
    backend::Memory,
    fuzzing::{self, Child, FileMap, Found, Node},
};

mod measured;
mod story;
use measured::{Alone, alone};

const MANIFEST: &str = "manifests/0000000003.manifest";
const PACK: &str = "packs/0000000003-0000.pack";

/// Uses the store, and allows it 64 MiB and a minute.
fn used(alone: &Alone, what: &str, files: &FileMap) -> Found {
    let begun = Instant::now();
    let found = measured::within_bounds(alone, what, || fuzzing::use_all(files)).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(60), "{what} took {:?}", begun.elapsed());
    found
}

/// Nothing can be read of the checkpoint, and what is said is that it is damaged.
fn refused(alone: &Alone, what: &str, files: &FileMap, id: u64) {
    let found = used(alone, what, files);
    let pages = &found.pages.iter().find(|(other, _)| *other == id).unwrap().1;
    let verified = &found.verified.iter().find(|(other, _)| *other == id).unwrap().1;
    assert!(pages.as_ref().is_err_and(StoreError::is_corrupt), "{what}: {:?}", pages.as_ref().err());
    assert!(verified.as_ref().is_err_and(StoreError::is_corrupt), "{what}: {verified:?}");
    found.errors().for_each(|error| assert!(error.is_corrupt(), "{what}: {error}"));
}

fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    bytes[at..at + field.len()].copy_from_slice(field);
}

#[test]
fn counts_and_places_of_a_trailer_that_cannot_be_are_refused() {
    let alone = alone();
    let whole = fuzzing::small_store().unwrap();
    let footer_at = whole[PACK].len() - 64;
    for at in [20, 24, 28, 32, 36] {
        for value in [0, 1, 0x1000, 0x7fff_ffff, 0x8000_0000, u32::MAX - 64, u32::MAX] {
            let mut files = whole.clone();
            put(files.get_mut(PACK).unwrap(), footer_at + at, &value.to_le_bytes());
            if files != whole {
                fuzzing::mend(&mut files);
                used(&alone, &format!("{value:#x} at {at} of the footer"), &files);
            }
        }
    }
}

#[test]
fn lengths_of_a_manifest_near_the_largest_number_are_refused() {
    let alone = alone();
    let whole = fuzzing::small_store().unwrap();
    let fields: [(usize, Vec<u8>); 5] = [
        (40, u32::MAX.to_le_bytes().into()),
        (48, u32::MAX.to_le_bytes().into()),
        (56, u64::MAX.to_le_bytes().into()),
        (56, (u64::MAX - 79).to_le_bytes().into()),
        (56, (1u64 << 62).to_le_bytes().into()),
    ];
    for (at, field) in fields {
        let mut files = whole.clone();
        put(files.get_mut(MANIFEST).unwrap(), at, &field);
        fuzzing::mend(&mut files);
        refused(&alone, &format!("{field:x?} at {at}"), &files, 3);
    }
}

#[test]
fn a_manifest_that_is_long_without_taking_room_is_refused_before_it_is_read() {
    let alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let store = Store::create_or_open(dir.path()).unwrap();
    story::checkpoint(&store, "a", &[1]).unwrap();
    let path = dir.path().join("manifests/0000000001.manifest");
    let mut bytes = std::fs::read(&path).unwrap();
    let state_bytes = 1u64 << 40;
    let state_at =
        80 + [40, 48].map(|at| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())).iter().sum::<u32>();
    put(&mut bytes, 56, &state_bytes.to_le_bytes());
    let crc = crc32fast::hash(&bytes[..76]);
    put(&mut bytes, 76, &crc.to_le_bytes());
    std::fs::write(&path, bytes).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(u64::from(state_at) + state_bytes).unwrap();
    let error = measured::within_bounds(&alone, "a state of 1 TiB", || store.manifest(1)).unwrap_err();
    assert!(error.to_string().contains("the state's length"), "{error}");
}

/// A pack of two raw runs, and where its run table is.
fn two_runs() -> (FileMap, &'static str, usize) {
    let memory = Memory::default();
    let options = StoreOptions { compression: Compression::None, ..StoreOptions::default() };
    let store = Store::create_or_open_on(Arc::new(memory.clone()), &options).unwrap();
    let mut attempt = store.begin(story::start("a")).unwrap();
    let mut list = ckpt_store::PageList::new();
    list.set_run(0, &attempt.write_pages(&story::pages(&[1, 3])).unwrap());
    list.set_run(2, &attempt.write_pages(&story::pages(&[5, 7])).unwrap());
    let root = attempt.write_page_list(&list).unwrap();
    let mut state = Vec::new();
    ciborium::into_writer(&[root], &mut state).unwrap();
    attempt.seal(story::end(), &state).unwrap();
    let name = "packs/0000000001-0000.pack";
    let files = memory.files();
    let footer = &files[name][files[name].len() - 64..];
    let trailer_at = u64::from_le_bytes(footer[32..40].try_into().unwrap()) as usize;
    (files, name, trailer_at)
}

#[test]
fn runs_that_share_bytes_or_stand_in_another_order_are_refused() {
    let alone = alone();
    let (whole, name, trailer_at) = two_runs();
    let places = |files: &FileMap| [0, 24].map(|run| files[name][trailer_at + run..trailer_at + run + 8].to_vec());
    let [first, second] = places(&whole);
    for (what, [one, two]) in [("shared", [&first, &first]), ("backwards", [&second, &first])] {
        let mut files = whole.clone();
        put(files.get_mut(name).unwrap(), trailer_at, one);
        put(files.get_mut(name).unwrap(), trailer_at + 24, two);
        fuzzing::mend(&mut files);
        refused(&alone, what, &files, 1);
    }
}

#[test]
fn a_run_that_decodes_to_more_than_its_pages_is_refused() {
    let alone = alone();
    let zeros = vec![0; 256 << 20];
    let zstd = zstd::bulk::compress(&zeros, 19).unwrap();
    let lz4 = lz4_flex::block::compress(&zeros[..32 << 20]);
    drop(zeros);
    for (codec, stored) in [(2, zstd), (1, lz4)] {
        assert!(stored.len() < 64 * 4096, "{} bytes", stored.len());
        refused(&alone, &format!("codec {codec}"), &fuzzing::store_of_run(codec, &stored, 64).unwrap(), 1);
    }
}

/// Level by level, one node in `places` of the next.
fn shared_nodes(places: &[u16]) -> Vec<Node> {
    let leaf = Node { level: 0, children: (0..512).map(|place| (place, Child::Page(1))).collect() };
    let inner = places.iter().enumerate().map(|(below, places)| {
        let children = (0..*places).map(|place| (place, Child::Node(below))).collect();
        Node { level: below as u8 + 1, children }
    });
    std::iter::once(leaf).chain(inner).collect()
}

#[test]
fn a_list_without_end_is_refused_by_counting_and_the_longest_that_is_not_takes_bounded_memory() {
    let alone = alone();
    let whole = shared_nodes(&[64, 64, 64, 4]);
    let found =
        used(&alone, "2 TiB of one leaf", &fuzzing::store_of_nodes(&whole, &[fuzzing::root_of(&whole)]).unwrap());
    assert_eq!(found.errors().count(), 0, "{:?}", found.errors().next());
    for places in [&[64, 64, 64, 5][..], &[64; 9], &[64, 64, 64, 64, 64, 64, 64, 64, 64, 2]] {
        let nodes = shared_nodes(places);
        let root = fuzzing::root_of(&nodes);
        refused(&alone, &format!("{places:?}"), &fuzzing::store_of_nodes(&nodes, &[root]).unwrap(), 1);
    }
}

#[test]
fn a_list_of_a_thousand_roots_is_verified_in_bounded_time() {
    let alone = alone();
    let nodes = shared_nodes(&[64, 64, 64, 4]);
    let root = fuzzing::root_of(&nodes);
    let roots: Vec<PageListRef> = vec![root; 1000];
    let files = fuzzing::store_of_nodes(&nodes, &roots).unwrap();
    let store = Store::open_on(Arc::new(Memory::of_files(&files)), &StoreOptions::default()).unwrap();
    let begun = Instant::now();
    let mut pages = 0;
    let verify = || store.verifier().checkpoint(1, &mut |more| pages += more).map(drop);
    measured::within_bounds(&alone, "a thousand roots", verify).unwrap();
    assert_eq!(pages, 1000 << 29);
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

#[test]
fn a_page_behind_the_last_page_number_is_refused_and_the_last_one_is_not() {
    let alone = alone();
    let top = |place| {
        let mut nodes = shared_nodes(&[1; 10]);
        nodes.iter_mut().for_each(|node| node.children.retain(|place, _| *place == 0));
        nodes.last_mut().unwrap().children = [(place, Child::Node(9))].into();
        fuzzing::store_of_nodes(&nodes, &[fuzzing::root_of(&nodes)]).unwrap()
    };
    assert_eq!(used(&alone, "the second half", &top(1)).errors().count(), 0);
    refused(&alone, "behind the end", &top(2), 1);
}

/// The manifest with another part: 0 is the row, 1 the contents.
fn with_part(whole: &FileMap, part: usize, record: &[u8]) -> FileMap {
    let mut files = whole.clone();
    let old = &whole[MANIFEST];
    let lengths = [40, 48].map(|at| u32::from_le_bytes(old[at..at + 4].try_into().unwrap()) as usize);
    let mut head = old[..80].to_vec();
    put(&mut head, [40, 48][part], &(record.len() as u32).to_le_bytes());
    let (row, rest) = old[80..].split_at(lengths[0]);
    let (contents, state) = rest.split_at(lengths[1]);
    let parts = if part == 0 { [record, contents] } else { [row, record] };
    files.insert(MANIFEST.into(), [&head, parts[0], parts[1], state].concat());
    fuzzing::mend(&mut files);
    files
}

#[test]
fn records_that_promise_more_than_there_is_or_nest_without_end_are_refused() {
    let alone = alone();
    let whole = fuzzing::small_store().unwrap();
    let long = |kind: u8| [&[kind | 27][..], &(1u64 << 60).to_be_bytes()].concat();
    let (text, bytes, array, map) = (3 << 5, 2 << 5, 4 << 5, 5 << 5);
    let field = |name: &str, value: &[u8]| [&[map | 1, text | name.len() as u8], name.as_bytes(), value].concat();
    for record in [
        long(map),
        long(array),
        long(text),
        field("roots", &long(array)),
        field("packs", &long(array)),
        field("packs", &[&[array | 1][..], &field("root", &long(bytes))].concat()),
        field("id", &long(text)),
        field("job", &long(text)),
        field("reason", &[text | 31]),
        field("unknown", &vec![array | 1; 60_000]),
        field("unknown", &vec![array | 31; 60_000]),
        vec![6 << 5; 60_000],
    ] {
        let what = format!("{:x?}", &record[..record.len().min(24)]);
        let found = used(&alone, &what, &with_part(&whole, 0, &record));
        assert!(found.pages[0].1.as_ref().is_err_and(StoreError::is_corrupt), "row {what}");
        refused(&alone, &format!("contents {what}"), &with_part(&whole, 1, &record), 3);
    }
}

#[test]
fn the_largest_number_in_a_name_ends_the_numbers_with_an_error() {
    let alone = alone();
    let mut files = fuzzing::small_store().unwrap();
    files.insert(format!("packs/{}-0000.pack", u64::MAX), Vec::new());
    let found = used(&alone, "the largest number", &files);
    assert!(found.next.unwrap_err().to_string().contains("the highest number in a file's name"));
}
