//! Managed memory that libckpt.so has pinned is to the program what the driver's own is: each case holds for both.

use ckpt_tests::cuda::{self, ends_well};
use ckpt_tests::{Launch, Program, cases};

fn case(name: &str, whose: &str) -> Program {
    cuda::program("managed").argument(name).argument(whose)
}

fn pinned(program: Program) -> Program {
    program.variable("CKPT_MANAGED_BACKING", "pinned")
}

/// The case with the driver alone, with libckpt.so, and with memory pinned.
fn holds(name: &str, variables: &[(&str, &str)]) {
    let with =
        |program: Program| variables.iter().fold(program, |program, (name, value)| program.variable(name, value));
    ends_well(&with(case(name, "native")), &Launch::Plain);
    ends_well(&with(case(name, "native")), &Launch::Preload);
    ends_well(&with(pinned(case(name, "pinned"))), &Launch::Preload);
}

cases! { holds:
    it_is_said_to_be_managed;
    host_and_devices_have_the_same_bytes ("CKPT_DOUBLE_DEVICES" = "2");
    advice_is_taken;
    only_what_begins_there_can_be_freed_and_once;
    memory_is_freed_when_nothing_uses_it_any_more;
    memory_ends_with_its_context;
    what_cannot_be_pinned_is_the_drivers ("CKPT_DOUBLE_FAIL" = "cuMemHostAlloc:2:2");
}

#[test]
fn that_memory_cannot_be_pinned_is_said_in_the_log() {
    let program = pinned(case("what_cannot_be_pinned_is_the_drivers", "pinned"));
    let log = ends_well(&program.variable("CKPT_DOUBLE_FAIL", "cuMemHostAlloc:2:2"), &Launch::Preload);
    assert!(log.contains("managed memory of 1048576 bytes cannot be pinned (error 2 of the CUDA driver)"), "{log}");
}
