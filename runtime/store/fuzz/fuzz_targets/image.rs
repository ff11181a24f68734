#![no_main]

use ckpt_runtime::{image, restore};

#[path = "../measured_target.rs"]
mod measured_target;

/// Decodes an image and asks whether it makes sense; one that does is the same after it has been encoded.
fn decode(bytes: &[u8]) {
    if let Ok(data) = image::decode_data(1, bytes) {
        let again = image::decode_data(1, &image::encode(&data)).expect("what was encoded is decoded");
        assert!(image::encode(&again) == image::encode(&data));
    }
    let Ok(image) = image::decode(1, bytes) else { return };
    if restore::check_shape(1, &image).is_ok() {
        let encoded = image::encode(&image);
        let again = image::decode(1, &encoded).expect("what was encoded is decoded");
        assert!(image::encode(&again) == encoded);
    }
}

measured_target::fuzz!(decode);
