#![no_main]

use ckpt_runtime::device_code;

#[path = "../measured_target.rs"]
mod measured_target;

/// What an image's code may unpack to: the target counts memory.
const UNPACKED_BYTES_MAX: u64 = 4 << 20;

/// Looks for variables; those that are found are sorted, and each is found once.
fn read(bytes: &[u8]) {
    let _ = (device_code::length(bytes), device_code::wrapped(bytes));
    let Ok(variables) = device_code::variables_within(bytes, UNPACKED_BYTES_MAX) else { return };
    assert!(variables.is_sorted_by(|earlier, later| earlier < later));
}

measured_target::fuzz!(read);
