//! `/proc/sysvipc`: the System V objects of this ipc namespace, whoever may use them.

use std::fs;
use std::io::ErrorKind;

use crate::error::{Error, Result};

/// Name of a mapping of System V shared memory, before its key.
pub const MAPPED_NAME: &[u8] = b"/SYSV";

/// The three kinds of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Shared memory.
    Memory,
    /// Sets of semaphores.
    Semaphores,
    /// Message queues.
    Queue,
}

impl Kind {
    /// What the kernel calls it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Memory => "shm",
            Kind::Semaphores => "sem",
            Kind::Queue => "msg",
        }
    }

    /// For people, of one with this id.
    pub fn shown(self, id: i32) -> String {
        let what = match self {
            Kind::Memory => "shared memory",
            Kind::Semaphores => "semaphores",
            Kind::Queue => "message queue",
        };
        format!("System V {what} {id}")
    }

    fn id_column(self) -> &'static str {
        match self {
            Kind::Memory => "shmid",
            Kind::Semaphores => "semid",
            Kind::Queue => "msqid",
        }
    }
}

/// One object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its id.
    pub id: i32,
    columns: Vec<(String, i64)>,
}

impl Row {
    /// The number in the column called `name`; 0 if there is none.
    pub fn number(&self, name: &str) -> i64 {
        self.columns.iter().find(|(column, _)| column == name).map_or(0, |(_, value)| *value)
    }

    /// Its key.
    pub fn key(&self) -> i32 {
        self.number("key") as i32
    }

    /// Permission bits, and those above them.
    pub fn mode(&self) -> u32 {
        let digits = self.number("perms").to_string();
        u32::from_str_radix(&digits, 8).unwrap_or(0)
    }
}

/// All objects of a kind; none in a kernel without them.
pub fn rows(kind: Kind) -> Result<Vec<Row>> {
    let path = format!("/proc/sysvipc/{}", kind.name());
    match fs::read_to_string(&path) {
        Ok(text) => Ok(parse(&text, kind.id_column())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(source) => Err(Error::io("read", path, source)),
    }
}

fn parse(text: &str, id_column: &str) -> Vec<Row> {
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap_or_default().split_whitespace().collect();
    let row = |line: &str| {
        let numbers = line.split_whitespace().filter_map(|word| word.parse().ok());
        let columns: Vec<(String, i64)> = names.iter().map(|&name| name.to_owned()).zip(numbers).collect();
        let id = columns.iter().find(|(name, _)| name == id_column)?.1 as i32;
        Some(Row { id, columns })
    };
    lines.filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_known_by_their_names() {
        let text = "       key      shmid perms       size  cpid\n     -4660         50  1600      10000   572957\n";
        let rows = parse(text, "shmid");
        assert_eq!((rows[0].id, rows[0].key(), rows[0].mode(), rows[0].number("cpid")), (50, -4660, 0o1600, 572_957));
        assert!(parse("", "shmid").is_empty());
    }
}
