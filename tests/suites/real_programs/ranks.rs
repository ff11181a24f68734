//! Ranks of MPI on one machine, with what has started them.

use ckpt_tests::program::for_ranks;
use ckpt_tests::{Program, Stdout};

use crate::{BY_COMMAND, FIVE, ONE, TWO, goes_on};

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
#[ignore = "much like those of Open MPI; scripts/test --all"]
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

/// A liquid of 2048 atoms, of which only what depends on them is printed.
const MELT: &str = "
units lj
lattice fcc 0.8442
region box block 0 8 0 8 0 8
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287 loop geom
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neigh_modify every 20 delay 0 check no
fix 1 all nve
thermo 10
thermo_modify flush yes
run 3000
";

#[test]
#[ignore = "large packages; scripts/test --all"]
fn lammps_with_two_ranks_goes_on_exactly() {
    let start = "mpirun.openmpi --allow-run-as-root --oversubscribe -n 2 lmp -in melt -log none";
    let lammps = format!("{start} | grep --line-buffered -E '^ +[0-9]+ '");
    let lammps = Program::installed("bash").argument("-c").argument(lammps).input("melt", MELT.as_bytes());
    goes_on(&lammps, Stdout::File, &TWO, BY_COMMAND);
}
