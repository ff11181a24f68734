//! The devices that a process had, which the driver had let go before it was captured.

use serde::{Deserialize, Serialize};

use super::StoredDifference;

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
}

impl DevicesImage {
    /// Bytes of all pieces.
    pub fn piece_bytes(&self) -> u64 {
        self.pieces.iter().flat_map(|stored| &stored.pieces).map(|piece| piece.bytes).sum()
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
