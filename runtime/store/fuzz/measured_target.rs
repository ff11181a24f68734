//! What all targets share: an input may take no more memory than a store of a few KiB may.

#[path = "../tests/measured/mod.rs"]
pub mod measured;

/// The target of one function of bytes.
macro_rules! fuzz {
    ($function:path) => {
        libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
            let alone = $crate::measured_target::measured::alone();
            $crate::measured_target::measured::within_bounds(&alone, "the input", || $function(bytes));
        });
    };
}
pub(crate) use fuzz;
