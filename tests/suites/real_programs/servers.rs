//! Servers with their workers and their clients, as one job.

use ckpt_tests::{Program, Stdout};

use crate::{BOTH, FIVE, TWO, goes_on};

fn redis() -> Program {
    Program::python("redis.py").argument("60")
}

fn web(server: &str) -> Program {
    Program::python("web.py").argument("60").argument(server)
}

#[test]
fn redis_with_its_client_and_a_save_in_the_background_goes_on_exactly() {
    goes_on(&redis(), Stdout::File, &TWO, BOTH);
}

#[test]
fn nginx_with_its_workers_and_its_clients_goes_on_exactly() {
    goes_on(&web("nginx"), Stdout::File, &TWO, BOTH);
}

#[test]
fn the_server_of_python_and_its_clients_go_on_exactly() {
    goes_on(&web("http_server"), Stdout::File, &TWO, BOTH);
}

#[test]
#[ignore = "long: five moments; scripts/test --all"]
fn servers_go_on_from_five_moments() {
    goes_on(&redis(), Stdout::Pipe, &FIVE, BOTH);
    goes_on(&web("nginx"), Stdout::Pipe, &FIVE, BOTH);
    goes_on(&web("http_server"), Stdout::Pipe, &FIVE, BOTH);
}
