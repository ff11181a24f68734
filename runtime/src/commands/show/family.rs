//! The processes of a job as a tree, for people.

use super::view::ProcessView;
use crate::units::printable;

/// A line for each process, and for each that has ended and was not waited for, below its parent.
pub fn drawn(processes: &[ProcessView]) -> String {
    let roots = processes.iter().filter(|process| process.parent.is_none());
    roots.map(|root| format!("{}\n{}", line(root), below(root, processes, ""))).collect()
}

fn line(process: &ProcessView) -> String {
    format!("{} {}", process.pid, printable(&process.command_line.join(" ")))
}

fn below(process: &ProcessView, all: &[ProcessView], indent: &str) -> String {
    let children: Vec<&ProcessView> = all.iter().filter(|other| other.parent == Some(process.pid)).collect();
    let mut left = children.len() + process.ended.len();
    let mut text = String::new();
    let mut add = |line: String, below: &dyn Fn(&str) -> String| {
        left -= 1;
        let (branch, bar) = if left == 0 { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        text.push_str(&format!("{indent}{branch}{line}\n{}", below(&format!("{indent}{bar}"))));
    };
    for child in children {
        add(line(child), &|indent| self::below(child, all, indent));
    }
    for ended in &process.ended {
        let line = format!("{} {} ({}, not waited for)", ended.pid, printable(&ended.name), ended.how);
        add(line, &|_| String::new());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::view::EndedView;
    use super::*;

    fn process(pid: i32, parent: Option<i32>, command: &str) -> ProcessView {
        ProcessView {
            pid,
            parent,
            executable: String::new(),
            command_line: command.split(' ').map(str::to_owned).collect(),
            ended: Vec::new(),
            cwd: None,
            threads: None,
            uid: None,
            gid: None,
        }
    }

    #[test]
    fn each_process_stands_below_its_parent() {
        let mut all = vec![
            process(10, None, "make -j4"),
            process(11, Some(10), "sh -c cc"),
            process(12, Some(11), "cc\u{1b}"),
            process(13, Some(10), "sleep 1"),
        ];
        all[0].ended.push(EndedView { pid: 14, name: "true".into(), how: "exit status 0".into() });
        let expected = "\
10 make -j4
├─ 11 sh -c cc
│  └─ 12 cc\u{fffd}
├─ 13 sleep 1
└─ 14 true (exit status 0, not waited for)
";
        assert_eq!(drawn(&all), expected);
    }
}
