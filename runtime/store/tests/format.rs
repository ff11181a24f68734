//! A store is what FORMAT.md says: read here by the offsets in that document, without the library's decoders.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::{collections::BTreeMap, sync::Arc};

use ckpt_store::{Compression, Digest, PAGE_BYTES, Store, StoreOptions, backend::Memory};

mod story;
use story::{checkpoint, page, start};

fn store(numbers: &[u64], compression: Compression) -> BTreeMap<String, Vec<u8>> {
    let memory = Memory::default();
    let options = StoreOptions { compression, ..Default::default() };
    let store = Store::create_or_open_on(Arc::new(memory.clone()), &options).unwrap();
    checkpoint(&store, "a", numbers).unwrap();
    store.begin(start("a")).unwrap().fail("for the test", 0.0).unwrap();
    memory.files()
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    let mut wide = [0; 8];
    wide[..N].copy_from_slice(&bytes[at..at + N]);
    u64::from_le_bytes(wide)
}

fn check_block(block: &[u8], mark: &[u8]) {
    assert!(block.starts_with(mark));
    let content = block.len() - 4;
    assert_eq!(number::<4>(block, content), u64::from(crc32fast::hash(&block[..content])));
}

#[test]
fn the_directory_has_the_files_of_the_document() {
    let files = store(&[1], Compression::Zstd);
    let names: Vec<&str> = files.keys().map(String::as_str).collect();
    let expected =
        ["attempts/0000000002.failed", "header", "manifests/0000000001.manifest", "packs/0000000001-0000.pack"];
    assert_eq!(names, expected);
}

#[test]
fn the_header_is_that_of_the_document() {
    let files = store(&[1], Compression::Zstd);
    let header = &files["header"];
    assert_eq!(header.len(), 512);
    check_block(header, b"ckptstor");
    assert_eq!((number::<4>(header, 8), number::<4>(header, 12)), (0, 512));
    assert_eq!((number::<8>(header, 16), number::<8>(header, 24)), (0, 0));
    assert!(header[56..508].iter().all(|byte| *byte == 0));
    assert_eq!(header[32..48], files["packs/0000000001-0000.pack"][16..32]);
    assert_eq!(header[32..48], files["manifests/0000000001.manifest"][24..40]);
}

#[test]
fn a_store_named_by_blake3_says_so_in_the_first_incompat_bit() {
    let memory = Memory::default();
    let options = StoreOptions { digest: Digest::Blake3, ..Default::default() };
    Store::create_or_open_on(Arc::new(memory.clone()), &options).unwrap();
    let header = &memory.files()["header"];
    check_block(header, b"ckptstor");
    assert_eq!((number::<8>(header, 16), number::<8>(header, 24)), (0, 1));
}

#[test]
fn a_pack_is_that_of_the_document() {
    let numbers = [1, 3, 5, 3];
    let files = store(&numbers, Compression::None);
    let pack = &files["packs/0000000001-0000.pack"];
    check_block(&pack[..4096], b"ckptpack");
    assert_eq!((number::<8>(pack, 32), number::<4>(pack, 40)), (1, 0));
    let footer_at = pack.len() - 64;
    let footer = &pack[footer_at..];
    check_block(footer, b"ckptpend");
    let [runs, pages, nodes] = [20, 24, 28].map(|at| number::<4>(footer, at) as usize);
    assert_eq!((runs, pages, nodes), (1, 3, 1));
    let trailer_at = number::<8>(footer, 32) as usize;
    assert_eq!(trailer_at + 24 * runs + 28 * pages + 40 * nodes, footer_at);
    assert_eq!(number::<4>(footer, 40), u64::from(crc32fast::hash(&pack[trailer_at..footer_at])));
    let run = &pack[trailer_at..];
    let [offset, stored] = [number::<8>(run, 0), number::<4>(run, 8)].map(|field| field as usize);
    assert_eq!((offset, stored, number::<2>(run, 16), run[18]), (4096, 3 * PAGE_BYTES, 3, 0));
    assert_eq!(number::<4>(run, 12), u64::from(crc32fast::hash(&pack[offset..offset + stored])));
    for (at, number) in [1, 3, 5].into_iter().enumerate() {
        let start = offset + at * PAGE_BYTES;
        assert!(pack[start..start + PAGE_BYTES] == page(number));
        let key_at = trailer_at + 24 + 28 * at;
        assert_eq!(pack[key_at..key_at + 28], Digest::Sha1.key_of(&page(number)).to_bytes());
    }
    check_leaf(pack, trailer_at + 24 + 3 * 28, &numbers);
}

/// The pages lie at 7 and after it in the region.
fn check_leaf(pack: &[u8], entry_at: usize, numbers: &[u64]) {
    let (offset, length) = (number::<8>(pack, entry_at + 28) as usize, number::<4>(pack, entry_at + 36) as usize);
    let leaf = &pack[offset..offset + length];
    assert_eq!((leaf[0], number::<2>(leaf, 2)), (0, 4));
    assert_eq!((number::<8>(leaf, 8), &leaf[16..72]), (0b1111 << 7, &[0; 56][..]));
    let keys: Vec<u8> = numbers.iter().flat_map(|number| Digest::Sha1.key_of(&page(*number)).to_bytes()).collect();
    assert_eq!(leaf[72..], keys);
}

#[test]
fn the_codecs_are_those_of_the_document() {
    for (compression, codec) in [(Compression::Lz4, 1), (Compression::Zstd, 2)] {
        let files = store(&[2, 4, 6], compression);
        let pack = &files["packs/0000000001-0000.pack"];
        let trailer_at = number::<8>(pack, pack.len() - 64 + 32) as usize;
        let [offset, stored] = [number::<8>(pack, trailer_at), number::<4>(pack, trailer_at + 8)].map(|n| n as usize);
        assert_eq!(pack[trailer_at + 18], codec);
        let run = &pack[offset..offset + stored];
        let pages = match codec {
            1 => lz4_flex::block::decompress(run, 3 * PAGE_BYTES).unwrap(),
            _ => zstd::bulk::decompress(run, 3 * PAGE_BYTES).unwrap(),
        };
        assert!(pages == story::pages(&[2, 4, 6]));
    }
}

#[test]
fn a_manifest_and_a_row_are_those_of_the_document() {
    let files = store(&[1, 3], Compression::Zstd);
    let manifest = &files["manifests/0000000001.manifest"];
    check_block(&manifest[..80], b"ckptmani");
    assert_eq!(number::<8>(manifest, 16), 1);
    let lengths = [number::<4>(manifest, 40), number::<4>(manifest, 48), number::<8>(manifest, 56)];
    let mut at = 80;
    for (length, crc_at) in lengths.into_iter().zip([44, 52, 64]) {
        let part = &manifest[at..at + length as usize];
        assert_eq!(number::<4>(manifest, crc_at), u64::from(crc32fast::hash(part)));
        at += part.len();
    }
    assert_eq!(at, manifest.len());
    let row: ciborium::Value = ciborium::from_reader(&manifest[80..]).unwrap();
    let names = row.as_map().unwrap().iter().map(|(name, _)| name.as_text().unwrap().to_string());
    let document = include_str!("../FORMAT.md");
    names.for_each(|name| assert!(document.contains(&format!("`{name}`")), "{name}"));
    let failed = &files["attempts/0000000002.failed"];
    check_block(&failed[..24], b"ckptrow\0");
    assert_eq!(number::<4>(failed, 12) as usize, failed.len() - 24);
    assert_eq!(number::<4>(failed, 16), u64::from(crc32fast::hash(&failed[24..])));
}
