//! Ranks of MPI on one machine, with what has started them.

use ckpt_tests::program::for_ranks;
use ckpt_tests::{Program, Stdout};

use crate::{BY_COMMAND, FIVE, ONE, goes_on};

/// Four of them, compiled for an implementation.
fn ranks(implementation: &str) -> Program {
    let start = Program::installed(&format!("mpirun.{implementation}")).argument("-n").argument("4");
    let start = match implementation {
        // More ranks than processors, and by root where the tests are root's.
        "openmpi" => start.argument("--oversubscribe").argument("--allow-run-as-root"),
        _ => start,
    };
    start.argument(for_ranks("stencil", implementation)).argument("80")
}

#[test]
fn ranks_of_open_mpi_go_on_exactly() {
    goes_on(&ranks("openmpi"), Stdout::File, &ONE, BY_COMMAND);
}

#[test]
fn ranks_of_mpich_go_on_exactly() {
    goes_on(&ranks("mpich"), Stdout::File, &ONE, BY_COMMAND);
}

#[test]
#[ignore = "long: five moments; scripts/test --all"]
fn ranks_go_on_from_five_moments() {
    for implementation in ["openmpi", "mpich"] {
        goes_on(&ranks(implementation), Stdout::Pipe, &FIVE, BY_COMMAND);
    }
}
