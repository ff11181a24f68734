//! Regions that are read in pieces: what is read of them, what is stored of them, and what happens when they cannot be read.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::{
    io,
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
};

use ckpt_kernels::merkle::{Difference, Engine, Error, Lineage, Live, Memory, Method, Places, RegionShape, Stored};

const MIB: usize = 1 << 20;

/// Counts what is read of it; fails from an offset on, and outside of what was said to be read.
struct Counted<'a> {
    bytes: &'a [u8],
    read: AtomicU64,
    readable: u64,
    allowed: Option<Vec<Range<u64>>>,
}

impl<'a> Counted<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, read: AtomicU64::new(0), readable: u64::MAX, allowed: None }
    }

    fn live<'b>(&'b self, changed: Option<&'b [Range<u64>]>) -> [Live<'b>; 1] {
        [Live { id: 7, memory: self, changed }]
    }
}

impl Memory for Counted<'_> {
    fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read(&self, ranges: &[Range<u64>], to: &mut Vec<u8>) -> io::Result<()> {
        if ranges.iter().any(|range| range.end > self.readable) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let is_allowed = |range: &Range<u64>| {
            let within = |one: &Range<u64>| one.start <= range.start && range.end <= one.end;
            self.allowed.as_ref().is_none_or(|allowed| allowed.iter().any(within))
        };
        assert!(ranges.iter().all(is_allowed), "{ranges:?} are read, and of {:?} it was said", self.allowed);
        self.read.fetch_add(ranges.iter().map(|range| range.end - range.start).sum(), Ordering::Relaxed);
        self.bytes.read(ranges, to)
    }
}

fn noise(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn take(engine: &mut Engine, number: u32, method: Method, live: &[Live<'_>]) -> Difference {
    let mut difference = Difference::default();
    engine.difference_of(number, method, live, &mut difference).unwrap();
    difference
}

#[test]
fn a_new_region_is_stored_whole_and_in_order_although_its_chunks_repeat() {
    for method in Method::EVERY {
        let bytes = [vec![5; MIB], noise(MIB + 100), vec![5; 999]].concat();
        let (memory, mut engine) = (Counted::new(&bytes), Engine::new(128, None).unwrap());
        let difference = take(&mut engine, 0, method, &memory.live(None));
        assert!(difference.data == bytes, "{method:?}");
        let mut lineage = Lineage::default();
        lineage.add(difference).unwrap();
        assert!(lineage.restore(0).unwrap() == [(7, bytes.clone())], "{method:?}");
    }
}

#[test]
fn only_what_may_have_changed_is_read_and_only_chunks_that_did_are_stored() {
    for method in [Method::Basic, Method::List, Method::Tree] {
        let mut bytes = noise(4 * MIB);
        let mut engine = Engine::new(128, None).unwrap();
        take(&mut engine, 0, method, &Counted::new(&bytes).live(None));
        for at in [4096 * 3 + 5, 4096 * 700] {
            bytes[at] ^= 1;
        }
        let memory = Counted::new(&bytes);
        let pages = [4096 * 3..4096 * 4, 4096 * 700..4096 * 702];
        let difference = take(&mut engine, 1, method, &memory.live(Some(&pages)));
        assert_eq!(difference.data.len(), 256, "{method:?}");
        let read = memory.read.into_inner();
        assert!(read <= 3 * 4096 + 128 + 256, "{method:?}: {read} bytes were read");
    }
}

#[test]
fn what_would_be_read_is_said_before_and_nothing_else_is() {
    for bound in [None, Some(24 * MIB as u64 / 128)] {
        for method in [Method::Basic, Method::List, Method::Tree] {
            let mut bytes = noise(MIB + 100);
            let mut engine = Engine::new(128, bound).unwrap();
            let shape = |bytes: &[u8]| RegionShape { id: 7, bytes: bytes.len() as u64 };
            assert_eq!(engine.would_read(method, &[(shape(&bytes), &[])]), None, "nothing is known yet");
            take(&mut engine, 0, method, &Counted::new(&bytes).live(None));
            let mut seed = 1_u32;
            for number in 1..30 {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let at = (seed >> 8) as u64 % (MIB as u64 / 2);
                let changed = [at..at + u64::from(seed % 5_000), at + 6_000..at + 6_001];
                changed.iter().for_each(|range| bytes[range.start as usize..range.end as usize].fill(number as u8));
                bytes.resize(MIB + (seed % 50_000) as usize, 9);
                let said = engine.would_read(method, &[(shape(&bytes), &changed)]).unwrap();
                let memory = Counted { allowed: Some(said[0].clone()), ..Counted::new(&bytes) };
                take(&mut engine, number, method, &memory.live(Some(&changed)));
                let read = memory.read.into_inner();
                assert!(read < 200_000, "{read} bytes");
            }
            let much = 0..MIB as u64;
            let most = engine.would_read(method, &[(shape(&bytes), std::slice::from_ref(&much))]);
            assert_eq!(most.is_none(), bound.is_some(), "{method:?}: more than may be listed is all");
            assert_eq!(engine.would_read(Method::Full, &[(shape(&bytes), &[])]), None);
        }
    }
}

#[test]
fn a_chunk_that_became_longer_is_found_where_a_region_grew() {
    let (bytes, mut engine) = (noise(10_000), Engine::new(292, None).unwrap());
    let mut lineage = Lineage::default();
    for (number, length) in [(0, 5_000), (1, 5_100), (2, 10_000), (3, 5_050), (4, 0), (5, 1)] {
        let memory = Counted::new(&bytes[..length]);
        let difference = take(&mut engine, number, Method::Tree, &memory.live(Some(&[])));
        lineage.add(difference).unwrap();
        assert!(lineage.restore(number).unwrap()[0].1 == bytes[..length], "{length}");
    }
}

#[test]
fn a_region_that_cannot_be_read_fails_the_checkpoint_and_the_next_one_is_right() {
    let mut bytes = noise(2 * MIB);
    let (mut engine, mut lineage) = (Engine::new(128, None).unwrap(), Lineage::default());
    lineage.add(take(&mut engine, 0, Method::Tree, &Counted::new(&bytes).live(None))).unwrap();
    bytes[2 * MIB - 1] ^= 1;
    let broken = Counted { readable: MIB as u64, ..Counted::new(&bytes) };
    let error = engine.difference_of(1, Method::Tree, &broken.live(None), &mut Difference::default()).unwrap_err();
    assert!(matches!(error, Error::Unreadable { region: 7, .. }), "{error}");
    let difference = take(&mut engine, 1, Method::Tree, &Counted::new(&bytes).live(None));
    assert_eq!(difference.data.len(), 128);
    lineage.add(difference).unwrap();
    assert!(lineage.restore(1).unwrap()[0].1 == bytes);
}

#[test]
fn where_more_has_changed_than_may_be_listed_a_region_is_stored_whole() {
    let mut bytes = noise(MIB);
    // Digests of all chunks, and a third as much for lists.
    let mut engine = Engine::new(128, Some(16 * MIB as u64 / 128)).unwrap();
    let mut lineage = Lineage::default();
    lineage.add(take(&mut engine, 0, Method::Tree, &Counted::new(&bytes).live(None))).unwrap();
    bytes[0] ^= 1;
    let little = take(&mut engine, 1, Method::Tree, &Counted::new(&bytes).live(None));
    assert_eq!(little.data.len(), 128);
    lineage.add(little).unwrap();
    bytes.iter_mut().step_by(256).for_each(|byte| *byte ^= 1);
    let much = take(&mut engine, 2, Method::Tree, &Counted::new(&bytes).live(None));
    assert!(much.data == bytes && engine.held_bytes() <= 16 * MIB as u64 / 128);
    lineage.add(much).unwrap();
    assert!(lineage.restore(2).unwrap()[0].1 == bytes);
}

#[test]
fn places_say_where_bytes_are_without_having_any() {
    let mut bytes = noise(8_192);
    let (mut engine, mut places) = (Engine::new(128, None).unwrap(), Places::default());
    places.add(&take(&mut engine, 0, Method::Tree, &Counted::new(&bytes).live(None)).head).unwrap();
    bytes[300] ^= 1;
    let difference = take(&mut engine, 1, Method::Tree, &Counted::new(&bytes).live(None));
    places.add(&difference.head).unwrap();
    let of = |offset, bytes, checkpoint, said_by| Stored { offset, bytes, checkpoint, said_by };
    let expected = [of(200, 200..256, 0, 0), of(256, 0..128, 1, 1), of(384, 384..1_000, 0, 0)];
    assert_eq!(places.find(1, 7, 200..1_000).unwrap(), expected);
    assert!(matches!(places.find(1, 7, 0..8_193), Err(Error::NoSuchRegion { .. })));
    assert!(places.regions(1).unwrap().eq([RegionShape { id: 7, bytes: 8_192 }]));
    let own: Vec<_> = places.stored_with(1).unwrap().collect();
    assert_eq!((own.len(), own[0].region, own[0].offset, own[0].bytes.clone()), (1, 7, 256, 0..128));
}
