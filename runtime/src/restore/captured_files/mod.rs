//! Files whose content is in the checkpoint: they get it back.
//!
//! What differs is found, and verified in the store, before anything is built ([`compare`]). When the restart is certain to
//! succeed, the content of today is saved (saved_copy) of each file that differs, which is then changed in place, so that
//! the file stays the one that others have open or linked. Of a file that has only grown, the part behind its end is saved
//! alone.

mod compare;
mod difference;
mod missing;
mod put_back;

pub use difference::CapturedFiles;
pub use put_back::write_content;
