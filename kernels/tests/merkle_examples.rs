//! Small histories whose differences are known by hand.
#![allow(clippy::unwrap_used, reason = "a test")]

use ckpt_kernels::{
    merkle::{Body, Difference, Engine, Lineage, Method, Region, Source},
    murmur3::murmur3,
};

/// A chunk of 32 bytes that no other value gives.
fn chunk(value: u32) -> [u8; 32] {
    std::array::from_fn(|at| value.to_le_bytes()[at % 4].wrapping_add(at as u8))
}

fn chunks(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| chunk(*value)).collect()
}

/// The differences of the states of one region, each restored as it was.
fn differences(method: Method, states: &[Vec<u8>]) -> Vec<Difference> {
    let (mut engine, mut lineage) = (Engine::new(32).unwrap(), Lineage::default());
    let differences: Vec<_> = (0..)
        .zip(states)
        .map(|(number, bytes)| {
            let mut difference = Difference::default();
            engine.difference(number, method, &[Region { id: 1, bytes }], &mut difference).unwrap();
            difference
        })
        .collect();
    differences.iter().for_each(|difference| lineage.add(difference.clone()).unwrap());
    for (number, state) in (0..).zip(states) {
        assert_eq!(lineage.restore(number).unwrap(), [(1, state.clone())], "checkpoint {number}");
    }
    differences
}

/// How many entries a difference has: first occurrences, and references.
fn entries(difference: &Difference) -> (usize, usize) {
    match &difference.head.body {
        Body::Nodes { firsts, shifts } => (firsts.len(), shifts.len()),
        body => panic!("{body:?}"),
    }
}

#[test]
fn the_example_of_the_papers_second_figure_has_three_entries_and_seven_without_the_tree() {
    let states = [chunks(&[0, 1, 2, 3, 4, 5, 6, 7]), chunks(&[10, 11, 12, 13, 4, 2, 10, 11])];
    let tree = differences(Method::Tree, &states);
    assert_eq!((entries(&tree[0]), entries(&tree[1])), ((1, 0), (1, 2)));
    assert_eq!(tree[1].data, chunks(&[10, 11, 12, 13]));
    let list = differences(Method::List, &states);
    assert_eq!((entries(&list[0]), entries(&list[1])), ((8, 0), (4, 3)));
    assert_eq!(list[1].data, tree[1].data);
}

#[test]
fn a_region_that_returns_to_an_earlier_state_is_one_reference() {
    let (a, b) = (chunks(&[1, 2, 3, 4, 5]), chunks(&[6, 7, 8, 9, 10]));
    let found = differences(Method::Tree, &[a.clone(), b.clone(), a, b]);
    for (difference, checkpoint) in found[2..].iter().zip([0, 1]) {
        let Body::Nodes { firsts, shifts } = &difference.head.body else { panic!() };
        assert_eq!((firsts.len(), shifts.len(), difference.data.len()), (0, 1, 0));
        assert_eq!(shifts[0].source, Source { checkpoint, node: shifts[0].node });
    }
}

#[test]
fn neighbours_are_joined_as_far_as_a_region_goes_also_where_threads_share_it() {
    let values: Vec<u32> = (0..20_001).collect();
    let other: Vec<u32> = values.iter().map(|value| value + 100_000).collect();
    let mut half_old = other.clone();
    half_old[..16_384].copy_from_slice(&values[..16_384]);
    let found = differences(Method::Tree, &[values, other, half_old].map(|values| chunks(&values)));
    assert_eq!([0, 1, 2].map(|number| entries(&found[number])), [(1, 0), (1, 0), (0, 1)]);
}

#[test]
fn what_has_not_changed_costs_nothing() {
    for method in [Method::Basic, Method::List, Method::Tree] {
        let state = chunks(&[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]);
        let found = differences(method, &[state.clone(), state]);
        assert!(found[1].data.is_empty() && found[1].head.metadata_bytes() <= 16 + 8, "{method:?}");
    }
}

#[test]
fn of_equal_chunks_the_first_is_stored() {
    let found = differences(Method::Tree, &[chunks(&[5, 5, 5, 5, 6, 5, 5, 6])]);
    assert_eq!(found[0].data, chunks(&[5, 6]));
}

#[test]
fn a_chunk_that_holds_the_digests_of_two_others_is_not_taken_for_them() {
    let digests = [murmur3(&chunk(1), 0), murmur3(&chunk(2), 0)].concat();
    let found = differences(Method::Tree, &[chunks(&[1, 2]), digests.clone()]);
    assert_eq!(found[1].data, digests);
}

#[test]
fn a_longer_last_chunk_is_another_chunk() {
    let short = vec![0; 40];
    let found = differences(Method::Tree, &[short, vec![0; 64]]);
    // The first chunk is as it was, and the second one is like the first.
    assert_eq!((entries(&found[1]), found[1].data.len()), ((0, 1), 0));
}
