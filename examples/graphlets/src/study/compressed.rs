//! Series of whole checkpoints, compressed: what de-duplication is compared with. On all cores, in pieces that are long
//! enough not to cost either codec much of its ratio. Also in a study of a device these are the cores, and the states are where
//! the cores are.

use std::time::Instant;

use rayon::prelude::*;
use zerocopy::IntoBytes;

use super::{
    Cost, Result, Series,
    series::{compare, restored},
};

const PIECE_BYTES: usize = 1 << 20;
const ZSTD_LEVEL: i32 = 1;
/// What is stored with each piece: its length.
const METADATA_BYTES_PER_PIECE: u64 = 4;

/// Lossless compression.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Codec {
    /// Zstandard, level 1.
    Zstd,
    /// LZ4.
    Lz4,
}

/// A piece of a checkpoint: room for the longest there can be, and how much of it is used.
struct Piece {
    room: Vec<u8>,
    bytes: usize,
}

impl Codec {
    pub const EVERY: [Self; 2] = [Self::Zstd, Self::Lz4];

    pub fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd-1",
            Self::Lz4 => "lz4",
        }
    }

    fn room(self) -> usize {
        match self {
            Self::Zstd => zstd::zstd_safe::compress_bound(PIECE_BYTES),
            Self::Lz4 => lz4_flex::block::get_maximum_output_size(PIECE_BYTES),
        }
    }

    fn compress(self, original: &[u8], piece: &mut Piece) -> Result<()> {
        piece.bytes = match self {
            Self::Zstd => zstd::bulk::compress_to_buffer(original, &mut piece.room[..], ZSTD_LEVEL)?,
            Self::Lz4 => lz4_flex::block::compress_into(original, &mut piece.room).map_err(std::io::Error::other)?,
        };
        Ok(())
    }

    fn decompress(self, piece: &Piece) -> Result<Vec<u8>> {
        let compressed = &piece.room[..piece.bytes];
        match self {
            Self::Zstd => Ok(zstd::bulk::decompress(compressed, PIECE_BYTES)?),
            Self::Lz4 => Ok(lz4_flex::block::decompress(compressed, PIECE_BYTES)?),
        }
    }
}

/// The costs of compressing each of these states.
pub fn series(codec: Codec, states: &[&[u32]]) -> Result<Series> {
    let bytes = states.iter().map(|state| size_of_val(*state)).max().unwrap_or(0);
    // Not zeros: those would be given no memory before they are written.
    let piece = |_| Piece { room: vec![1; codec.room()], bytes: 0 };
    let mut pieces: Vec<Piece> = (0..bytes.div_ceil(PIECE_BYTES)).map(piece).collect();
    let mut costs = Vec::new();
    for (number, state) in states.iter().enumerate() {
        let originals = state.as_bytes().par_chunks(PIECE_BYTES);
        let begun = Instant::now();
        originals.zip(&mut pieces).try_for_each(|(original, piece)| codec.compress(original, piece))?;
        costs.push(Cost {
            original_bytes: size_of_val(*state) as u64,
            data_bytes: pieces.iter().map(|piece| piece.bytes as u64).sum(),
            metadata_bytes: pieces.len() as u64 * METADATA_BYTES_PER_PIECE,
            seconds: begun.elapsed().as_secs_f64(),
        });
        if restored(states.len()).contains(&number) {
            let restored = pieces.iter().map(|piece| codec.decompress(piece)).collect::<Result<Vec<_>>>()?;
            compare(number, codec.name(), &restored.concat(), state.as_bytes())?;
        }
    }
    Ok(Series::new(costs, None))
}
