//! Encoded differences that are damaged, cut off or made up: an error, and no more memory than they are long.
#![allow(clippy::unwrap_used, reason = "a test")]

use ckpt_kernels::merkle::{Body, Difference, Engine, Error, Lineage, Method, Region, RegionShape, Shift, Source};

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
