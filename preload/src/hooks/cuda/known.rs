//! The names of all functions of the driver that we know, hooked or not: those of CUDA 13.0's `cuda.h`.

/// One name a line, sorted; made from the header, which a test compares it with where it is at hand.
const NAMES: &str = include_str!("known_names.txt");
/// The same of `cudaGL.h`, `cudaEGL.h`, `cudaVDPAU.h` and the profiler, which each runtime looks up. None allocates for the program.
const GRAPHICS_NAMES: &str = include_str!("known_graphics_names.txt");

/// Whether it is a name of the driver's at all, rather than one that begins alike (cuBLAS, cuDNN, curl).
pub fn looks_like_drivers(name: &[u8]) -> bool {
    name.strip_prefix(b"cu").and_then(<[u8]>::first).is_some_and(u8::is_ascii_uppercase)
}

/// Whether we know a function of this name.
pub fn is_known(name: &[u8]) -> bool {
    [NAMES, GRAPHICS_NAMES].iter().any(|names| names.as_bytes().split(|&byte| byte == b'\n').any(|known| known == name))
}
