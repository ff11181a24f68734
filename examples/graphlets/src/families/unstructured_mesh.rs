//! The events of an exchange over an unstructured mesh: each rank sends to all ranks whose parts of the mesh touch its own,
//! and then receives from all of them, in the order of arrival; so again and again.
//!
//! Vertices and edges are those of the message race: events rank by rank, program order, messages. Who touches whom is a
//! triangulation of random points, one for each rank.

use super::{ranks, triangulation};
use crate::graph::Graph;

pub fn generate(vertices: u32, random: &mut fastrand::Rng) -> Graph {
    let ranks = ranks(vertices);
    let touching = Graph::new(ranks, triangulation::edges(&triangulation::random_points(ranks, random)));
    let messages: u32 = touching.all().map(|rank| touching.degree(rank)).sum();
    let iterations = ((vertices + messages) / (2 * messages)).max(1);
    let first_events = first_events(&touching, iterations);
    let mut edges: Vec<(u32, u32)> =
        first_events.windows(2).flat_map(|events| (events[0]..events[1] - 1).map(|event| (event, event + 1))).collect();
    let first_of = |rank: u32, iteration: u32| first_events[rank as usize] + iteration * 2 * touching.degree(rank);
    for iteration in 0..iterations {
        for receiver in touching.all() {
            let mut senders = touching.neighbours(receiver).to_vec();
            random.shuffle(&mut senders);
            let first_receive = first_of(receiver, iteration) + touching.degree(receiver);
            edges.extend((first_receive..).zip(senders).map(|(receive, sender)| {
                let place = touching.neighbours(sender).partition_point(|rank| *rank < receiver);
                (first_of(sender, iteration) + place as u32, receive)
            }));
        }
    }
    Graph::new(2 * messages * iterations, edges)
}

/// The first event of each rank, and one past the last of all.
fn first_events(touching: &Graph, iterations: u32) -> Vec<u32> {
    let mut next = 0;
    let mut first_events = vec![0];
    for rank in touching.all() {
        next += 2 * touching.degree(rank) * iterations;
        first_events.push(next);
    }
    first_events
}
