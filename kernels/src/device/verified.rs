//! Checkpoints of device memory for those who fear collisions: as [`crate::merkle::take_verified`], for a GPU.

use super::{
    engine::{Engine, Region},
    error::Result,
};
use crate::merkle::{Difference, Lineage, Method, Mismatch, Taken};

/// Takes a checkpoint into a lineage, and compares every byte with what would be restored, as
/// [`crate::merkle::take_verified`] does. Everything leaves the device for that.
///
/// # Errors
/// As of [`Engine::difference`] and [`Lineage::add`]. The checkpoint has not been taken.
///
/// # Safety
/// As of [`Engine::difference`].
pub unsafe fn take_verified(
    engine: &mut Engine,
    lineage: &mut Lineage,
    checkpoint: u32,
    method: Method,
    regions: &[Region],
) -> Result<(Taken, Option<Mismatch>)> {
    // SAFETY: the caller's.
    let taken = unsafe { take(engine, lineage, checkpoint, method, regions)? };
    // SAFETY: the caller's.
    let Some(mismatch) = (unsafe { engine.mismatch(lineage, checkpoint, regions)? }) else { return Ok((taken, None)) };
    lineage.take_back();
    // The chunks of before are not known after this, so nothing is taken for what it was.
    engine.abandon(checkpoint)?;
    // SAFETY: the caller's.
    unsafe { take(engine, lineage, checkpoint, Method::Basic, regions) }.map(|taken| (taken, Some(mismatch)))
}

/// # Safety
/// As of [`Engine::difference`].
unsafe fn take(
    engine: &mut Engine,
    lineage: &mut Lineage,
    checkpoint: u32,
    method: Method,
    regions: &[Region],
) -> Result<Taken> {
    let mut difference = Difference::default();
    // SAFETY: the caller's.
    let taken = unsafe { engine.difference(checkpoint, method, regions, &mut difference)? };
    if let Err(error) = lineage.add(difference) {
        engine.abandon(checkpoint)?;
        return Err(error.into());
    }
    Ok(taken)
}
