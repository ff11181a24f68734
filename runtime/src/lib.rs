//! The runtime of ckpt.
