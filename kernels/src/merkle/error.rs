//! What can go wrong.

/// Or an [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The chunks cannot be numbered.
    #[error("region {region} of {bytes} bytes has too many chunks of {chunk_bytes} bytes; use larger chunks")]
    TooLarge {
        /// The region with which the numbers ran out.
        region: u64,
        /// Its length.
        bytes: u64,
        /// The length of a chunk.
        chunk_bytes: u32,
    },
    /// A length of chunks that no engine takes.
    #[error("chunks of {chunk_bytes} bytes; they must have from 32 bytes to 64 KiB, in steps of 4")]
    ChunkBytes {
        /// The length asked for.
        chunk_bytes: u32,
    },
    /// Two regions with one id.
    #[error("two regions have the id {region}")]
    TwiceThere {
        /// The id.
        region: u64,
    },
    /// Numbers of checkpoints must increase.
    #[error("checkpoint {checkpoint} after checkpoint {last}: numbers must increase")]
    OutOfOrder {
        /// The number given.
        checkpoint: u32,
        /// The last one before.
        last: u32,
    },
    /// What takes the difference failed. The checkpoint has not been taken; the next one may have its number.
    #[error("the difference of checkpoint {checkpoint} could not be written: {source}")]
    Sink {
        /// The number of the checkpoint.
        checkpoint: u32,
        /// Why.
        source: std::io::Error,
    },
    /// A region cannot be read. The checkpoint has not been taken; the next one may have its number.
    #[error("region {region} could not be read: {source}")]
    Unreadable {
        /// The region's id.
        region: u64,
        /// Why.
        source: std::io::Error,
    },
    /// The lineage has no such checkpoint.
    #[error("the lineage has no checkpoint {checkpoint}")]
    NoSuchCheckpoint {
        /// The number asked for.
        checkpoint: u32,
    },
    /// The checkpoint has no such region.
    #[error("checkpoint {checkpoint} has no region {region} of {bytes} bytes")]
    NoSuchRegion {
        /// The number of the checkpoint.
        checkpoint: u32,
        /// The id asked for.
        region: u64,
        /// The length asked for.
        bytes: u64,
    },
    /// A difference that contradicts itself or the others of its lineage.
    #[error("the difference of checkpoint {checkpoint} is corrupt: {what}")]
    Corrupt {
        /// Its number.
        checkpoint: u32,
        /// What is wrong.
        what: String,
    },
}
