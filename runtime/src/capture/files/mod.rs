//! The content of files as of the moment of the stop: of those that the program may write to, of deleted ones that it still has
//! open, and of directories that its user names.
//!
//! No clone freezes a file. What has not changed since the last checkpoint, by all that the file system says of it, is not read
//! again; the rest is copied while the program stands still, and written into the store when it runs again. Where it stays
//! stopped anyway, nothing is copied.

mod choice;
mod held;
mod hold;
mod record;
mod store;
mod trees;
mod wishes;

pub use choice::hold;
pub use held::{HeldFiles, Known};
pub use store::store;
pub use wishes::Wishes;
