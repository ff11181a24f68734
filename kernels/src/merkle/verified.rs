//! Checkpoints for those who fear collisions.
//!
//! Chunks with one digest are taken for equal, and with Murmur3 somebody can make others that are not. Comparing every byte
//! with what would be restored finds that. The checkpoint is then taken again by a method that looks up nothing.

use super::{Difference, Engine, Lineage, Method, Mismatch, Region, Result, Taken};

/// Takes a checkpoint into a lineage, and compares what it would restore with the regions, which must hold still. A mismatch,
/// if there was one, says that digests collided; the checkpoint has then been taken again, with every chunk stored. Until the
/// next one the difference is in memory, where [`Lineage::difference`] has it.
///
/// # Errors
/// As of [`Engine::difference`] and [`Lineage::add`]. The checkpoint has not been taken.
pub fn take_verified(
    engine: &mut Engine,
    lineage: &mut Lineage,
    checkpoint: u32,
    method: Method,
    regions: &[Region<'_>],
) -> Result<(Taken, Option<Mismatch>)> {
    let taken = take(engine, lineage, checkpoint, method, regions)?;
    let Some(mismatch) = lineage.mismatch(checkpoint, regions)? else { return Ok((taken, None)) };
    lineage.take_back();
    // The chunks of before are not known after this, so nothing is taken for what it was.
    engine.abandon(checkpoint);
    take(engine, lineage, checkpoint, Method::Basic, regions).map(|taken| (taken, Some(mismatch)))
}

fn take(
    engine: &mut Engine,
    lineage: &mut Lineage,
    checkpoint: u32,
    method: Method,
    regions: &[Region<'_>],
) -> Result<Taken> {
    let mut difference = Difference::default();
    let taken = engine.difference(checkpoint, method, regions, &mut difference)?;
    lineage.add(difference).inspect_err(|_| engine.abandon(checkpoint))?;
    Ok(taken)
}
