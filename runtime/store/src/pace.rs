//! How fast the disk takes bytes and the codecs encode them, measured while packs are written, and the codec that follows.
//!
//! Plank's rule: compression makes a checkpoint faster only if it is faster than the sink that it feeds. Here hashing,
//! encoding and writing go on at once, so what a byte of pages takes is what the slower of two stages takes: encoding, by
//! as many threads as are left beside the one that reads and hashes, or writing what is left of the byte. Stored raw it
//! takes what writing takes. Where there is one CPU alone, encoding keeps the rest waiting, and the two are added.
//!
//! On a fast disk the answer is mostly "raw", on a slow one LZ4 or Zstandard; zeros and duplicates cost nothing either way.
//! The rule is a function of numbers ([`Speeds::best`]); that the numbers are measured makes no checkpoint wrong, as each
//! run says how it is encoded.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::codec::Codec;

/// A codec must save this part of the time; less is not worth pages that cannot be mapped.
const SAVED_PART: f64 = 0.1;
/// Of so many bytes before a measurement half is forgotten.
const SINK_HALF_LIFE_BYTES: f64 = (64 << 20) as f64;
const CODEC_HALF_LIFE_BYTES: f64 = (4 << 20) as f64;
/// Fewer bytes than this are not a measurement.
const MEASURED_BYTES_MIN: f64 = (64 << 10) as f64;
/// What is assumed until something is measured, bytes a second: a middling disk, and codecs on an old core.
const SINK_ASSUMED: f64 = 500e6;
const LZ4_ASSUMED: f64 = 600e6;
const ZSTD_ASSUMED: f64 = 300e6;
/// What Zstandard makes of a page, of what LZ4 does.
const ZSTD_OF_LZ4_ASSUMED: f64 = 0.75;

/// What the rule is applied to. Speeds in bytes a second; those of codecs are in bytes of pages, of one thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Speeds {
    pub sink: f64,
    pub lz4: f64,
    pub zstd: f64,
    /// What Zstandard makes of a page, of what LZ4 does.
    pub zstd_of_lz4: f64,
    /// Threads that are left for encoding; 0 if it is to be done in between.
    pub threads: usize,
}

impl Speeds {
    /// The codec that makes a run the fastest of which LZ4 leaves `lz4_ratio` of the bytes.
    pub fn best(&self, lz4_ratio: f64) -> Codec {
        let lz4 = (Codec::Lz4, self.seconds(self.lz4, lz4_ratio));
        let zstd = (Codec::Zstd, self.seconds(self.zstd, lz4_ratio * self.zstd_of_lz4));
        let (codec, seconds) = if zstd.1 < lz4.1 { zstd } else { lz4 };
        if seconds < (1.0 - SAVED_PART) / self.sink { codec } else { Codec::Raw }
    }

    /// Whether any run can be worth encoding, however little is left of it.
    pub fn can_pay(&self) -> bool {
        self.best(0.0) != Codec::Raw
    }

    /// What a byte takes that is encoded at `speed` to `ratio` of it.
    fn seconds(&self, speed: f64, ratio: f64) -> f64 {
        let write = ratio / self.sink;
        match self.threads {
            0 => 1.0 / speed + write,
            threads => f64::max(1.0 / (speed * threads as f64), write),
        }
    }
}

/// Something that was measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// Of pages.
    pub bytes: usize,
    /// What was left of them.
    pub encoded_bytes: usize,
    pub time: Duration,
}

/// Bytes and the seconds that they took, of which older ones count less.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    bytes: f64,
    seconds: f64,
}

impl Rate {
    fn note(&mut self, bytes: usize, time: Duration, half_life_bytes: f64) {
        let kept = 0.5_f64.powf(bytes as f64 / half_life_bytes);
        self.bytes = self.bytes * kept + bytes as f64;
        self.seconds = self.seconds * kept + time.as_secs_f64();
    }

    fn per_second(&self) -> Option<f64> {
        (self.bytes >= MEASURED_BYTES_MIN && self.seconds > 0.0).then(|| self.bytes / self.seconds)
    }
}

/// What has been measured of a store by this process.
#[derive(Debug, Default)]
pub(crate) struct Pace(Mutex<Measurements>);

#[derive(Clone, Copy, Debug, Default)]
struct Measurements {
    sink: Rate,
    lz4: Rate,
    zstd: Rate,
    zstd_of_lz4: Option<f64>,
}

impl Pace {
    fn lock(&self) -> MutexGuard<'_, Measurements> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known by now, for so many threads that encode.
    pub fn speeds(&self, threads: usize) -> Speeds {
        let known = *self.lock();
        Speeds {
            sink: known.sink.per_second().unwrap_or(SINK_ASSUMED),
            lz4: known.lz4.per_second().unwrap_or(LZ4_ASSUMED),
            zstd: known.zstd.per_second().unwrap_or(ZSTD_ASSUMED),
            zstd_of_lz4: known.zstd_of_lz4.unwrap_or(ZSTD_OF_LZ4_ASSUMED),
            threads,
        }
    }

    /// The sink has taken these bytes; none for the time that an fsync took.
    pub fn note_written(&self, bytes: usize, time: Duration) {
        self.lock().sink.note(bytes, time, SINK_HALF_LIFE_BYTES);
    }

    /// Pages were encoded.
    pub fn note_encoded(&self, codec: Codec, measured: &Measured) {
        let mut known = self.lock();
        match codec {
            Codec::Raw => {}
            Codec::Lz4 => known.lz4.note(measured.bytes, measured.time, CODEC_HALF_LIFE_BYTES),
            Codec::Zstd => known.zstd.note(measured.bytes, measured.time, CODEC_HALF_LIFE_BYTES),
        }
    }

    /// The same pages were encoded by both codecs.
    pub fn note_both(&self, lz4: &Measured, zstd: &Measured) {
        let ratio = zstd.encoded_bytes as f64 / lz4.encoded_bytes.max(1) as f64;
        let known = &mut self.lock().zstd_of_lz4;
        *known = Some(known.map_or(ratio, |before| before * 0.8 + ratio * 0.2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LZ4 at 1 GB/s, Zstandard at 400 MB/s and half the size.
    fn speeds(sink: f64, threads: usize) -> Speeds {
        Speeds { sink, lz4: 1e9, zstd: 400e6, zstd_of_lz4: 0.5, threads }
    }

    #[test]
    fn what_is_faster_than_every_codec_gets_raw_pages() {
        for (sink, threads) in [(1.3e9, 1), (1e9, 1), (5e9, 4), (1e9, 0)] {
            assert_eq!(speeds(sink, threads).best(0.01), Codec::Raw, "{sink} {threads}");
            assert!(!speeds(sink, threads).can_pay());
        }
    }

    #[test]
    fn a_sink_slower_than_lz4_alone_gets_lz4_and_a_slow_one_zstandard() {
        assert_eq!(speeds(800e6, 1).best(0.3), Codec::Lz4);
        assert_eq!(speeds(400e6, 1).best(0.5), Codec::Lz4, "Zstandard is no faster than that sink");
        assert_eq!(speeds(100e6, 1).best(0.5), Codec::Zstd);
        assert!(speeds(800e6, 1).can_pay());
    }

    #[test]
    fn more_threads_make_compression_worth_it() {
        assert_eq!(speeds(1.3e9, 1).best(0.5), Codec::Raw);
        assert_eq!(speeds(1.3e9, 2).best(0.5), Codec::Lz4);
        assert_eq!(speeds(1.3e9, 15).best(0.5), Codec::Zstd);
    }

    #[test]
    fn without_a_thread_to_spare_encoding_and_writing_are_added() {
        // 1 ns a byte and half of 2 ns are no gain over 2 ns, which they are side by side.
        assert_eq!(speeds(500e6, 0).best(0.5), Codec::Raw);
        assert_eq!(speeds(500e6, 1).best(0.5), Codec::Lz4);
        assert_eq!(speeds(100e6, 0).best(0.5), Codec::Zstd);
    }

    #[test]
    fn what_does_not_shrink_is_raw_for_every_sink() {
        for sink in [1e3, 1e6, 1e9] {
            let speeds = Speeds { zstd_of_lz4: 1.0, ..speeds(sink, 8) };
            assert_eq!(speeds.best(0.95), Codec::Raw, "{sink}");
            assert_eq!(speeds.best(0.8), if sink < 1e9 { Codec::Lz4 } else { speeds.best(0.8) });
        }
    }

    #[test]
    fn speeds_follow_what_is_measured_and_forget_what_was() {
        let pace = Pace::default();
        assert_eq!(pace.speeds(1).sink, SINK_ASSUMED);
        let second = Duration::from_secs(1);
        pace.note_written(100 << 20, second);
        let measured = pace.speeds(1).sink;
        assert_eq!(measured, (100 << 20) as f64);
        pace.note_written(0, second);
        assert_eq!(pace.speeds(1).sink, measured / 2.0, "an fsync counts as time");
        for _ in 0..20 {
            pace.note_written(1000 << 20, second);
        }
        assert!(pace.speeds(1).sink > 0.99 * (1000 << 20) as f64);
        let encoded = |bytes: usize| Measured { bytes: 1 << 20, encoded_bytes: bytes, time: second };
        pace.note_encoded(Codec::Lz4, &encoded(1 << 19));
        pace.note_both(&encoded(1 << 19), &encoded(1 << 18));
        let now = pace.speeds(3);
        assert_eq!((now.lz4, now.zstd, now.zstd_of_lz4), ((1 << 20) as f64, ZSTD_ASSUMED, 0.5));
    }
}
