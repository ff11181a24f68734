//! The 30 graphlets in the order that Pržulj gave them ("Biological network comparison using graphlet degree distribution",
//! Bioinformatics 2007), and the orbits of each.
//!
//! Two vertices are in one orbit if renumbering the vertices can put one in the place of the other and leave the edges as they
//! are. The orbits of a graphlet are numbered by the sum of the degrees of a vertex and its neighbours, in ascending order:
//! no two have the same, and all the published numbers are of this order.

use super::edge_bit;

/// By their edges.
pub const GRAPHLETS: [&str; 30] = [
    "01",
    "01 12",
    "01 12 02",
    "01 12 23",
    "01 02 03",
    "01 12 23 03",
    "01 12 02 03",
    "01 12 23 03 02",
    "01 02 03 12 13 23",
    "01 12 23 34",
    "01 12 23 24",
    "01 02 03 04",
    "01 12 02 03 14",
    "01 12 02 03 34",
    "01 12 02 03 04",
    "01 12 23 34 04",
    "01 12 23 03 04",
    "01 12 23 03 02 04",
    "01 12 02 03 34 04",
    "01 12 23 03 02 14",
    "02 03 04 12 13 14",
    "01 12 23 34 04 14",
    "01 02 03 04 12 13 14",
    "01 02 03 12 13 23 04",
    "01 12 23 04 14 24 34",
    "02 03 04 13 14 23 24",
    "02 03 04 13 14 23 24 34",
    "01 12 23 03 04 14 24 34",
    "02 03 04 12 13 14 23 24 34",
    "01 02 03 04 12 13 14 23 24 34",
];

/// A small graph.
pub struct Graphlet {
    pub vertices: usize,
    edges: Vec<(usize, usize)>,
}

impl Graphlet {
    /// A graph of edges like those of [`GRAPHLETS`].
    pub fn parse(text: &str) -> Self {
        let digit = |digit: u8| usize::from(digit - b'0');
        let edges: Vec<_> =
            text.split(' ').map(|edge| (digit(edge.as_bytes()[0]), digit(edge.as_bytes()[1]))).collect();
        let vertices = 1 + edges.iter().map(|(_, b)| *b).max().unwrap_or(0);
        Self { vertices, edges }
    }

    /// All ways to number the vertices: the new number of each.
    pub fn numberings(&self) -> Vec<Vec<usize>> {
        let mut all = vec![vec![]];
        for next in 0..self.vertices {
            let inserted = |order: &Vec<usize>, at: usize| {
                let mut order = order.clone();
                order.insert(at, next);
                order
            };
            all = all.iter().flat_map(|order| (0..=next).map(move |at| inserted(order, at))).collect();
        }
        all
    }

    /// The edges in bits when the vertices have these numbers.
    pub fn edges_in(&self, numbers: &[usize]) -> u32 {
        let bit = |(a, b): &(usize, usize)| edge_bit(numbers[*a].min(numbers[*b]), numbers[*a].max(numbers[*b]));
        self.edges.iter().map(bit).sum()
    }

    /// The orbit of each vertex; the first one is `next`.
    pub fn orbits(&self, next: u8) -> Vec<u8> {
        let own: Vec<usize> = (0..self.vertices).collect();
        let edges = self.edges_in(&own);
        let same: Vec<_> = self.numberings().into_iter().filter(|numbers| self.edges_in(numbers) == edges).collect();
        // Who stands for an orbit is the smallest vertex that one of its vertices can be exchanged with.
        let first = |vertex: usize| same.iter().map(|numbers| numbers[vertex]).min().unwrap_or(vertex);
        let mut firsts: Vec<usize> = own.iter().copied().filter(|vertex| first(*vertex) == *vertex).collect();
        firsts.sort_by_key(|vertex| self.degree_sum(*vertex));
        let place = |vertex: usize| firsts.iter().take_while(|other| **other != first(vertex)).count() as u8;
        own.iter().map(|vertex| next + place(*vertex)).collect()
    }

    fn neighbours(&self, vertex: usize) -> impl Iterator<Item = usize> {
        let other = move |(a, b): &(usize, usize)| match vertex {
            _ if *a == vertex => Some(*b),
            _ if *b == vertex => Some(*a),
            _ => None,
        };
        self.edges.iter().filter_map(other)
    }

    fn degree_sum(&self, vertex: usize) -> usize {
        self.neighbours(vertex).chain([vertex]).map(|near| self.neighbours(near).count()).sum()
    }
}
