//! `ckpt doctor`: what works on this host, for this user, by trying it.
//!
//! Each probe is a file here. A probe that needs another process, or could harm or hang this one, does its work in
//! a child with a time limit. Kernel versions and settings are read only to explain: whether something works is
//! found out by doing it, because containers, seccomp and security modules change the answer.

mod clone3;
mod directory;
mod exe_link;
mod finding;
mod huge_pages;
mod kcmp;
mod kernel;
mod memory_overcommit;
mod own_files;
mod pid_max;
mod pidfd_getfd;
mod process_ids;
mod process_memory;
mod processor;
mod ptrace;
mod seccomp;
mod set_tid;
mod time_namespace;
mod trial;
mod uffd;
mod user_namespace;
mod write_tracking;

use std::path::PathBuf;

use clap::Args;

use super::table::{Align, Table};
use super::{print, print_json};
use crate::error::{Result, exit_code};
use finding::{Finding, State};

/// See what works on this host and for this user
#[derive(Args)]
#[command(after_help = "\
Each row was tried, not looked up. What there is another way for is degraded, and the last line says what is
given up by it. Exit code 0 if checkpoint and restart work here, 5 otherwise.

Examples:
  ckpt doctor
  ckpt doctor /scratch/ckpt-store      also tries the file system of that directory
  ckpt doctor --json | jq '.[] | select(.state != \"ok\")'")]
pub struct Arguments {
    /// A store, or where one shall be [default: the working directory]
    dir: Option<PathBuf>,
    /// One JSON array, for scripts
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> Result<u8> {
    let dir = arguments.dir.clone().unwrap_or_else(|| PathBuf::from("."));
    let findings = examine(&dir);
    if arguments.json {
        print_json(&findings)?;
    } else {
        print(&render(&findings))?;
    }
    Ok(if can_work(&findings) { exit_code::DONE } else { exit_code::ENVIRONMENT })
}

fn examine(dir: &std::path::Path) -> Vec<Finding> {
    let namespace = user_namespace::probe();
    let in_namespace = namespace.state == State::Ok;
    let set_tid = set_tid::probe(in_namespace);
    let ids = process_ids::probe(set_tid.state == State::Ok, in_namespace);
    vec![
        own_files::probe(),
        kernel::probe(),
        processor::probe(),
        seccomp::probe(),
        ptrace::own_child(),
        ptrace::by_permission(),
        process_memory::probe(),
        pidfd_getfd::probe_open(),
        pidfd_getfd::probe(),
        kcmp::probe(),
        clone3::probe(),
        ids,
        set_tid,
        exe_link::probe(in_namespace),
        namespace,
        time_namespace::probe(),
        uffd::probe(),
        write_tracking::probe(),
        huge_pages::probe(),
        memory_overcommit::probe(),
        pid_max::probe(),
        directory::probe(dir),
    ]
}

fn can_work(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| !finding.required || finding.state != State::No)
}

fn render(findings: &[Finding]) -> String {
    let mut table = Table::new(&[("probe", Align::Left), ("state", Align::Left), ("found", Align::Left)]);
    for finding in findings {
        table.row([finding.probe.to_owned(), finding.state.word().to_owned(), finding.found.clone()]);
    }
    let mut text = table.to_string();
    for finding in findings.iter().filter(|finding| !finding.advice.is_empty()) {
        text.push_str(&format!("\n{}: tried: {}\n  to do: {}\n", finding.probe, finding.tried, finding.advice));
    }
    text.push_str(&format!("\n{}\n", summary(findings)));
    text
}

/// One line: whether it works here, what is given up, and what to do about it.
fn summary(findings: &[Finding]) -> String {
    let needed = |finding: &&Finding| finding.required && finding.state == State::No;
    let no: Vec<&Finding> = findings.iter().filter(needed).collect();
    let (mut text, about) = if no.is_empty() {
        let given_up: Vec<&Finding> = findings.iter().filter(|finding| !finding.given_up.is_empty()).collect();
        let what: Vec<&str> = given_up.iter().map(|finding| finding.given_up).collect();
        let what = if what.is_empty() { String::new() } else { format!("; given up: {}", what.join(", ")) };
        (format!("Checkpoint and restart work here{what}"), given_up)
    } else {
        let what: Vec<&str> = no.iter().map(|finding| finding.probe).collect();
        (format!("Checkpoint and restart do not both work here, for want of {}", what.join(", ")), no)
    };
    let mut options: Vec<&str> = about.iter().map(|finding| finding.container_option).collect();
    options.sort_unstable();
    options.dedup();
    options.retain(|option| !option.is_empty());
    if !options.is_empty() {
        text.push_str(&format!("; in a container add {}", options.join(" ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_probe_answers_with_what_was_tried_and_what_to_do_when_it_is_not_ok() {
        let dir = tempfile::tempdir().unwrap();
        let findings = examine(dir.path());
        assert!(findings.len() >= 22);
        for finding in &findings {
            assert!(!finding.tried.is_empty() && !finding.found.is_empty(), "{}", finding.probe);
            assert_eq!(finding.state == State::Ok, finding.advice.is_empty(), "{}: {}", finding.probe, finding.found);
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
    }

    #[test]
    fn only_a_required_probe_that_says_no_makes_it_impossible() {
        let finding = |required: bool, state: State| {
            let finding = Finding::new("x", "y", state, "z", "do");
            if required { finding.required() } else { finding }
        };
        assert!(can_work(&[finding(true, State::Ok), finding(false, State::No), finding(true, State::Degraded)]));
        assert!(!can_work(&[finding(true, State::No)]));
    }

    #[test]
    fn the_last_line_says_what_is_given_up_and_how_to_have_it() {
        let finding = |state: State| Finding::new("x", "y", state, "z", "do").gives_up("it (x)", "--cap-add X");
        assert_eq!(summary(&[finding(State::Ok)]), "Checkpoint and restart work here");
        let degraded = [finding(State::Degraded), finding(State::Degraded).gives_up("that (y)", "--cap-add X")];
        let text = "Checkpoint and restart work here; given up: it (x), that (y); in a container add --cap-add X";
        assert_eq!(summary(&degraded), text);
        let text = "Checkpoint and restart do not both work here, for want of x; in a container add --cap-add X";
        assert_eq!(
            summary(&[finding(State::No).required(), finding(State::Degraded).gives_up("y", "--cap-add Y")]),
            text
        );
    }
}
