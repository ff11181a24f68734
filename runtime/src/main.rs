//! The `ckpt` command.
fn main() {}
