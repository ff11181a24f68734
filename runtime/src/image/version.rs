//! Versions of the image.

/// Version of the image; raised when a field changes its meaning.
pub const IMAGE_VERSION: u32 = 2;
/// That of an image with pages that are not stored yet. An older ckpt would take them for zeros.
pub const PENDING_VERSION: u32 = 3;
/// That of an image with seccomp filters, with pages that are not stored yet or without. An older ckpt would let the program run
/// without its sandbox.
pub const FILTERS_VERSION: u32 = 4;
