//! The checkpoint store.
#![forbid(unsafe_code)]
