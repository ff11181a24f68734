//! Undirected graphs without loops: the neighbours of all vertices in one array, each vertex's in ascending order. This is
//! the form in which the kernels get them, and why a search for a neighbour can be a binary one.

use std::ops::Range;

use rayon::prelude::*;

/// Fewer neighbours than this are looked through one by one.
const FEW_NEIGHBOURS: usize = 16;

/// An undirected graph without loops.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Graph {
    offsets: Vec<u32>,
    neighbours: Vec<u32>,
}

/// What describes a graph in a line.
#[derive(Clone, PartialEq, Debug)]
pub struct Statistics {
    /// Vertices.
    pub vertices: u32,
    /// Edges, each counted once.
    pub edges: u32,
    /// The fewest neighbours of a vertex.
    pub degree_min: u32,
    /// The most.
    pub degree_max: u32,
    /// Parts that no edge connects.
    pub components: u32,
}

impl Graph {
    /// A graph of these edges; loops and repetitions are left out.
    ///
    /// # Panics
    /// If an edge names a vertex that is not there, or there are 2^31 edges.
    pub fn new(vertices: u32, edges: impl IntoIterator<Item = (u32, u32)>) -> Self {
        let mut directed: Vec<(u32, u32)> =
            edges.into_iter().filter(|(a, b)| a != b).flat_map(|(a, b)| [(a, b), (b, a)]).collect();
        directed.par_sort_unstable();
        directed.dedup();
        assert!(u32::try_from(directed.len()).is_ok(), "{} edges are too many", directed.len() / 2);
        let mut offsets = vec![0; vertices as usize + 1];
        directed.iter().for_each(|(from, _)| offsets[*from as usize + 1] += 1);
        (1..offsets.len()).for_each(|at| offsets[at] += offsets[at - 1]);
        let neighbours: Vec<u32> = directed.into_iter().map(|(_, to)| to).collect();
        assert!(neighbours.iter().all(|to| *to < vertices), "an edge leads out of the graph");
        Self { offsets, neighbours }
    }

    /// How many vertices there are.
    pub fn vertices(&self) -> u32 {
        self.offsets.len() as u32 - 1
    }

    /// All of them.
    pub fn all(&self) -> Range<u32> {
        0..self.vertices()
    }

    /// A vertex's neighbours, in ascending order.
    pub fn neighbours(&self, vertex: u32) -> &[u32] {
        let at = vertex as usize;
        &self.neighbours[self.offsets[at] as usize..self.offsets[at + 1] as usize]
    }

    /// Where each vertex's neighbours begin in [`Self::all_neighbours`], and behind the last one; as kernels read it.
    pub fn offsets(&self) -> &[u32] {
        &self.offsets
    }

    /// The neighbours of all vertices, one vertex after the other; as kernels read them.
    pub fn all_neighbours(&self) -> &[u32] {
        &self.neighbours
    }

    /// How many a vertex has.
    pub fn degree(&self, vertex: u32) -> u32 {
        self.neighbours(vertex).len() as u32
    }

    /// Whether an edge connects the two.
    pub fn is_edge(&self, a: u32, b: u32) -> bool {
        let (of_a, of_b) = (self.neighbours(a), self.neighbours(b));
        let (fewer, wanted) = if of_a.len() < of_b.len() { (of_a, b) } else { (of_b, a) };
        if fewer.len() < FEW_NEIGHBOURS { fewer.contains(&wanted) } else { fewer.binary_search(&wanted).is_ok() }
    }

    /// Each edge once, from the smaller vertex.
    pub fn edges(&self) -> impl Iterator<Item = (u32, u32)> {
        self.all().flat_map(|a| self.neighbours(a).iter().filter(move |b| a < **b).map(move |b| (a, *b)))
    }

    /// The same graph with other numbers: vertex `order[new]` becomes `new`.
    pub fn reordered(&self, order: &[u32]) -> Self {
        let mut number = vec![0; order.len()];
        (0..).zip(order).for_each(|(new, old)| number[*old as usize] = new);
        Self::new(self.vertices(), self.edges().map(|(a, b)| (number[a as usize], number[b as usize])))
    }

    /// Counts what describes the graph.
    pub fn statistics(&self) -> Statistics {
        let degrees = || self.all().map(|vertex| self.degree(vertex));
        Statistics {
            vertices: self.vertices(),
            edges: self.neighbours.len() as u32 / 2,
            degree_min: degrees().min().unwrap_or(0),
            degree_max: degrees().max().unwrap_or(0),
            components: self.components(),
        }
    }

    fn components(&self) -> u32 {
        let mut seen = vec![false; self.vertices() as usize];
        let mut components = 0;
        for vertex in self.all() {
            let mut open = vec![vertex];
            components += u32::from(!seen[vertex as usize]);
            while let Some(vertex) = open.pop() {
                if !std::mem::replace(&mut seen[vertex as usize], true) {
                    open.extend(self.neighbours(vertex).iter().filter(|next| !seen[**next as usize]));
                }
            }
        }
        components
    }
}
