//! What /proc says about a process, in the types the rest of ckpt uses.
//!
//! Read by hand rather than with the procfs crate: that crate takes paths as UTF-8 text, trims
//! them and does not know the newer mapping flags, and a mapping whose name was misread is memory lost; what is
//! left besides mappings is a handful of lines.

pub mod fdinfo;
pub mod locks;
pub mod maps;
pub mod task;
