//! Encoded differences that are damaged, cut off or made up: an error, and no more memory than they are long.
#![allow(clippy::unwrap_used, reason = "a test")]

use ckpt_kernels::merkle::{
    Body, Difference, Engine, Error, Head, Lineage, Method, Region, RegionShape, Shift, Source,
};

/// A lineage of every method, with references and all.
fn differences() -> Vec<Difference> {
    let mut engine = Engine::new(32, None).unwrap();
    let mut state: Vec<u8> = (0..700_u32).map(|n| (n / 32 % 7) as u8).collect();
    let mut differences = Vec::new();
    for (number, method) in (0..).zip([Method::Tree, Method::Tree, Method::List, Method::Basic, Method::Full]) {
        state[..320].rotate_left(32);
        state[5 * number as usize] ^= 0x80;
        let regions = [Region { id: 1, bytes: &state }, Region { id: 9, bytes: &state[..100] }];
        let mut difference = Difference::default();
        engine.difference(number, method, &regions, &mut difference).unwrap();
        differences.push(difference);
    }
    differences
}

fn lineage(differences: &[Difference]) -> Result<Lineage, Error> {
    let mut lineage = Lineage::default();
    differences.iter().try_for_each(|difference| lineage.add(difference.clone()))?;
    Ok(lineage)
}

#[test]
fn every_flipped_bit_and_every_length_but_the_right_one_is_an_error() {
    for difference in differences() {
        let encoded = difference.encode();
        assert_eq!(Difference::decode(&encoded).unwrap(), difference);
        for at in 0..encoded.len() {
            let mut flipped = encoded.clone();
            flipped[at] ^= 1 << (at % 8);
            assert!(Difference::decode(&flipped).is_err(), "byte {at} of {:?}", difference.head.body);
            assert!(Difference::decode(&encoded[..at]).is_err(), "cut off at {at}");
        }
        assert!(Difference::decode(&[&encoded[..], &[0]].concat()).is_err());
    }
}

#[test]
fn a_lineage_takes_no_difference_that_it_could_not_restore() {
    let good = differences();
    assert!(lineage(&good).is_ok());
    let second = |change: &dyn Fn(&mut Difference)| {
        let mut changed = good.clone();
        change(&mut changed[1]);
        // As it would be read from a file: its checksums are right.
        changed[1] = Difference::decode(&changed[1].encode()).unwrap();
        lineage(&changed).map(drop).unwrap_err().to_string()
    };
    let shifts = |change: &dyn Fn(&mut Vec<Shift>)| {
        second(&|difference| {
            let Body::Nodes { shifts, .. } = &mut difference.head.body else { panic!() };
            assert!(!shifts.is_empty());
            change(shifts);
        })
    };
    let nowhere = Source { checkpoint: 7, node: 0 };
    assert!(shifts(&|shifts| shifts.last_mut().unwrap().source = nowhere).contains("refers to"));
    assert!(shifts(&|shifts| shifts[0].source.node = u32::MAX).contains("refers to"));
    assert!(shifts(&|shifts| shifts[0].node = 1 << 30).contains("no node"));
    assert!(shifts(&|shifts| shifts.push(*shifts.last().unwrap())).contains("two things"));
    assert!(
        second(&|difference| {
            difference.data.pop();
            difference.head.data_bytes -= 1;
        })
        .contains("stored")
    );
    assert!(second(&|difference| difference.head.previous = Some(9)).contains("follows"));
    assert!(second(&|difference| difference.head.chunk_bytes = 64).contains("corrupt"));
    assert!(second(&|difference| difference.head.regions[0].bytes += 4096).contains("corrupt"));
    assert!(second(&|difference| difference.head.regions[0].id = 77).contains("nothing says"));
    assert!(second(&|difference| difference.head.regions[0].id = 9).contains("one id"));
    let region = |bytes| RegionShape { id: 5, bytes };
    assert!(second(&|difference| difference.head.regions.push(region(1 << 36))).contains("too many chunks"));
    assert!(second(&|difference| difference.head.regions.push(region(1 << 35))).contains("nothing says"));
}

/// A difference without predecessor of one region of eight chunks, whose nodes are numbered 0 to 7, 8 to 11, 12 to 13, and 14.
fn difference(firsts: &[u32], references: &[(u32, u32)], checkpoint: u32, to: u32) -> Difference {
    let shift = |(node, source): &(u32, u32)| Shift { node: *node, source: Source { checkpoint: to, node: *source } };
    let (firsts, shifts) = (firsts.to_vec(), references.iter().map(shift).collect());
    let data: Vec<u8> = (0..firsts.len() * 32).map(|at| at as u8).collect();
    let regions = vec![RegionShape { id: 1, bytes: 256 }];
    let body = Body::Nodes { firsts, shifts };
    let head = Head { checkpoint, previous: None, chunk_bytes: 32, regions, body, data_bytes: data.len() as u64 };
    Difference { head, data }
}

#[test]
fn references_are_followed_from_level_to_level_and_never_in_a_circle() {
    let run = difference(&[0], &[(1, 0), (9, 8), (13, 12)], 1, 1);
    let add = |differences: &[&Difference]| {
        let mut lineage = Lineage::default();
        differences.iter().try_for_each(|it| lineage.add((*it).clone())).map(|()| lineage)
    };
    let (_, restored) = add(&[&run]).unwrap().restore(1).unwrap().pop().unwrap();
    assert!(restored == run.data.repeat(8));
    // From another checkpoint, to all of it.
    let (_, restored) = add(&[&run, &difference(&[], &[(14, 14)], 2, 1)]).unwrap().restore(2).unwrap().pop().unwrap();
    assert!(restored == run.data.repeat(8));

    let refused = |differences: &[&Difference]| add(differences).err().unwrap().to_string();
    // To themselves, to each other, to a node on the same level that is no more than a reference.
    assert!(refused(&[&difference(&[0], &[(1, 1), (9, 8), (13, 12)], 1, 1)]).contains("refers to"));
    assert!(refused(&[&difference(&[0], &[(1, 0), (9, 8), (12, 13), (13, 12)], 1, 1)]).contains("two things"));
    assert!(refused(&[&difference(&[0, 1], &[(9, 10), (10, 9), (11, 8)], 1, 1)]).contains("refers to"));
    assert!(refused(&[&difference(&[0], &[(1, 0), (2, 1), (3, 0), (13, 12)], 1, 1)]).contains("refers to"));
    // To a node of which a part is of a third checkpoint, or of nobody.
    let partly = difference(&[0, 1, 2, 3], &[(13, 12)], 2, 1);
    assert!(refused(&[&run, &partly, &difference(&[], &[(14, 14)], 3, 2)]).contains("refers to"));
    // To one of another level.
    assert!(refused(&[&difference(&[0], &[(1, 0), (9, 12), (13, 12)], 1, 1)]).contains("refers to"));
}
