//! What anybody may have written, as a difference for a lineage that is there: for a fuzz target and for a test.

use ckpt_kernels::merkle::{Difference, Encoder, Engine, Lineage, Method, Region, Result};

/// Regions of a checkpoint longer than this are not restored: references make much of few bytes.
const RESTORED_BYTES_MAX: u64 = 4 << 20;
/// Where a difference has its count of bytes of data, and the checksum of what describes it.
const DATA_BYTES: usize = 40;
const CHECKSUM: usize = 60;
const METADATA: usize = 64;

/// Regions at three checkpoints, and at a fourth one of which nothing is added.
fn states() -> [Vec<u8>; 4] {
    let first: Vec<u8> = (0..700_u32).map(|n| (n / 32 % 7) as u8).collect();
    let mut states = [first.clone(), first.clone(), first.clone(), first];
    for (number, state) in (1..).zip(&mut states) {
        state[..320].rotate_left(32 * number);
        state[100 * number] ^= 0x80;
    }
    states
}

/// A lineage of three checkpoints, and what a fourth would add to it by each method.
pub fn lineage_and_next() -> (Lineage, Vec<(Method, Vec<u8>)>) {
    let (mut engine, mut lineage) = (Engine::new(32, None).expect("32 bytes is a length"), Lineage::default());
    let [.., last] = states();
    for (number, state) in (0..).zip(&states()[..3]) {
        let mut difference = Difference::default();
        let regions = [Region { id: 1, bytes: state }, Region { id: 9, bytes: &state[..100] }];
        engine.difference(number, Method::Tree, &regions, &mut difference).expect("a first checkpoint");
        lineage.add(difference).expect("what the engine made");
    }
    let regions = [Region { id: 1, bytes: &last[..] }, Region { id: 9, bytes: &last[5..105] }];
    let next = Method::EVERY.map(|method| {
        let mut encoder = Encoder::new(Vec::new());
        engine.clone().difference(3, method, &regions, &mut encoder).expect("one more checkpoint");
        (method, encoder.finish().expect("a vector takes all"))
    });
    (lineage, next.into())
}

/// Decodes a difference, as it is and with its checksums put right, adds it to a lineage, and does there what can be done.
pub fn difference(bytes: &[u8]) {
    let (lineage, _) = lineage_and_next();
    for bytes in [Some(bytes.to_vec()), with_right_checksums(bytes)].into_iter().flatten() {
        if let Ok(difference) = Difference::decode(&bytes) {
            assert!(difference.encode() == bytes, "a difference has one encoding");
            let _ = add_and_restore(lineage.clone(), difference);
        }
    }
}

fn with_right_checksums(bytes: &[u8]) -> Option<Vec<u8>> {
    let (mut bytes, trailer) = (bytes.to_vec(), bytes.len().checked_sub(4)?);
    let data_bytes = u64::from_le_bytes(bytes.get(DATA_BYTES..DATA_BYTES + 8)?.try_into().ok()?);
    let data = trailer.checked_sub(usize::try_from(data_bytes).ok()?)?;
    let crc = crc32fast::hash(bytes.get(data..trailer)?).to_le_bytes();
    bytes[trailer..].copy_from_slice(&crc);
    let mut crc = crc32fast::Hasher::new();
    crc.update(bytes.get(..CHECKSUM)?);
    crc.update(bytes.get(METADATA..data)?);
    bytes[CHECKSUM..METADATA].copy_from_slice(&crc.finalize().to_le_bytes());
    Some(bytes)
}

/// What has been added can be restored, whatever goes.
fn add_and_restore(mut lineage: Lineage, difference: Difference) -> Result<()> {
    let number = difference.head.checkpoint;
    let length = difference.head.regions.iter().map(|region| u128::from(region.bytes)).sum::<u128>();
    lineage.add(difference)?;
    if length > RESTORED_BYTES_MAX.into() {
        return Ok(());
    }
    let restored = lineage.restore(number).expect("what was added can be restored");
    let regions: Vec<_> = restored.iter().map(|(id, bytes)| Region { id: *id, bytes }).collect();
    assert_eq!(lineage.mismatch(number, &regions).expect("the same"), None);
    lineage.flatten(1).expect("a checkpoint of before");
    lineage.keep(&[number]).expect("what is there can be kept");
    assert!(lineage.restore(number).expect("what was kept") == restored);
    lineage.flatten(number).expect("what was kept");
    assert_eq!(lineage.keep(&[number]).map(|_| lineage.checkpoints().count()).expect("it is there"), 1);
    assert!(lineage.restore(number).expect("it stands alone") == restored);
    Ok(())
}
