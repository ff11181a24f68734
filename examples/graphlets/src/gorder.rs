//! An order of the vertices in which those that are looked at together lie together.
//!
//! After Wei et al., "Speedup Graph Processing by Graph Ordering" (SIGMOD 2016), as the paper prepares its graphs: the next
//! vertex is always the one that has most in common with the last five, counting edges to them and neighbours shared with
//! them. The scores change by one at a time, so the queue is a list for each score, and every change is a step to the next.
//!
//! Neighbours shared through a hub are not counted: they say little, and make the work quadratic in the hub's degree.

use std::collections::VecDeque;

use crate::graph::Graph;

/// How many vertices back the next one is compared with.
const WINDOW: usize = 5;
const NONE: u32 = u32::MAX;

/// The old numbers of the vertices in their new order.
pub fn gorder(graph: &Graph) -> Vec<u32> {
    let hub_degree = f64::from(graph.vertices()).sqrt().max(16.0) as u32;
    let mut queue = Queue::new(graph.vertices());
    let mut order = Vec::with_capacity(graph.vertices() as usize);
    let mut window = VecDeque::with_capacity(WINDOW + 1);
    while let Some(vertex) = queue.take() {
        order.push(vertex);
        window.push_back(vertex);
        for_related(graph, vertex, hub_degree, |related| queue.raise(related));
        if window.len() > WINDOW
            && let Some(gone) = window.pop_front()
        {
            for_related(graph, gone, hub_degree, |related| queue.lower(related));
        }
    }
    order
}

/// Names the neighbours of a vertex, and the neighbours of each of them.
fn for_related(graph: &Graph, vertex: u32, hub_degree: u32, mut related: impl FnMut(u32)) {
    for near in graph.neighbours(vertex) {
        related(*near);
        if graph.degree(*near) <= hub_degree {
            graph.neighbours(*near).iter().for_each(|far| related(*far));
        }
    }
}

/// The vertices that have no place yet: a doubly linked list for each score. Among equals the one that got its score last
/// comes first; at the beginning, the smallest.
struct Queue {
    /// The first vertex with each score.
    first: Vec<u32>,
    next: Vec<u32>,
    previous: Vec<u32>,
    /// NONE for those that have a place.
    score: Vec<u32>,
    /// No list above this one has anything in it.
    highest: usize,
}

impl Queue {
    fn new(vertices: u32) -> Self {
        let count = vertices as usize;
        let mut queue = Self {
            first: vec![NONE],
            next: vec![NONE; count],
            previous: vec![NONE; count],
            score: vec![0; count],
            highest: 0,
        };
        (0..vertices).rev().for_each(|vertex| queue.link(vertex));
        queue
    }

    /// Takes the vertex with the highest score out.
    fn take(&mut self) -> Option<u32> {
        while self.first[self.highest] == NONE && self.highest > 0 {
            self.highest -= 1;
        }
        let vertex = Some(self.first[self.highest]).filter(|vertex| *vertex != NONE)?;
        self.unlink(vertex);
        self.score[vertex as usize] = NONE;
        Some(vertex)
    }

    fn raise(&mut self, vertex: u32) {
        self.change(vertex, |score| score + 1);
    }

    fn lower(&mut self, vertex: u32) {
        self.change(vertex, |score| score - 1);
    }

    fn change(&mut self, vertex: u32, to: impl Fn(u32) -> u32) {
        if self.score[vertex as usize] != NONE {
            self.unlink(vertex);
            self.score[vertex as usize] = to(self.score[vertex as usize]);
            self.link(vertex);
        }
    }

    fn link(&mut self, vertex: u32) {
        let (at, score) = (vertex as usize, self.score[vertex as usize] as usize);
        if self.first.len() <= score {
            self.first.resize(score + 1, NONE);
        }
        let behind = std::mem::replace(&mut self.first[score], vertex);
        self.next[at] = behind;
        self.previous[at] = NONE;
        if behind != NONE {
            self.previous[behind as usize] = vertex;
        }
        self.highest = self.highest.max(score);
    }

    fn unlink(&mut self, vertex: u32) {
        let at = vertex as usize;
        let (previous, next) = (self.previous[at], self.next[at]);
        match previous {
            NONE => self.first[self.score[at] as usize] = next,
            _ => self.next[previous as usize] = next,
        }
        if next != NONE {
            self.previous[next as usize] = previous;
        }
    }
}
