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
    let (mut engine, mut lineage) = (Engine::new(32, None).unwrap(), Lineage::default());
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
fn a_run_of_equal_chunks_costs_an_entry_for_each_doubling_and_one_when_it_comes_again() {
    let other: Vec<u32> = (100..100 + 1024).collect();
    let state = |first: &[u32], second: &[u32]| chunks(&[first, second].concat());
    let states = [state(&[7; 1024], &other), state(&other, &[7; 1024]), state(&[7; 1024], &[7; 1024])];
    let found = differences(Method::Tree, &states);
    assert_eq!(entries(&found[0]), (2, 10));
    assert_eq!(entries(&found[1]), (0, 2));
    // The second half is as it was, and the first half is one reference.
    assert_eq!(entries(&found[2]), (0, 1));
    // Also what is of both kinds comes again as one.
    let mixed: Vec<u32> = (0..64).map(|n| n / 3).collect();
    let found = differences(Method::Tree, &[state(&mixed, &other[..64]), state(&other[..64], &mixed)]);
    assert!(entries(&found[0]).1 > 30);
    assert_eq!(entries(&found[1]), (0, 2));
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

/// What checkpoints of 1,000 chunks, all new but a tenth, are taken by with so much room for digests.
fn methods(bound: u64, checkpoints: u32) -> Vec<(Method, bool)> {
    let mut engine = Engine::new(32, Some(bound)).unwrap();
    let mut state = chunks(&(0..1_000).collect::<Vec<_>>());
    let take = |number| {
        state[..900 * 32].copy_from_slice(&chunks(&(number * 1_000..number * 1_000 + 900).collect::<Vec<_>>()));
        let mut difference = Difference::default();
        let taken =
            engine.difference(number, Method::Tree, &[Region { id: 1, bytes: &state }], &mut difference).unwrap();
        assert!(engine.held_bytes() <= bound);
        assert_eq!(taken.shortage.is_some(), taken.method != Method::Tree);
        (taken.method, taken.head.previous.is_some())
    };
    (1..=checkpoints).map(take).collect()
}

#[test]
fn with_little_room_for_digests_lesser_methods_are_used() {
    use Method::{Basic, Full, List, Tree};
    // 16 bytes for the digest of each chunk; for each new digest in the history up to 57, and 160 for each of its 1,024 parts.
    assert_eq!(methods(15_999, 2), [(Full, false), (Full, false)]);
    assert_eq!(methods(16_000, 2), [(Basic, false), (Basic, true)]);
    assert_eq!(methods(240_000, 3), [(List, false), (Basic, true), (Basic, true)]);
    assert_eq!(methods(350_000, 4), [(Tree, false), (List, true), (Basic, true), (Basic, true)]);
}

#[test]
fn a_history_is_forgotten_when_the_digests_of_grown_regions_need_its_room() {
    let mut engine = Engine::new(32, Some(26_000)).unwrap();
    let mut take = |number, count| {
        let state = chunks(&(0..count).collect::<Vec<_>>());
        let mut difference = Difference::default();
        engine.difference(number, Method::Tree, &[Region { id: 1, bytes: &state }], &mut difference).unwrap()
    };
    assert!(take(1, 50).shortage.is_none());
    let grown = take(2, 1_500);
    let shortage = grown.shortage.unwrap();
    assert_eq!((grown.method, shortage.forgotten), (Method::Basic, 50 + 25 + 13 + 7 + 4 + 2 + 1));
    assert!(shortage.to_string().contains("26000 are allowed"), "{shortage}");
}
