//! Device memory that libckpt.so has mapped is to the program what the driver's own is: each case holds for both.

use ckpt_tests::cuda::{self, ends_well};
use ckpt_tests::{Launch, Program, cases};

fn case(name: &str, whose: &str) -> Program {
    cuda::program("backed").argument(name).argument(whose)
}

/// The case with the driver alone, with memory mapped, and with libckpt.so told to leave it the driver's.
fn holds(name: &str, variables: &[(&str, &str)]) {
    let with =
        |program: Program| variables.iter().fold(program, |program, (name, value)| program.variable(name, value));
    ends_well(&with(case(name, "native")), &Launch::Plain);
    ends_well(&with(case(name, "mapped")), &Launch::Preload);
    ends_well(&with(case(name, "native").variable("CKPT_DEVICE_BACKING", "native")), &Launch::Preload);
}

cases! { holds:
    the_range_is_what_was_asked_for;
    attributes_are_those_of_the_drivers_own;
    an_attribute_that_is_set_is_one_allocations;
    memory_is_counted_by_granules ("CKPT_DOUBLE_MEMORY" = "0x4000000");
    what_does_not_fit_leaves_nothing_behind ("CKPT_DOUBLE_MEMORY" = "0x4000000");
    addresses_are_aligned;
    rows_are_as_far_apart_as_the_driver_has_them;
    only_what_begins_there_can_be_freed_and_once;
    memory_is_freed_when_nothing_uses_it_any_more;
    memory_is_freed_in_the_order_of_a_stream;
    memory_ends_with_its_context;
    peers_have_access_from_when_they_may_until_they_may_not ("CKPT_DOUBLE_DEVICES" = "2");
    other_kinds_of_memory_stay_the_drivers;
    plain_memory_has_no_handle;
    a_child_of_fork_does_no_harm;
    what_is_allocated_is_nobody_elses;
    threads_allocate_at_once;
    every_piece_is_shown_to_the_agent;
    memory_of_another_process_can_be_opened;
    memory_that_is_opened_twice_is_closed_twice;
    memory_of_a_process_that_has_ended_cannot_be_opened;
}

/// `CUDA_ERROR_NOT_SUPPORTED` from the driver, and nothing is lost but the mapping.
#[test]
fn what_cannot_be_mapped_is_the_drivers() {
    let program = case("what_cannot_be_mapped_is_the_drivers", "native").variable("CKPT_DOUBLE_CREATE_RESULT", "801");
    ends_well(&program, &Launch::Preload);
}

#[test]
fn a_handle_that_cannot_be_opened_is_explained_in_the_log() {
    let log = ends_well(&case("memory_of_a_process_that_has_ended_cannot_be_opened", "mapped"), &Launch::Preload);
    assert!(log.contains("cannot be opened here") && log.contains("CKPT_DEVICE_BACKING=native"), "{log}");
}
