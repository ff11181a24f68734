//! The ways to compute SHA-1 of many pages, and which of them this CPU should use.
//!
//! AVX-512 comes first. The SHA instructions, which the `sha1` crate uses by itself, come before AVX2. A group too
//! small for its lanes is hashed page by page; what is too small depends on how fast one page alone is.

#[cfg(target_arch = "x86_64")]
use std::arch::is_x86_feature_detected as has;

/// A way to compute SHA-1 of many pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Implementation {
    /// 16 pages at once; needs AVX-512 F and BW.
    Avx512,
    /// 8 pages at once; needs AVX2.
    Avx2,
    /// Page after page with the `sha1` crate: SHA instructions where the CPU has them, else portable code.
    OneByOne,
}

impl Implementation {
    /// Every implementation, available here or not.
    pub const ALL: [Self; 3] = [Self::Avx512, Self::Avx2, Self::OneByOne];

    /// Whether this CPU can run it.
    pub fn is_available(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => has!("avx512f") && has!("avx512bw"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => has!("avx2"),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx512 | Self::Avx2 => false,
            Self::OneByOne => true,
        }
    }

    /// The one to use on this CPU.
    pub fn best() -> Self {
        let in_order = if has_sha_instructions() { [Self::Avx512, Self::OneByOne, Self::Avx2] } else { Self::ALL };
        in_order.into_iter().find(|implementation| implementation.is_available()).unwrap_or(Self::OneByOne)
    }

    /// The fewest pages for which a pass over all lanes is faster than one page after the other.
    ///
    /// A pass takes as long as 1.4 pages of portable code, in either width (measured: 11.5 us and 8.4 us on a Xeon of
    /// 2.5 GHz). With the SHA instructions a page is expected to take about 2 us; that was not measured.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn group_min(self) -> usize {
        if has_sha_instructions() { 6 } else { 2 }
    }
}

/// Whether the `sha1` crate finds the SHA instructions.
fn has_sha_instructions() -> bool {
    #[cfg(target_arch = "x86_64")]
    return has!("sha") && has!("sse4.1");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}
