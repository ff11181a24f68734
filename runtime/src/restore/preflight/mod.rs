//! Everything that can be refused before anything is built.
//!
//! A restart that fails half-way costs time and nerves, and one that succeeds on the wrong host or over the wrong
//! files is corruption. So the image is compared with this host, this user, the process table and the files it
//! names first. Nothing here changes anything.

mod files;
mod identity;
mod kernel_limits;
mod machine;
pub mod shape;

use super::RestoreOptions;
use super::host::Machine;
use crate::error::Result;
use crate::image::ProcessImage;

/// Checks that checkpoint `id` can be rebuilt here and now.
pub fn check(id: u64, image: &ProcessImage, machine: &Machine, options: &RestoreOptions) -> Result<()> {
    shape::check(id, image)?;
    machine::check(image, machine, options.force)?;
    kernel_limits::check(image)?;
    identity::check(image, &options.place)?;
    files::check(image, options.force)?;
    super::locks::check(image)
}
