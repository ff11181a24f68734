//! What a checkpoint adds to its lineage.

use super::{
    Error, Result, Source,
    forest::{Forest, RegionShape},
};

/// How differences are found. Each finds at least what those before it find, and costs more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Method {
    /// Everything is stored.
    Full,
    /// Chunks that are not what they were at the checkpoint before.
    Basic,
    /// Of these, the ones that were never seen in the lineage; references to the others.
    List,
    /// The same with one entry for neighbours, by trees over the chunks.
    Tree,
}

impl Method {
    /// All of them.
    pub const EVERY: [Self; 4] = [Self::Full, Self::Basic, Self::List, Self::Tree];
}

/// A node whose chunks occurred before, in the same order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shift {
    /// The node, numbered through the trees of this checkpoint.
    pub node: u32,
    /// The node with the same bytes.
    pub source: Source,
}

/// Which bytes are stored, and where the others are.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum Body {
    /// All bytes are stored.
    #[default]
    Full,
    /// Those of the chunks whose bit is set, counted through all regions; the others are as they were.
    Changed(Vec<u64>),
    /// Those of `firsts`; those of `shifts` are elsewhere; the others are as they were.
    Nodes {
        /// Nodes all of whose chunks occur for the first time, in the order of their bytes.
        firsts: Vec<u32>,
        /// Nodes whose chunks occurred before, by the checkpoint they refer to, then in the order of their bytes.
        shifts: Vec<Shift>,
    },
}

/// All of a difference but its data.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Head {
    /// The number of the checkpoint.
    pub checkpoint: u32,
    /// The checkpoint before, from which this one differs. None when every chunk is stored or referred to.
    pub previous: Option<u32>,
    /// The length of a chunk in bytes; the last one of a region may be shorter.
    pub chunk_bytes: u32,
    /// All regions of the checkpoint.
    pub regions: Vec<RegionShape>,
    /// Which bytes are stored.
    pub body: Body,
    /// How many bytes are stored.
    pub data_bytes: u64,
}

/// What a checkpoint adds to its lineage.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Difference {
    /// What the data are.
    pub head: Head,
    /// The bytes that are stored, in the order of regions and of their bytes.
    pub data: Vec<u8>,
}

impl Head {
    /// Bytes of what says where bytes are: regions and body, without the header, which is as long for all.
    pub fn metadata_bytes(&self) -> usize {
        let body = match &self.body {
            Body::Full => 0,
            Body::Changed(bits) => bits.len() * 8,
            Body::Nodes { firsts, shifts } => {
                let mut checkpoints: Vec<u32> = shifts.iter().map(|shift| shift.source.checkpoint).collect();
                checkpoints.sort_unstable();
                checkpoints.dedup();
                firsts.len() * 4 + shifts.len() * 8 + checkpoints.len() * 8
            }
        };
        self.regions.len() * 16 + body
    }

    pub(super) fn forest(&self) -> Result<Forest> {
        Forest::new(self.chunk_bytes, self.regions.iter().copied())
    }

    pub(super) fn corrupt(&self, what: impl Into<String>) -> Error {
        Error::Corrupt { checkpoint: self.checkpoint, what: what.into() }
    }
}
