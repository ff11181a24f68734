#![no_main]

#[path = "../../../../kernels/tests/hostile/mod.rs"]
mod hostile;
#[path = "../measured_target.rs"]
mod measured_target;

measured_target::fuzz!(hostile::difference);
