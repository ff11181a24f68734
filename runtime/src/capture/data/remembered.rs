//! What is remembered between two checkpoints of data of one program.

use super::device::Devices;
use super::host::Host;
use crate::capture::device_variables::Variables;

/// What is remembered between two checkpoints of data of one program.
#[derive(Default)]
pub struct Remembered {
    pub host: Host,
    pub devices: Devices,
    pub variables: Variables,
}
