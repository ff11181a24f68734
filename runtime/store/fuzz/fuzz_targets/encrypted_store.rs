#![no_main]

#[path = "../measured_target.rs"]
mod measured_target;

measured_target::fuzz!(ckpt_store::fuzzing::encrypted_store);
