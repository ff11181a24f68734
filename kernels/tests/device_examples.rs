//! What the engine for GPUs does at its limits, on examples.
#![allow(clippy::unwrap_used, reason = "a test")]

mod driver;
mod forged;

use std::{io, sync::Arc};

use ckpt_kernels::{
    device::{self, Buffer, Context, Refill, SLOT_BYTES_MIN, Stream},
    merkle::{Difference, Encoder, Engine, Error, Head, Lineage, Method, Region, Sink},
    murmur3::murmur3,
};

const CHUNK_BYTES: u32 = 32;

/// A device with a region.
struct Device {
    context: Arc<Context>,
    stream: Stream,
    memory: Buffer,
}

impl Device {
    fn new(region_bytes: usize, bytes_max: Option<u64>) -> Self {
        let context = Context::new(driver::path(), bytes_max).unwrap();
        let _entered = context.enter().unwrap();
        // The region is the program's, so its bytes do not count.
        let outside = Context::new(driver::path(), None).unwrap();
        let (stream, memory) = (Stream::new(&outside).unwrap(), Buffer::new(&outside, region_bytes as u64).unwrap());
        Self { context: context.clone(), stream, memory }
    }

    fn engine(&self) -> device::Engine {
        device::Engine::new(&self.context, CHUNK_BYTES, SLOT_BYTES_MIN).unwrap()
    }

    fn regions(&self, bytes: &[u8]) -> [device::Region; 1] {
        let _entered = self.context.enter().unwrap();
        self.stream.write(&self.memory, bytes).unwrap();
        [device::Region { id: 7, address: self.memory.address(), bytes: bytes.len() as u64 }]
    }

    fn read(&self, bytes: &mut [u8]) {
        let _entered = self.context.enter().unwrap();
        self.stream.read(&self.memory, bytes).unwrap();
    }

    fn difference(&self, engine: &mut device::Engine, number: u32, bytes: &[u8]) -> Difference {
        let mut found = Difference::default();
        // SAFETY: the region is in device memory that nobody else uses.
        unsafe { engine.difference(number, Method::Tree, &self.regions(bytes), &mut found) }.unwrap();
        found
    }
}

fn difference(engine: &mut Engine, number: u32, bytes: &[u8]) -> Difference {
    let mut found = Difference::default();
    engine.difference(number, Method::Tree, &[Region { id: 7, bytes }], &mut found).unwrap();
    found
}

/// Chunks that differ from all of other numbers.
fn chunks(numbers: impl Iterator<Item = u32>) -> Vec<u8> {
    numbers.flat_map(|number| murmur3(&number.to_le_bytes(), 1).repeat(2)).collect()
}

#[test]
fn a_history_of_many_segments_becomes_one_and_loses_nothing() {
    const CHUNKS: u32 = 5_000;
    let device = Device::new((CHUNKS * CHUNK_BYTES) as usize, None);
    let (mut on_gpu, mut on_cpu) = (device.engine(), Engine::new(CHUNK_BYTES, None).unwrap());
    // More checkpoints than there may be segments, each of which nearly fills one; then all of it once more.
    for number in 0..24_u32 {
        let bytes = chunks((0..CHUNKS).map(|chunk| number % 22 * CHUNKS + chunk));
        let expected = difference(&mut on_cpu, number, &bytes);
        assert!(device.difference(&mut on_gpu, number, &bytes) == expected, "checkpoint {number}");
        assert_eq!(expected.data.is_empty(), number >= 22);
        if number == 9 {
            on_cpu.forget(|checkpoint| checkpoint != 3);
            on_gpu.forget(|checkpoint| checkpoint != 3).unwrap();
        }
    }
    // Merged, it has forgotten what nobody owned any more.
    assert_eq!(on_gpu.history_len(), on_cpu.history_len() as u64);
}

#[test]
fn digests_that_deceive_the_sketch_find_their_place_all_the_same() {
    // Digests with few leading zeros look like a few digests.
    let has_low_rank = |number: &u32| {
        let digest = murmur3(&chunks([*number].into_iter()), 0);
        u64::from_le_bytes(*digest.first_chunk().unwrap()).leading_zeros() < 2
    };
    let bytes = chunks((0..80_000).filter(has_low_rank));
    let device = Device::new(bytes.len(), None);
    let expected = difference(&mut Engine::new(CHUNK_BYTES, None).unwrap(), 0, &bytes);
    let mut engine = device.engine();
    assert!(device.difference(&mut engine, 0, &bytes) == expected);
    let mut again = bytes;
    again.rotate_left(32 * 8);
    let found = device.difference(&mut engine, 1, &again);
    assert!(found.data.is_empty(), "{} bytes are stored twice", found.data.len());
}

#[test]
fn with_less_memory_simpler_methods_are_used_and_every_checkpoint_is_restored() {
    const CHUNKS: u32 = 4_000;
    let mut used = Vec::new();
    for bytes_max in (0..40).map(|step| 120_000 + step * 25_000) {
        let device = Device::new((CHUNKS * CHUNK_BYTES) as usize, Some(bytes_max));
        let Ok(mut engine) = device::Engine::new(&device.context, CHUNK_BYTES, SLOT_BYTES_MIN) else { continue };
        let mut lineage = Lineage::default();
        for number in 0..6 {
            let bytes = chunks((0..CHUNKS).map(|chunk| if chunk % 7 == 0 { chunk + number * CHUNKS } else { chunk }));
            let mut found = Difference::default();
            // SAFETY: the region is in device memory that nobody else uses.
            let taken =
                unsafe { engine.difference(number, Method::Tree, &device.regions(&bytes), &mut found) }.unwrap();
            assert!(device.context.peak_bytes() <= bytes_max);
            assert_eq!(taken.shortage.is_none(), taken.method == Method::Tree, "{taken:?}");
            if let Some(shortage) = taken.shortage {
                assert!(shortage.allowed == bytes_max && shortage.needed > bytes_max, "{shortage}");
            }
            used.push(taken.method);
            lineage.add(found).unwrap();
            assert!(lineage.restore(number).unwrap() == [(7, bytes)]);
        }
    }
    for method in Method::EVERY {
        assert!(used.contains(&method), "{method:?} was never used");
    }
}

/// Takes so many pieces, and no more.
struct Failing<'a> {
    to: &'a mut Difference,
    pieces_left: usize,
}

impl Failing<'_> {
    fn piece(&mut self) -> io::Result<()> {
        self.pieces_left = self.pieces_left.checked_sub(1).ok_or(io::ErrorKind::StorageFull)?;
        Ok(())
    }
}

impl Sink for Failing<'_> {
    fn head(&mut self, head: &Head) -> io::Result<()> {
        self.piece().and_then(|()| self.to.head(head))
    }

    fn data(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.piece().and_then(|()| self.to.data(bytes))
    }
}

#[test]
fn after_a_sink_has_failed_or_a_checkpoint_was_abandoned_nothing_refers_to_it() {
    const CHUNKS: u32 = 3_000;
    let device = Device::new((CHUNKS * CHUNK_BYTES) as usize, None);
    let (mut engine, mut lineage) = (device.engine(), Lineage::default());
    let state = |number: u32| chunks((0..CHUNKS).map(|chunk| chunk / 2 + number * 1_000));
    let mut number = 0;
    for attempt in 0..24 {
        let bytes = state(attempt);
        let mut found = Difference::default();
        let mut sink = Failing { to: &mut found, pieces_left: [usize::MAX, 0, 1, 2, 3][attempt as usize % 5] };
        // SAFETY: the region is in device memory that nobody else uses.
        let taken = unsafe { engine.difference(number, Method::Tree, &device.regions(&bytes), &mut sink) };
        match taken {
            Ok(_) if attempt % 4 == 1 => engine.abandon(number).unwrap(),
            Ok(_) => {
                lineage.add(found).unwrap();
                assert!(lineage.restore(number).unwrap() == [(7, bytes)]);
                number += 1;
            }
            Err(device::Error::Merkle(Error::Sink { checkpoint, .. })) => assert_eq!(checkpoint, number),
            Err(other) => panic!("{other}"),
        }
    }
    assert!(number >= 4, "only {number} checkpoints were taken");
}

#[test]
fn what_goes_out_is_the_format_of_a_difference() {
    let bytes = chunks((0..5_000).map(|number| number % 3_000));
    let device = Device::new(bytes.len(), None);
    let mut encoder = Encoder::new(Vec::new());
    // SAFETY: the region is in device memory that nobody else uses.
    unsafe { device.engine().difference(0, Method::List, &device.regions(&bytes), &mut encoder) }.unwrap();
    let mut lineage = Lineage::default();
    lineage.add(Difference::decode(&encoder.finish().unwrap()).unwrap()).unwrap();
    assert!(lineage.restore(0).unwrap() == [(7, bytes)]);
}

#[test]
fn device_memory_is_restored_from_any_checkpoint_of_its_lineage() {
    const CHUNKS: u32 = 4_000;
    let device = Device::new((CHUNKS * CHUNK_BYTES) as usize, None);
    let (mut engine, mut lineage) = (device.engine(), Lineage::default());
    let state = |number: u32| chunks((0..CHUNKS - number).map(|chunk| chunk % (1_000 + 500 * number)));
    for number in 0..5 {
        lineage.add(device.difference(&mut engine, number, &state(number))).unwrap();
    }
    let mut refill = Refill::new(&device.context, SLOT_BYTES_MIN + 20).unwrap();
    for number in [3, 0, 4, 1, 2] {
        let mut bytes = state(number);
        let regions = device.regions(&vec![0xee; bytes.len()]);
        // SAFETY: the region is in device memory that nobody else uses.
        unsafe { refill.restore(&lineage, number, &regions) }.unwrap();
        let mut restored = vec![0; bytes.len()];
        device.read(&mut restored);
        assert!(restored == bytes, "checkpoint {number}");
        // SAFETY: as above.
        assert_eq!(unsafe { engine.mismatch(&lineage, number, &regions) }.unwrap(), None);
        bytes[100_001] ^= 4;
        let regions = device.regions(&bytes);
        // SAFETY: as above.
        let mismatch = unsafe { engine.mismatch(&lineage, number, &regions) }.unwrap().unwrap();
        assert_eq!((mismatch.region, mismatch.offset), (7, 100_001));
    }
    let too_long = device.regions(&state(0));
    // SAFETY: as above.
    let error = unsafe { refill.restore(&lineage, 4, &too_long) }.unwrap_err();
    assert!(matches!(error, device::Error::Merkle(Error::NoSuchRegion { checkpoint: 4, region: 7, .. })), "{error}");
}

#[test]
fn a_forged_chunk_is_found_on_the_device_and_the_checkpoint_is_taken_again() {
    let (state, in_place, elsewhere) = forged::states();
    for forged in [in_place, elsewhere] {
        let device = Device::new(state.len(), None);
        let (mut engine, mut lineage) = (device.engine(), Lineage::default());
        let mut take = |number, bytes: &[u8]| {
            let regions = device.regions(bytes);
            // SAFETY: the region is in device memory that nobody else uses.
            unsafe { device::take_verified(&mut engine, &mut lineage, number, Method::Tree, &regions) }.unwrap()
        };
        assert_eq!(take(1, &state).1, None);
        let (taken, mismatch) = take(2, &forged);
        assert!(mismatch.is_some() && taken.method == Method::Basic, "{taken:?}");
        let mut last = forged.clone();
        last[190] ^= 1;
        assert_eq!(take(3, &last).1, None);
        for (number, bytes) in [(1, &state), (2, &forged), (3, &last)] {
            assert_eq!(lineage.restore(number).unwrap(), [(7, bytes.clone())]);
        }
    }
}

#[test]
fn without_a_driver_the_error_names_what_is_missing() {
    let error = Context::new("/nowhere/libcuda.so.1".as_ref(), None).err().unwrap();
    assert!(error.to_string().contains("/nowhere/libcuda.so.1"), "{error}");
    let error = Context::new("libc.so.6".as_ref(), None).err().unwrap();
    assert!(error.to_string().contains("cuInit"), "{error}");
}
