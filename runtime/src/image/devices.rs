//! The devices that a process had, which the driver had let go before it was captured.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::{Allocation, StoredDifference};

/// What a restart has to know of them. What they held is in the memory of the process, where the driver has put it, but for that
/// of pieces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DevicesImage {
    /// Address of what libckpt.so and ckpt share about them (`ckpt_wire::device::Hold`).
    pub hold: u64,
    /// Path of the driver.
    #[serde(with = "serde_bytes")]
    pub driver: Vec<u8>,
    /// All that the process saw, by their numbers in it.
    pub devices: Vec<DeviceImage>,
    /// Memory of ours on each, which the driver has not had.
    pub pieces: Vec<StoredPieces>,
    /// Bytes of managed memory that are memory of the host, and are to be managed again.
    #[serde(default)]
    pub evacuated_bytes: u64,
}

impl DevicesImage {
    /// The piece that all of an allocation lies in, and which of [`DevicesImage::pieces`] has it.
    pub fn piece_of(&self, allocation: &Allocation) -> Option<(usize, PieceImage)> {
        let Range { start, end } = allocation.addresses();
        let has = |piece: &&PieceImage| piece.address <= start && end <= piece.address + piece.bytes;
        let of_device =
            |(number, stored): (usize, &StoredPieces)| stored.pieces.iter().find(has).map(|piece| (number, *piece));
        self.pieces.iter().enumerate().find_map(of_device)
    }

    /// How many differences pieces need.
    pub fn differences(&self) -> usize {
        self.pieces.iter().map(|stored| stored.differences.len()).sum()
    }

    /// Bytes of all pieces.
    pub fn piece_bytes(&self) -> u64 {
        self.pieces.iter().map(StoredPieces::bytes).sum()
    }

    /// Bytes of those on a device.
    pub fn piece_bytes_on(&self, device: i32) -> u64 {
        self.pieces.iter().filter(|stored| stored.device == device).map(StoredPieces::bytes).sum()
    }
}

/// Physical memory on a device that libckpt.so has mapped, and its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredPieces {
    /// The device's number in the process.
    pub device: i32,
    /// Each is a region of the differences by its id.
    pub pieces: Vec<PieceImage>,
    /// Their content.
    pub differences: Vec<StoredDifference>,
}

impl StoredPieces {
    fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.bytes).sum()
    }
}

impl DeviceImage {
    /// As nvidia-smi names it.
    pub fn name(&self) -> String {
        device_name(&self.uuid)
    }
}

/// A device, as nvidia-smi names it.
pub fn device_name(uuid: &[u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// A piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PieceImage {
    /// Its number, which no other piece of the process ever has.
    pub id: u64,
    /// First address.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
}

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceImage {
    /// How the driver names it in every process.
    pub uuid: [u8; 16],
    /// Its model; empty where that was not to be learned.
    pub model: String,
    /// What code it runs: 9, 0 for sm_90.
    pub capability: (u32, u32),
    /// How many bytes the process has allocated there, as far as that is recorded.
    pub used_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::device_name;

    #[test]
    fn devices_are_named_as_by_the_tools_of_their_maker() {
        let uuid = std::array::from_fn(|n| n as u8 * 17);
        assert_eq!(device_name(&uuid), "GPU-00112233-4455-6677-8899-aabbccddeeff");
    }
}
