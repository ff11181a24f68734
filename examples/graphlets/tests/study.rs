//! The table of a small study.

#![allow(clippy::unwrap_used, reason = "a test")]

use graphlets::{
    families::Family,
    machinery::Machinery,
    study::{COLUMNS, Plan, Subject},
};

/// The lines by graph, each as its values.
fn table(family: Family) -> Vec<Vec<String>> {
    let plan = Plan {
        chunks: vec![64, 292],
        checkpoints: 4,
        frequencies: vec![2, 4],
        frequency_chunks: vec![128],
        repeats: 2,
        machinery: Machinery::Cores,
        states: None,
    };
    let graph = family.generate(600, 1);
    let mut table = Vec::new();
    plan.study(&Subject { family, order: "natural", graph: &graph }, &mut table).unwrap();
    let text = String::from_utf8(table).unwrap();
    text.lines().map(|line| line.split(',').map(Into::into).collect()).collect()
}

fn column(name: &str) -> usize {
    COLUMNS.split(',').position(|column| column == name).unwrap()
}

fn stored(line: &[String]) -> u64 {
    ["data_bytes", "metadata_bytes"].map(|name| line[column(name)].parse::<u64>().unwrap()).iter().sum()
}

#[test]
fn every_series_has_a_line() {
    for family in Family::EVERY {
        let table = table(family);
        assert!(table.iter().all(|line| line.len() == COLUMNS.split(',').count()));
        let names: Vec<String> = table.iter().map(|line| [4, 5, 6].map(|at| &line[at][..]).join(" ")).collect();
        let expected = [
            " 2 full",
            " 2 zstd-1",
            " 2 lz4",
            "128 2 basic",
            "128 2 list",
            "128 2 tree",
            " 4 full",
            " 4 zstd-1",
            " 4 lz4",
            "64 4 basic",
            "64 4 list",
            "64 4 tree",
            "128 4 basic",
            "128 4 list",
            "128 4 tree",
            "292 4 basic",
            "292 4 list",
            "292 4 tree",
        ];
        assert_eq!(names, expected);
    }
}

#[test]
fn a_full_series_stores_all_of_its_memory_and_the_others_less() {
    for line in table(Family::Road) {
        let original: u64 = line[column("original_bytes")].parse().unwrap();
        let checkpoints: u64 = line[column("checkpoints")].parse().unwrap();
        let vertices: u64 = line[column("vertices")].parse().unwrap();
        assert_eq!(original, (checkpoints - 1) * vertices * 292);
        match &line[column("method")][..] {
            "full" => assert_eq!(line[column("data_bytes")], line[column("original_bytes")]),
            _ => assert!(stored(&line) < original, "{line:?}"),
        }
    }
}
