//! Counting and studying on a device, beside the same on the cores.
#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "../../../kernels/tests/driver/mod.rs"]
mod driver;

use std::{fs, ops::Range, path::Path, process::Command};

use graphlets::{
    counting::{Counter, Device, Threads},
    families::Family,
    graph::Graph,
    machinery::Machinery,
    study::{COLUMNS, Plan, Subject},
};

/// The driver, which has this program's kernel too where it runs on the CPU.
fn driver_path() -> &'static Path {
    driver::path_with(&[concat!(env!("CARGO_MANIFEST_DIR"), "/cuda/on_cpu.cc")])
}

/// Counts these roots on the cores and on the device, and compares after each of the ranges.
fn compare(graph: &Graph, ranges: &[Range<u32>]) {
    let (mut cores, mut device) = (Threads::new(graph), Device::new(driver_path(), graph).unwrap());
    assert!(device.counters().unwrap().iter().all(|counter| *counter == 0), "not zero at first");
    for roots in ranges {
        cores.advance(roots.clone()).unwrap();
        device.advance(roots.clone()).unwrap();
        assert!(device.counters().unwrap() == cores.counters().unwrap(), "after {roots:?}");
    }
}

#[test]
fn every_family_has_the_counters_on_a_device_that_it_has_on_the_cores() {
    for family in Family::EVERY {
        let graph = family.generate(700, 2);
        let end = graph.vertices();
        compare(&graph, &[0..1, 1..1, 1..130, 130..end - 1, end - 1..end]);
    }
}

#[test]
fn hubs_cliques_and_lonely_vertices_are_counted_alike() {
    // More neighbours than are looked through one by one; all graphlets; and roots without a neighbour.
    let wheel = (1..=60).flat_map(|rim| [(0, rim), (rim, rim % 60 + 1)]);
    let clique = (70..80).flat_map(|a| (70..a).map(move |b| (b, a)));
    let graph = Graph::new(90, wheel.chain(clique));
    compare(&graph, &[60..70, 80..90, 0..60, 70..80]);
    compare(&Graph::new(3, []), &[0..2, 2..3]);
}

fn table(machinery: Machinery, states: Option<&Path>) -> Vec<Vec<String>> {
    let plan = Plan {
        chunks: vec![64, 292],
        checkpoints: 4,
        frequencies: vec![2],
        frequency_chunks: vec![64],
        repeats: 1,
        machinery,
        states: states.map(Into::into),
    };
    let family = Family::MessageRace;
    let graph = family.generate(600, 1);
    let mut table = Vec::new();
    plan.study(&Subject { family, order: "natural", graph: &graph }, &mut table).unwrap();
    let text = String::from_utf8(table).unwrap();
    text.lines().map(|line| line.split(',').map(Into::into).collect()).collect()
}

fn device(bytes_max: Option<u64>) -> Machinery {
    Machinery::Device { driver: driver_path().into(), bytes_max }
}

fn column(name: &str) -> usize {
    COLUMNS.split(',').position(|column| column == name).unwrap()
}

#[test]
fn a_study_of_a_device_stores_what_one_of_the_cores_stores() {
    let (cores, device) = (table(Machinery::Cores, None), table(device(None), None));
    assert_eq!(cores.len(), device.len());
    for (cores, device) in cores.iter().zip(&device) {
        // All but the times, which are no part of what is stored, and the memory of the device.
        let stored = |line: &[String]| [&line[..column("seconds")], &line[column("ratio_with_first")..][..1]].concat();
        assert_eq!(stored(cores), stored(device));
        assert_eq!(cores[column("peak")], "");
        let peak = &device[column("peak")];
        match &device[column("method")][..] {
            "zstd-1" | "lz4" => assert_eq!(peak, ""),
            _ => assert!(peak.parse::<f64>().unwrap() > 1.0, "{device:?}"),
        }
    }
}

#[test]
fn the_states_are_written_as_the_bytes_that_the_checkpoints_are_of() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("states-{}", std::process::id()));
    table(Machinery::Cores, Some(&folder));
    let index = fs::read_to_string(folder.join("message-race-natural.states.csv")).unwrap();
    let lines: Vec<Vec<&str>> = index.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines[0], ["graph", "order", "vertices", "edges", "checkpoints", "file"]);
    assert_eq!(lines.iter().filter(|line| line[4] == "2").count(), 2);
    assert_eq!(lines.iter().filter(|line| line[4] == "4").count(), 4);
    let graph = Family::MessageRace.generate(600, 1);
    let mut all = Threads::new(&graph);
    all.advance(graph.all()).unwrap();
    let expected: Vec<u8> = all.counters().unwrap().iter().flat_map(|counter| counter.to_le_bytes()).collect();
    assert!(fs::read(folder.join(lines.last().unwrap()[5])).unwrap() == expected);
    fs::remove_dir_all(&folder).unwrap();
}

/// What the program says to its outputs; it must end as said.
fn graphlets(succeeds: bool, bound: Option<&str>, arguments: &[&str]) -> (String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_graphlets"));
    command.args(arguments).env_remove("CKPT_DEVICE_MEMORY").envs(bound.map(|bound| ("CKPT_DEVICE_MEMORY", bound)));
    let output = command.output().unwrap();
    let [table, errors] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert_eq!(output.status.success(), succeeds, "{errors}");
    (table, errors)
}

#[test]
fn the_digests_of_a_device_are_those_of_the_cores() {
    let digests = |driver: &[&str]| {
        let count = ["count", "--family", "road", "--vertices", "2000", "--checkpoints", "3"];
        let (lines, _) = graphlets(true, None, &[&count, driver].concat());
        lines.lines().map(|line| line.split_once(" after ").unwrap().0.to_owned()).collect::<Vec<_>>()
    };
    let cores = digests(&[]);
    assert_eq!(cores.len(), 3);
    assert_eq!(digests(&["--driver", driver_path().to_str().unwrap()]), cores);
}

#[test]
fn a_bound_of_device_memory_is_kept_to_and_what_it_cost_is_said() {
    let study = |succeeds, bound| {
        let small = ["study", "--families", "delaunay", "--vertices", "3000", "--orders", "natural", "--chunks", "64"];
        let few = ["--checkpoints", "2", "--frequencies", "2", "--frequency-chunks", "64", "--repeats", "1"];
        let driver = ["--driver", driver_path().to_str().unwrap()];
        graphlets(succeeds, Some(bound), &[&small[..], &few, &driver].concat())
    };
    let (table, errors) = study(true, "1G");
    assert_eq!((table.lines().count(), errors), (7, String::new()));
    // The ring takes 64 MiB of it, and the digests of the chunks alone 220 KB.
    let (table, errors) = study(true, "65M");
    assert_eq!(table.lines().count(), 7);
    assert!(errors.contains("chunks of 64 B, checkpoint 0: taken by "), "{errors}");
    assert!(errors.contains("Tree could need "), "{errors}");
    let (table, errors) = study(false, "64 MB");
    assert!(table.is_empty() && errors.contains("CKPT_DEVICE_MEMORY is \"64 MB\""), "{errors}");
}

#[test]
fn a_device_that_is_not_there_is_named() {
    let (_, errors) = graphlets(false, None, &["count", "--family", "road", "--driver", "/nowhere/libcuda.so.1"]);
    assert!(errors.contains("/nowhere/libcuda.so.1"), "{errors}");
}
