//! A store as `ckpt list --json` and `ckpt show --json` describe it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::command::Ckpt;
use crate::processes;
use crate::scene::Scene;

/// How long a checkpoint taken by signal may need until it is sealed.
const SEAL_LIMIT: Duration = Duration::from_secs(90);

/// A store's directory.
#[derive(Clone, Debug)]
pub struct Store {
    path: PathBuf,
}

/// A row of `ckpt list --json`: the fields that scripts depend on.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the names are the contract")]
pub struct Row {
    pub id: u64,
    pub job: String,
    pub name: String,
    pub sealed_unix_s: Option<u64>,
    pub processes: u64,
    pub memory_bytes: u64,
    pub new_bytes: u64,
    pub pending_bytes: u64,
    pub behind_bytes: u64,
    pub stop_ms: f64,
    pub stop_phases_ms: BTreeMap<String, f64>,
    pub total_ms: f64,
    pub state: String,
    pub reason: String,
}

impl AsRef<Path> for Store {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

impl Store {
    /// The store in `path`.
    pub fn at(path: impl Into<PathBuf>) -> Store {
        Store { path: path.into() }
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All attempts, in the order of `ckpt list`.
    #[track_caller]
    pub fn rows(&self, scene: &Scene) -> Vec<Row> {
        let answer = Ckpt::new(scene, [Path::new("list"), &self.path, Path::new("--json")]).call().succeeded();
        let parsed: Value = serde_json::from_str(&answer.stdout).expect("list --json prints JSON");
        parsed.as_array().expect("list --json is one array").iter().map(row).collect()
    }

    /// The attempts that became checkpoints.
    pub fn sealed(&self, scene: &Scene) -> Vec<Row> {
        self.rows_if_any(scene).into_iter().filter(|row| row.state == "sealed").collect()
    }

    /// All attempts; none in a store that is not there, or just being made and not one yet.
    pub fn rows_if_any(&self, scene: &Scene) -> Vec<Row> {
        if !self.path.exists() {
            return Vec::new();
        }
        let answer = Ckpt::new(scene, [Path::new("list"), &self.path, Path::new("--json")]).call();
        if answer.code == 0 { self.rows(scene) } else { Vec::new() }
    }

    /// Waits until there are `count` checkpoints and gives the newest.
    #[track_caller]
    pub fn wait_for_sealed(&self, scene: &Scene, count: usize) -> Row {
        let what = format!("{count} sealed checkpoints in {}", self.path.display());
        processes::wait_until(&what, SEAL_LIMIT, || self.sealed(scene).len() >= count);
        self.sealed(scene).into_iter().max_by_key(|row| row.id).expect("there is at least one")
    }

    /// `ckpt show DIR ID --json`.
    #[track_caller]
    pub fn show(&self, scene: &Scene, id: u64) -> Value {
        let answer = Ckpt::new(scene, ["show", &self.path.to_string_lossy(), &id.to_string(), "--json"]).call();
        serde_json::from_str(&answer.succeeded().stdout).expect("show --json prints JSON")
    }

    /// Bytes of all files in the directory but the log, in which agents write when they like.
    pub fn bytes(&self) -> u64 {
        let is_agents = |path: &Path| path == self.path.join("log") || path.starts_with(self.path.join("agents"));
        bytes_below(&self.path, &|path| !is_agents(path))
    }

    /// Copies the store to another directory.
    pub fn copied_to(&self, path: &Path) -> Store {
        copy_tree(&self.path, path);
        Store::at(path)
    }
}

#[track_caller]
fn row(value: &Value) -> Row {
    let field = |name: &str| value.get(name).unwrap_or_else(|| panic!("no field {name} in {value}"));
    let number = |name: &str| field(name).as_u64().unwrap_or_else(|| panic!("{name} is no integer in {value}"));
    let fraction = |name: &str| field(name).as_f64().unwrap_or(0.0);
    let text = |name: &str| field(name).as_str().unwrap_or_default().to_owned();
    Row {
        id: number("id"),
        job: text("job"),
        name: text("name"),
        sealed_unix_s: field("sealed_unix_s").as_u64(),
        processes: number("processes"),
        memory_bytes: number("memory_bytes"),
        new_bytes: number("new_bytes"),
        pending_bytes: number("pending_bytes"),
        behind_bytes: number("behind_bytes"),
        stop_ms: fraction("stop_ms"),
        stop_phases_ms: serde_json::from_value(field("stop_phases_ms").clone()).expect("phases are numbers"),
        total_ms: fraction("total_ms"),
        state: text("state"),
        reason: text("reason"),
    }
}

fn bytes_below(path: &Path, counts: &dyn Fn(&Path) -> bool) -> u64 {
    let Ok(entries) = std::fs::read_dir(path) else { return 0 };
    let bytes = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => bytes_below(&entry.path(), counts),
        Ok(found) if counts(&entry.path()) => found.len(),
        _ => 0,
    };
    entries.filter_map(Result::ok).map(bytes).sum()
}

/// Copies regular files and folders with their modes; sockets and the like are not part of a store's content.
fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("the copy's parent is writable");
    let mode = std::fs::metadata(from).expect("the store exists").permissions();
    std::fs::set_permissions(to, mode).expect("just made");
    for entry in std::fs::read_dir(from).expect("the store exists").filter_map(Result::ok) {
        let kind = entry.file_type().expect("it exists");
        let target = to.join(entry.file_name());
        if kind.is_dir() {
            copy_tree(&entry.path(), &target);
        } else if kind.is_file() {
            std::fs::copy(entry.path(), target).expect("a copy");
        }
    }
}
