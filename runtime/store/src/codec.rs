//! Compression of one page run, when it pays.
//!
//! Memory is either easy to compress or not at all, so a few pages of a run are tried first with the fastest codec: a
//! run that does not promise to shrink by a tenth is stored raw, which keeps its pages aligned and mappable. Decoding
//! has one output size, known beforehand, and any other is an error.

use std::cell::RefCell;

use crate::PAGE_BYTES;

/// How page runs are compressed when that pays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compression {
    /// Never.
    None,
    /// LZ4: faster, larger.
    Lz4,
    /// Zstandard, level 1.
    Zstd,
}

/// How a stored run is encoded; the number in the run table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Codec {
    Raw = 0,
    Lz4 = 1,
    Zstd = 2,
}

impl Codec {
    pub fn from_number(number: u8) -> Option<Self> {
        [Self::Raw, Self::Lz4, Self::Zstd].into_iter().find(|codec| *codec as u8 == number)
    }
}

const ZSTD_LEVEL: i32 = 1;
const SAMPLE_PAGES: usize = 4;

thread_local! {
    /// To make one takes longer than to compress a short run.
    static ZSTD: RefCell<Option<zstd::bulk::Compressor<'static>>> = const { RefCell::new(None) };
}

/// The encoded run, or `None` when it is better stored raw.
pub(crate) fn encode(compression: Compression, run: &[u8]) -> Option<(Codec, Vec<u8>)> {
    if compression == Compression::None || !sample_pays(run) {
        return None;
    }
    let (codec, encoded) = match compression {
        Compression::Zstd => (Codec::Zstd, compress_with_zstd(run)?),
        _ => (Codec::Lz4, lz4_flex::block::compress(run)),
    };
    pays(encoded.len(), run.len()).then_some((codec, encoded))
}

fn compress_with_zstd(run: &[u8]) -> Option<Vec<u8>> {
    ZSTD.with_borrow_mut(|kept| {
        if kept.is_none() {
            *kept = zstd::bulk::Compressor::new(ZSTD_LEVEL).ok();
        }
        kept.as_mut()?.compress(run).ok()
    })
}

/// At least a tenth saved.
fn pays(encoded: usize, raw: usize) -> bool {
    encoded * 10 <= raw * 9
}

fn sample_pays(run: &[u8]) -> bool {
    let pages = run.len() / PAGE_BYTES;
    if pages <= SAMPLE_PAGES {
        return true;
    }
    let mut sample = Vec::with_capacity(SAMPLE_PAGES * PAGE_BYTES);
    for n in 0..SAMPLE_PAGES {
        let page = n * (pages - 1) / (SAMPLE_PAGES - 1);
        sample.extend_from_slice(&run[page * PAGE_BYTES..(page + 1) * PAGE_BYTES]);
    }
    pays(lz4_flex::block::compress(&sample).len(), sample.len())
}

/// Decodes `stored` into exactly `run`; says what is wrong with it otherwise.
pub(crate) fn decode(codec: Codec, stored: &[u8], run: &mut [u8]) -> Result<(), String> {
    let decoded = match codec {
        Codec::Raw if stored.len() == run.len() => {
            run.copy_from_slice(stored);
            stored.len()
        }
        Codec::Raw => stored.len(),
        Codec::Lz4 => lz4_flex::block::decompress_into(stored, run).map_err(|error| error.to_string())?,
        Codec::Zstd => zstd::bulk::decompress_to_buffer(stored, run).map_err(|error| error.to_string())?,
    };
    if decoded == run.len() { Ok(()) } else { Err(format!("{decoded} bytes")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> Vec<u8> {
        (0..64 * PAGE_BYTES).map(|n| (n / 7 % 50) as u8).collect()
    }

    #[test]
    fn a_compressible_run_comes_back_from_both_codecs() {
        for compression in [Compression::Lz4, Compression::Zstd] {
            let (codec, encoded) = encode(compression, &text()).unwrap();
            assert!(encoded.len() * 4 < text().len());
            let mut back = vec![0; text().len()];
            decode(codec, &encoded, &mut back).unwrap();
            assert_eq!(back, text());
        }
    }

    #[test]
    fn a_run_of_noise_is_left_raw() {
        let mut state = 1u64;
        let noise: Vec<u8> = (0..64 * PAGE_BYTES)
            .map(|_| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 56) as u8
            })
            .collect();
        assert!(encode(Compression::Zstd, &noise).is_none());
    }

    #[test]
    fn an_output_of_another_size_is_an_error() {
        let (codec, encoded) = encode(Compression::Zstd, &text()).unwrap();
        assert!(decode(codec, &encoded, &mut vec![0; text().len() - 1]).is_err());
        assert!(decode(codec, &encoded, &mut vec![0; text().len() + 1]).is_err());
        assert!(decode(codec, &encoded[..encoded.len() / 2], &mut vec![0; text().len()]).is_err());
    }
}
