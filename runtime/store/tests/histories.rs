//! Random histories, compared with plain maps.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::{collections::BTreeMap, sync::Arc};

use ckpt_store::{
    AttemptState, PAGE_BYTES, PageKey, PageList, Store, StoreOptions,
    backend::{Memory, Survives},
};

mod story;
use story::{decode, encode, end, page, pages, start};

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

type Region = BTreeMap<u64, u64>;

/// One job: its region now, as numbers of pages, and its list as the store knows it.
#[derive(Default, Clone)]
struct Job {
    region: Region,
    list: PageList,
}

fn open(memory: &Memory) -> Store {
    // Small packs, so that attempts have several.
    let options = StoreOptions { pack_bytes: 16 << 10, ..StoreOptions::default() };
    Store::create_or_open_on(Arc::new(memory.clone()), &options).unwrap()
}

fn change(random: &mut Random, job: &mut Job, attempt: &mut ckpt_store::Attempt) {
    for _ in 0..1 + random.below(3) {
        let first = [random.below(40), 500 + random.below(40), 1 << (10 + random.below(30))][random.below(3) as usize];
        let count = 1 + random.below(6);
        if random.below(4) == 0 {
            job.list.clear_run(first, count);
            job.region.retain(|page, _| !(first..first + count).contains(page));
            continue;
        }
        let numbers: Vec<u64> = (0..count).map(|_| random.below(12)).collect();
        job.list.set_run(first, &attempt.write_pages(&pages(&numbers)).unwrap());
        for (page, number) in (first..).zip(numbers) {
            if number == 0 {
                job.region.remove(&page)
            } else {
                job.region.insert(page, number)
            };
        }
    }
}

fn check(store: &Store, sealed: &BTreeMap<u64, Region>) {
    assert_eq!(store.newest_sealed(None).unwrap(), sealed.keys().last().copied());
    for (id, region) in sealed {
        let list = store.page_list(&decode(&store.manifest(*id).unwrap().state)).unwrap();
        let (places, keys): (Vec<u64>, Vec<PageKey>) = list.iter().unzip();
        let mut read = vec![0; keys.len() * PAGE_BYTES];
        store.read_pages(&keys, &mut read).unwrap();
        assert!(places.iter().eq(region.keys()), "checkpoint {id}");
        let same = read.chunks(PAGE_BYTES).zip(region.values()).all(|(read, number)| read == page(*number));
        assert!(same, "checkpoint {id}");
    }
}

fn history(seed: u64) {
    let random = &mut Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut memory = Memory::default();
    let mut stores = [open(&memory), open(&memory)];
    let mut jobs = [Job::default(), Job::default()];
    let mut sealed = BTreeMap::new();
    let mut begun = 0;
    for _ in 0..8 {
        let which = random.below(2) as usize;
        let store = &stores[random.below(2) as usize];
        let mut attempt = store.begin(start(["a", "b"][which])).unwrap();
        assert!(attempt.id() > begun);
        begun = attempt.id();
        let mut job = jobs[which].clone();
        change(random, &mut job, &mut attempt);
        match random.below(6) {
            0 => attempt.fail("for the test", 0.0).unwrap(),
            1 => drop(attempt),
            _ => {
                let root = attempt.write_page_list(&job.list).unwrap();
                let row = attempt.seal(end(), &encode(&root)).unwrap();
                sealed.insert(row.id, job.region.clone());
                jobs[which] = job;
            }
        }
        match random.below(8) {
            0 => stores[0] = open(&memory),
            1 => {
                let bytes = random.below(2) == 0;
                let survives = Survives { names: false, last_name: false, bytes, last_append_torn: false };
                memory = Memory::after_crash(&memory.journal(), survives);
                stores = [open(&memory), open(&memory)];
                begun = sealed.keys().last().copied().unwrap_or(0);
                // A list in memory outlives the crash of a machine only in this test, but its pages were sealed.
            }
            _ => {}
        }
    }
    for store in &stores {
        check(store, &sealed);
        let rows = store.attempts().unwrap();
        assert_eq!(rows.iter().filter(|row| row.state == AttemptState::Sealed).count(), sealed.len());
    }
}

#[test]
fn random_histories_of_two_jobs_read_back_as_a_map_says() {
    for seed in 1..=80 {
        let outcome = std::panic::catch_unwind(|| history(seed));
        assert!(outcome.is_ok(), "seed {seed}");
    }
}

#[test]
fn random_changes_of_a_page_list_are_those_of_a_map() {
    let key = |number: u64| if number == 0 { PageKey::ZERO } else { PageKey::from_bytes([number as u8; 28]) };
    for seed in 1..=200 {
        let random = &mut Random(seed * 0x9e37_79b9);
        let (mut list, mut map) = (PageList::new(), BTreeMap::new());
        for _ in 0..60 {
            let (first, count) = (random.below(2000), random.below(700));
            let numbers: Vec<u64> = (0..count).map(|_| random.below(4)).collect();
            match random.below(4) {
                0 => {
                    list.set_run(first, &numbers.iter().map(|number| key(*number)).collect::<Vec<_>>());
                    map.extend((first..).zip(numbers));
                }
                1 => {
                    list.clear_run(first, count);
                    map.retain(|page, _| !(first..first + count).contains(page));
                }
                2 => {
                    list.set(first, key(count % 4));
                    map.insert(first, count % 4);
                }
                _ => {
                    let before = list.clone();
                    list = list.slice(first / 3, 3000 - count);
                    map = map
                        .into_iter()
                        .filter_map(|(page, number)| Some((page.checked_sub(first / 3)?, number)))
                        .collect();
                    map.retain(|page, _| *page < 3000 - count);
                    assert!(before.page_count() >= list.page_count());
                }
            }
            map.retain(|_, number| *number > 0);
            assert!(list.iter().eq(map.iter().map(|(page, number)| (*page, key(*number)))), "seed {seed}");
            assert_eq!(list.page_count(), map.len() as u64);
            assert!((0..3).all(|at| list.get(first + at) == key(map.get(&(first + at)).copied().unwrap_or(0))));
        }
    }
}
