//! A difference as bytes: kernels/FORMAT.md draws them.
//!
//! Who reads one may have got it from anybody. The header's counts say how long the whole is; only when that is true is
//! anything made of them, so what is read takes no more memory than a few times its own length. The data's checksum stands
//! behind them, so that they can be written while they are being gathered.

use super::{
    Body, Difference, Error, Head, Result, Source,
    difference::Shift,
    encoder::crc32,
    forest::{Forest, RegionShape},
};

const MAGIC: [u8; 8] = *b"ckptdiff";
const VERSION: u16 = 0;
const HEADER_BYTES: usize = 64;
const TRAILER_BYTES: usize = 4;
/// In the place of the checkpoint before when there is none.
const NONE: u32 = u32::MAX;

const FULL: u8 = 0;
const CHANGED: u8 = 1;
const NODES: u8 = 2;

impl Head {
    /// What [`Head::encode`] gave; also returns what follows it.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for anything else.
    pub fn decode(bytes: &[u8]) -> Result<(Self, &[u8])> {
        let corrupt = |what: &str| Error::Corrupt { checkpoint: NONE, what: what.into() };
        let (header, mut rest) =
            bytes.split_first_chunk::<HEADER_BYTES>().ok_or_else(|| corrupt("it ends in its header"))?;
        if header[..8] != MAGIC {
            return Err(corrupt("it does not begin as a difference does"));
        }
        if header[8..10] != VERSION.to_le_bytes() {
            return Err(corrupt("it is of another version"));
        }
        let number = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let [chunk_bytes, checkpoint, previous, regions, firsts, groups, shifts] =
            [12, 16, 20, 24, 28, 32, 36].map(number);
        let data_bytes = u64::from(number(40)) | u64::from(number(44)) << 32;
        let corrupt = |what: String| Error::Corrupt { checkpoint, what };
        let is_counted = header[10] == NODES || [firsts, groups, shifts] == [0; 3];
        if !is_counted || header[11] != 0 || header[48..HEADER_BYTES - 4].iter().any(|byte| *byte != 0) {
            return Err(corrupt("what should be zero in its header is not".into()));
        }
        super::check_chunk_bytes(chunk_bytes).map_err(|error| corrupt(error.to_string()))?;
        let mut take = |what: &str, count: u64, each: u64| {
            let length = usize::try_from(count * each).unwrap_or(usize::MAX);
            let (taken, behind) =
                rest.split_at_checked(length).ok_or_else(|| corrupt(format!("it ends before {count} {what}")))?;
            rest = behind;
            Ok(taken)
        };
        let regions: Vec<RegionShape> =
            pairs_of_u64(take("regions", regions.into(), 16)?).map(|(id, bytes)| RegionShape { id, bytes }).collect();
        let mut metadata_bytes = regions.len() * 16;
        let body = match header[10] {
            FULL => Body::Full,
            CHANGED => {
                let chunks = Forest::new(chunk_bytes, regions.iter().copied())?.chunks();
                let words = take("words of bits", chunks.div_ceil(64).into(), 8)?;
                metadata_bytes += words.len();
                Body::Changed(words.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect())
            }
            NODES => {
                let firsts = take("first occurrences", firsts.into(), 4)?;
                let groups = take("checkpoints", groups.into(), 8)?;
                let shifts = take("references", shifts.into(), 8)?;
                metadata_bytes += firsts.len() + groups.len() + shifts.len();
                let firsts = firsts.as_chunks().0.iter().map(|node| u32::from_le_bytes(*node)).collect();
                let shifts = grouped(groups, shifts).ok_or_else(|| corrupt("its references are miscounted".into()))?;
                Body::Nodes { firsts, shifts }
            }
            kind => return Err(corrupt(format!("its body is of kind {kind}"))),
        };
        let mut crc = crc32fast::Hasher::new();
        crc.update(&header[..HEADER_BYTES - 4]);
        crc.update(&bytes[HEADER_BYTES..HEADER_BYTES + metadata_bytes]);
        if crc.finalize() != number(HEADER_BYTES - 4) {
            return Err(corrupt("the checksum of what describes it is another".into()));
        }
        let previous = (previous != NONE).then_some(previous);
        Ok((Self { checkpoint, previous, chunk_bytes, regions, body, data_bytes }, rest))
    }

    /// What stands in front of the data.
    pub fn encode(&self) -> Vec<u8> {
        let (kind, counts, metadata) = self.metadata();
        let mut encoded = Vec::with_capacity(HEADER_BYTES + metadata.len());
        encoded.extend_from_slice(&MAGIC);
        encoded.extend_from_slice(&VERSION.to_le_bytes());
        encoded.extend_from_slice(&[kind, 0]);
        let [firsts, groups, shifts] = counts;
        let previous = self.previous.unwrap_or(NONE);
        for number in [self.chunk_bytes, self.checkpoint, previous, self.regions.len() as u32, firsts, groups, shifts] {
            encoded.extend_from_slice(&number.to_le_bytes());
        }
        encoded.extend_from_slice(&self.data_bytes.to_le_bytes());
        encoded.resize(HEADER_BYTES - 4, 0);
        let mut crc = crc32fast::Hasher::new();
        crc.update(&encoded);
        crc.update(&metadata);
        encoded.extend_from_slice(&crc.finalize().to_le_bytes());
        encoded.extend_from_slice(&metadata);
        encoded
    }

    /// The kind of the body, its counts, and all that stands between the header and the data.
    fn metadata(&self) -> (u8, [u32; 3], Vec<u8>) {
        let mut metadata = Vec::new();
        for region in &self.regions {
            metadata.extend_from_slice(&region.id.to_le_bytes());
            metadata.extend_from_slice(&region.bytes.to_le_bytes());
        }
        let (kind, counts) = match &self.body {
            Body::Full => (FULL, [0; 3]),
            Body::Changed(bits) => {
                metadata.extend(bits.iter().flat_map(|word| word.to_le_bytes()));
                (CHANGED, [0; 3])
            }
            Body::Nodes { firsts, shifts } => {
                let groups: Vec<&[Shift]> =
                    shifts.chunk_by(|a, b| a.source.checkpoint == b.source.checkpoint).collect();
                metadata.extend(firsts.iter().flat_map(|node| node.to_le_bytes()));
                for group in &groups {
                    metadata.extend_from_slice(&group[0].source.checkpoint.to_le_bytes());
                    metadata.extend_from_slice(&(group.len() as u32).to_le_bytes());
                }
                for shift in shifts {
                    metadata.extend_from_slice(&shift.node.to_le_bytes());
                    metadata.extend_from_slice(&shift.source.node.to_le_bytes());
                }
                (NODES, [firsts.len(), groups.len(), shifts.len()].map(|count| count as u32))
            }
        };
        (kind, counts, metadata)
    }
}

impl Difference {
    /// As bytes. An [`super::Encoder`] writes the same without holding it whole.
    pub fn encode(&self) -> Vec<u8> {
        [&self.head.encode()[..], &self.data, &crc32(&self.data).finalize().to_le_bytes()].concat()
    }

    /// What [`Difference::encode`] gave.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for anything else.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let (head, rest) = Head::decode(bytes)?;
        let data_bytes = usize::try_from(head.data_bytes).unwrap_or(usize::MAX);
        let (data, trailer) = rest
            .split_at_checked(data_bytes)
            .ok_or_else(|| head.corrupt(format!("it ends before {data_bytes} bytes of data")))?;
        let (trailer, behind) =
            trailer.split_first_chunk::<TRAILER_BYTES>().ok_or_else(|| head.corrupt("it ends before its trailer"))?;
        if !behind.is_empty() {
            return Err(head.corrupt(format!("{} bytes follow it", behind.len())));
        }
        if crc32(data).finalize().to_le_bytes() != *trailer {
            return Err(head.corrupt("the checksum of its data is another"));
        }
        Ok(Self { data: data.to_vec(), head })
    }
}

fn pairs_of_u64(bytes: &[u8]) -> impl Iterator<Item = (u64, u64)> {
    let (words, _) = bytes.as_chunks::<8>();
    words.as_chunks::<2>().0.iter().map(|[a, b]| (u64::from_le_bytes(*a), u64::from_le_bytes(*b)))
}

fn pairs_of_u32(bytes: &[u8]) -> impl Iterator<Item = (u32, u32)> {
    let (words, _) = bytes.as_chunks::<4>();
    words.as_chunks::<2>().0.iter().map(|[a, b]| (u32::from_le_bytes(*a), u32::from_le_bytes(*b)))
}

/// References with the checkpoints of their groups, if these are in order and count all of them.
fn grouped(groups: &[u8], shifts: &[u8]) -> Option<Vec<Shift>> {
    let mut pairs = pairs_of_u32(shifts);
    let mut all: Vec<Shift> = Vec::with_capacity(shifts.len() / 8);
    for (checkpoint, count) in pairs_of_u32(groups) {
        if count == 0 || all.last().is_some_and(|last| last.source.checkpoint >= checkpoint) {
            return None;
        }
        for _ in 0..count {
            let (node, source) = pairs.next()?;
            all.push(Shift { node, source: Source { checkpoint, node: source } });
        }
    }
    pairs.next().is_none().then_some(all)
}
