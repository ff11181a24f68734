//! Servers with their workers and their clients, as one job.

use ckpt_tests::exact::Trigger;
use ckpt_tests::{Program, Stdout};

use crate::{BOTH, BY_COMMAND, FIVE, ONE, goes_on};

fn redis() -> Program {
    Program::python("redis.py").argument("60")
}

fn web(server: &str) -> Program {
    Program::python("web.py").argument("60").argument(server)
}

#[test]
fn redis_with_its_client_and_a_save_in_the_background_goes_on_exactly() {
    goes_on(&redis(), Stdout::File, &ONE, BOTH);
}

#[test]
fn nginx_with_its_workers_and_its_clients_goes_on_exactly() {
    goes_on(&web("nginx"), Stdout::File, &ONE, BOTH);
}

#[test]
#[ignore = "much like nginx; scripts/test --all"]
fn the_server_of_python_and_its_clients_go_on_exactly() {
    goes_on(&web("http_server"), Stdout::File, &ONE, BOTH);
}

fn postgres() -> Program {
    Program::python("postgres.py").argument("60")
}

/// Its files are those of the checkpoint, because nothing runs on.
#[test]
#[ignore = "long; scripts/test --all"]
fn postgresql_under_pgbench_that_is_killed_by_its_checkpoint_goes_on_exactly() {
    goes_on(&postgres(), Stdout::File, &ONE, [Trigger::Kill, Trigger::Kill]);
}

/// It runs on, and all that it has written meanwhile is taken back.
#[test]
fn postgresql_under_pgbench_whose_directory_is_captured_goes_on_exactly() {
    goes_on(&postgres().variable("CKPT_WITH_DIR", "data"), Stdout::File, &ONE, BOTH);
}

#[test]
#[ignore = "long: five moments; scripts/test --all"]
fn servers_go_on_from_five_moments() {
    goes_on(&redis(), Stdout::Pipe, &FIVE, BOTH);
    goes_on(&web("nginx"), Stdout::Pipe, &FIVE, BOTH);
    goes_on(&web("http_server"), Stdout::Pipe, &FIVE, BOTH);
    goes_on(&postgres().variable("CKPT_WITH_DIR", "data"), Stdout::Pipe, &FIVE, BY_COMMAND);
}
