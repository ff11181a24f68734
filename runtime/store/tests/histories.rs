//! Random histories, compared with plain maps.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::{collections::BTreeMap, sync::Arc};

use ckpt_store::{
    AttemptState, PAGE_BYTES, PageKey, PageList, Store, StoreOptions,
    backend::{Memory, Survives},
};

mod story;
use story::{Random, decode, encode, end, page, pages, start};

type Region = BTreeMap<u64, u64>;

/// One job: its region now, as numbers of pages, and its list as the store knows it.
#[derive(Default, Clone)]
struct Job {
    region: Region,
    list: PageList,
}

fn open(memory: &Memory) -> Store {
    // Small packs, so that attempts have several.
    let options = StoreOptions { pack_bytes: 16 << 10, ..story::options() };
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

/// The checkpoints that must be there, with their jobs and regions.
type Sealed = BTreeMap<u64, (usize, Region)>;

fn check(store: &Store, sealed: &Sealed) {
    assert_eq!(store.newest_sealed(None).unwrap(), sealed.keys().last().copied());
    for (id, (_, region)) in sealed {
        check_region(store, *id, region);
        store.verifier().checkpoint(*id, &mut |_| ()).unwrap();
    }
    let rows = store.attempts().unwrap();
    assert_eq!(rows.iter().filter(|row| row.state == AttemptState::Sealed).count(), sealed.len());
}

fn check_region(store: &Store, id: u64, region: &Region) {
    let list = store.page_list(&decode(&store.manifest(id).unwrap().state)).unwrap();
    let (places, keys): (Vec<u64>, Vec<PageKey>) = list.iter().unzip();
    let mut read = vec![0; keys.len() * PAGE_BYTES];
    store.read_pages(&keys, &mut read).unwrap();
    assert!(places.iter().eq(region.keys()), "checkpoint {id}");
    let same = read.chunks(PAGE_BYTES).zip(region.values()).all(|(read, number)| read == page(*number));
    assert!(same, "checkpoint {id}");
}

/// A directory that two processes have open, what must be in it, and a directory that checkpoints are copied to.
struct World {
    memory: Memory,
    stores: [Store; 2],
    jobs: [Job; 2],
    sealed: Sealed,
    highest: u64,
    copies: Memory,
    copied: BTreeMap<u64, Region>,
}

impl World {
    fn new() -> Self {
        let memory = Memory::default();
        let (stores, jobs) = ([open(&memory), open(&memory)], [Job::default(), Job::default()]);
        let (sealed, copied) = (BTreeMap::new(), BTreeMap::new());
        Self { memory, stores, jobs, sealed, highest: 0, copies: Memory::default(), copied }
    }

    /// One attempt of one of the jobs; sometimes another process prunes while it is running.
    fn attempt(&mut self, random: &mut Random) {
        let which = random.below(2) as usize;
        let by = random.below(2) as usize;
        let mut attempt = self.stores[by].begin(start(["a", "b"][which])).unwrap();
        assert!(attempt.id() > self.highest);
        self.highest = attempt.id();
        let mut job = self.jobs[which].clone();
        change(random, &mut job, &mut attempt);
        if random.below(3) == 0 {
            self.prune(random);
            change(random, &mut job, &mut attempt);
        }
        match random.below(6) {
            0 => attempt.fail("for the test", 0.0).unwrap(),
            1 => drop(attempt),
            _ => {
                let root = attempt.write_page_list(&job.list).unwrap();
                let row = attempt.seal(end(), &encode(&root)).unwrap();
                self.sealed.insert(row.id, (which, job.region.clone()));
                self.jobs[which] = job;
            }
        }
    }

    fn prune(&mut self, random: &mut Random) {
        let keep = 1 + random.below(3) as usize;
        self.stores[random.below(2) as usize].prune(keep, None).unwrap();
        for which in 0..2 {
            let of_job = self.sealed.iter().filter(|(_, (job, _))| *job == which).map(|(id, _)| *id);
            let ids: Vec<u64> = of_job.collect();
            for id in &ids[..ids.len().saturating_sub(keep)] {
                self.sealed.remove(id);
            }
        }
    }

    fn one_of_the_sealed(&self, random: &mut Random) -> Option<(u64, Region)> {
        let at = random.below(self.sealed.len().max(1) as u64) as usize;
        self.sealed.iter().nth(at).map(|(id, (_, region))| (*id, region.clone()))
    }

    fn between_attempts(&mut self, random: &mut Random) {
        match random.below(12) {
            0 => self.stores[0] = open(&self.memory),
            1 => self.crash(random.below(2) == 0),
            2 | 3 => self.prune(random),
            4 => {
                if let Some((id, _)) = self.one_of_the_sealed(random) {
                    self.stores[random.below(2) as usize].flatten(id).unwrap();
                }
            }
            5 | 6 => {
                if let Some((id, region)) = self.one_of_the_sealed(random) {
                    let to = open(&self.copies);
                    let copied = self.stores[random.below(2) as usize].copy_checkpoint(id, &to, &mut |_| ()).unwrap();
                    self.copied.insert(copied.row.id, region);
                }
            }
            _ => {}
        }
        let ids = self.stores[0].attempts().unwrap().into_iter().map(|row| row.id);
        self.highest = self.highest.max(ids.max().unwrap_or(0));
    }

    /// The machine goes down: what was not made durable is gone. The lists in memory are those of sealed checkpoints.
    fn crash(&mut self, bytes: bool) {
        let survives = Survives { names: false, last_name: false, bytes, last_append_torn: false };
        self.memory = Memory::after_crash(&self.memory.journal(), survives);
        self.stores = [open(&self.memory), open(&self.memory)];
        self.highest = self.sealed.keys().last().copied().unwrap_or(0);
    }

    fn check(&self) {
        for store in self.stores.iter().chain([&open(&self.memory)]) {
            check(store, &self.sealed);
        }
        let copies = open(&self.copies);
        self.copied.iter().for_each(|(id, region)| check_region(&copies, *id, region));
    }
}

fn history(seed: u64) {
    let random = &mut Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut world = World::new();
    for _ in 0..8 {
        world.attempt(random);
        world.between_attempts(random);
    }
    world.check();
}

/// CKPT_TEST_HISTORIES=N runs N of them.
#[test]
fn random_histories_of_two_jobs_read_back_as_a_map_says() {
    let count = std::env::var("CKPT_TEST_HISTORIES").map_or(300, |count| count.parse().unwrap());
    let failed: Vec<u64> =
        (1..=count).filter(|seed| std::panic::catch_unwind(|| history(*seed)).is_err()).take(3).collect();
    assert!(failed.is_empty(), "the histories of the seeds {failed:?} went wrong");
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
