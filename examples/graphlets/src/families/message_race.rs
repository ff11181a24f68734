//! The events of a message race: all ranks but the first send, the first receives from anyone in the order of arrival.
//!
//! A vertex is a send or a receive, numbered rank by rank in program order. An edge leads from each event to the next one of
//! its rank, and from each send to its receive. That gives V - ranks + V/2 edges, which fits the figures of the paper's
//! graph with 256 ranks to the last edge.

use super::ranks;
use crate::graph::Graph;

pub fn generate(vertices: u32, random: &mut fastrand::Rng) -> Graph {
    let senders = ranks(vertices) - 1;
    let rounds = (vertices / 2).div_ceil(senders);
    let messages = senders * rounds;
    let send = |sender: u32, round: u32| messages + sender * rounds + round;
    let chain = |first: u32, events: u32| (first..first + events - 1).map(|event| (event, event + 1));
    let mut edges: Vec<(u32, u32)> = chain(0, messages).collect();
    edges.extend((0..senders).flat_map(|sender| chain(send(sender, 0), rounds)));
    edges.extend((0..).zip(arrivals(senders, rounds, random)).map(|(at, (sender, round))| (at, send(sender, round))));
    Graph::new(2 * messages, edges)
}

/// Senders and rounds of all messages, as they arrive. Each sender takes anything between no time and twice the mean for a
/// message, so that it gets ahead of others or falls behind.
fn arrivals(senders: u32, rounds: u32, random: &mut fastrand::Rng) -> Vec<(u32, u32)> {
    let mut arrivals = Vec::with_capacity(senders as usize * rounds as usize);
    for sender in 0..senders {
        let mut time = 0.0;
        for round in 0..rounds {
            time += 2.0 * random.f64();
            arrivals.push((time, sender, round));
        }
    }
    arrivals.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.2.cmp(&b.2)));
    arrivals.into_iter().map(|(_, sender, round)| (sender, round)).collect()
}
