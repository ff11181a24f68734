//! What can go wrong in a study.

/// Or an [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A checkpoint does not give back what it was made of: its figures are worth nothing.
    #[error("checkpoint {checkpoint} by {method} was restored, and is not what the program had: byte {offset} differs")]
    Differs {
        /// Its number in the series.
        checkpoint: u32,
        /// How it was made.
        method: String,
        /// The first byte that differs, or where one of the two ends.
        offset: usize,
    },
    /// The engine refused.
    #[error(transparent)]
    Engine(#[from] ckpt_kernels::merkle::Error),
    /// There is no device, or it failed.
    #[error(transparent)]
    Device(#[from] ckpt_kernels::device::Error),
    /// A state cannot be written down.
    #[error("{}: {source}", path.display())]
    State {
        /// The file or folder.
        path: std::path::PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A codec failed, or the table cannot be written.
    #[error("the table or a compressed checkpoint cannot be written: {0}")]
    Write(#[from] std::io::Error),
    /// A compressed checkpoint cannot be read.
    #[error("a compressed checkpoint cannot be read: {0}")]
    Lz4(#[from] lz4_flex::block::DecompressError),
}
