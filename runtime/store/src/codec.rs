//! Compression of one page run, when it pays.
//!
//! Memory is either easy to compress or not at all, so a few pages of a run are tried first with the fastest codec: a
//! run that does not promise to shrink by a tenth is stored raw, which keeps its pages aligned and mappable. Decoding
//! has one output size, known beforehand, and any other is an error.

use std::{borrow::Cow, cell::RefCell, time::Instant};

use crate::{
    PAGE_BYTES,
    pace::{Measured, Pace, Speeds},
};

/// How page runs are compressed when that pays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compression {
    /// By what makes the checkpoint the fastest: not at all where the disk is faster than the codecs are, LZ4 or Zstandard
    /// where it is slower. Measured while it is written.
    Auto,
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

/// The run as it is better stored than raw, by a codec that was chosen beforehand. `None` if it is not.
pub(crate) fn encode(compression: Compression, run: &[u8]) -> Option<(Codec, Vec<u8>)> {
    let codec = match compression {
        Compression::None | Compression::Auto => return None,
        Compression::Lz4 => Codec::Lz4,
        Compression::Zstd => Codec::Zstd,
    };
    // A short run is its own sample.
    if run.len() > SAMPLE_PAGES * PAGE_BYTES {
        let sample = sample_of(run);
        if !pays(compress_with(Codec::Lz4, &sample)?.len(), sample.len()) {
            return None;
        }
    }
    encode_with(codec, run)
}

/// The run as it is stored faster than raw, and whatever is learned about the codecs on the way. Where no run can be worth
/// it, one is tried all the same if it `is_probe`, lest a disk that has become slow went unnoticed.
pub(crate) fn encode_by_pace(speeds: &Speeds, pace: &Pace, is_probe: bool, run: &[u8]) -> Option<(Codec, Vec<u8>)> {
    if !is_probe && !speeds.can_pay() {
        return None;
    }
    let sample = sample_of(run);
    let lz4 = measure(Codec::Lz4, &sample)?;
    pace.note_encoded(Codec::Lz4, &lz4);
    if !pays(lz4.encoded_bytes, lz4.bytes) {
        return None;
    }
    if is_probe && let Some(zstd) = measure(Codec::Zstd, &sample) {
        pace.note_encoded(Codec::Zstd, &zstd);
        pace.note_both(&lz4, &zstd);
    }
    match speeds.best(lz4.encoded_bytes as f64 / lz4.bytes as f64) {
        Codec::Raw => None,
        codec => {
            let begun = Instant::now();
            let encoded = encode_with(codec, run)?;
            let measured = Measured { bytes: run.len(), encoded_bytes: encoded.1.len(), time: begun.elapsed() };
            pace.note_encoded(codec, &measured);
            Some(encoded)
        }
    }
}

fn measure(codec: Codec, pages: &[u8]) -> Option<Measured> {
    let begun = Instant::now();
    let encoded_bytes = compress_with(codec, pages)?.len();
    Some(Measured { bytes: pages.len(), encoded_bytes, time: begun.elapsed() })
}

fn encode_with(codec: Codec, run: &[u8]) -> Option<(Codec, Vec<u8>)> {
    let encoded = compress_with(codec, run)?;
    pays(encoded.len(), run.len()).then_some((codec, encoded))
}

fn compress_with(codec: Codec, bytes: &[u8]) -> Option<Vec<u8>> {
    match codec {
        Codec::Raw => None,
        Codec::Lz4 => Some(lz4_flex::block::compress(bytes)),
        Codec::Zstd => compress_with_zstd(bytes),
    }
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

/// Some pages of a run, from its first to its last.
fn sample_of(run: &[u8]) -> Cow<'_, [u8]> {
    let pages = run.len() / PAGE_BYTES;
    if pages <= SAMPLE_PAGES {
        return run.into();
    }
    let mut sample = Vec::with_capacity(SAMPLE_PAGES * PAGE_BYTES);
    for n in 0..SAMPLE_PAGES {
        let page = n * (pages - 1) / (SAMPLE_PAGES - 1);
        sample.extend_from_slice(&run[page * PAGE_BYTES..(page + 1) * PAGE_BYTES]);
    }
    sample.into()
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

    fn noise() -> Vec<u8> {
        let mut state = 1u64;
        let next = |_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        };
        (0..64 * PAGE_BYTES).map(next).collect()
    }

    #[test]
    fn a_run_of_noise_is_left_raw() {
        assert!(encode(Compression::Zstd, &noise()).is_none());
    }

    #[test]
    fn by_pace_a_slow_sink_gets_encoded_runs_and_a_fast_one_raw_ones_from_which_it_learns() {
        let speeds = |sink| Speeds { sink, lz4: 1e9, zstd: 0.5e9, zstd_of_lz4: 0.5, threads: 1 };
        let (slow, fast, pace) = (speeds(1e6), speeds(9e9), Pace::default());
        let (codec, encoded) = encode_by_pace(&slow, &pace, false, &text()).unwrap();
        let mut back = vec![0; text().len()];
        decode(codec, &encoded, &mut back).unwrap();
        assert!(codec == Codec::Zstd && back == text());
        assert!(encode_by_pace(&slow, &pace, true, &noise()).is_none(), "it does not shrink");

        let pace = Pace::default();
        let unknown = pace.speeds(1);
        assert!(encode_by_pace(&fast, &pace, false, &text()).is_none());
        assert_eq!(pace.speeds(1), unknown, "nothing was tried");
        for _ in 0..16 {
            assert!(encode_by_pace(&fast, &pace, true, &text()).is_none());
        }
        let known = pace.speeds(1);
        assert!(known.lz4 != unknown.lz4 && known.zstd != unknown.zstd && known.zstd_of_lz4 != unknown.zstd_of_lz4);
    }

    #[test]
    fn an_output_of_another_size_is_an_error() {
        let (codec, encoded) = encode(Compression::Zstd, &text()).unwrap();
        assert!(decode(codec, &encoded, &mut vec![0; text().len() - 1]).is_err());
        assert!(decode(codec, &encoded, &mut vec![0; text().len() + 1]).is_err());
        assert!(decode(codec, &encoded[..encoded.len() / 2], &mut vec![0; text().len()]).is_err());
    }
}
