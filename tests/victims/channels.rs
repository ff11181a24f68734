//! Threads and channels: a ring of bounded channels, a fan of workers that answer over one channel, a lock under it all.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

const WORKERS: u64 = 6;
const RING: u64 = 4;

fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Each worker keeps a state that depends on all its tasks.
fn worker(number: u64, tasks: &Receiver<u64>, answers: &Sender<(u64, u64)>, seen: &Mutex<BTreeMap<u64, u64>>) {
    let mut state = number;
    while let Ok(task) = tasks.recv() {
        for _ in 0..20_000 {
            state = mix(state ^ task);
        }
        *seen.lock().expect("nobody panics").entry(state % 1000).or_insert(0) += 1;
        answers.send((number, state)).expect("somebody listens");
    }
}

/// Passes what comes on, changed, with room for one message between two members.
fn ring(first: Receiver<u64>) -> (Receiver<u64>, Vec<JoinHandle<()>>) {
    let mut from = first;
    let mut threads = Vec::new();
    for number in 0..RING {
        let (to, next) = sync_channel(1);
        let pass = move |from: Receiver<u64>, to: SyncSender<u64>| {
            let mut sum = number;
            for value in from {
                sum = mix(sum ^ value);
                if to.send(sum).is_err() {
                    return;
                }
            }
        };
        threads.push(std::thread::spawn(move || pass(from, to)));
        from = next;
    }
    (from, threads)
}

fn main() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let steps: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(80);
    // As in victim.h: where a test wants the program to wait, and for which file.
    let waits_at: u64 = number("CKPT_VICTIM_WAITS_AT").unwrap_or(0);
    let waits_for = std::env::var_os("CKPT_VICTIM_WAITS_FOR").unwrap_or_default();

    let seen = Arc::new(Mutex::new(BTreeMap::new()));
    let (answers, answered) = channel();
    let mut tasks = Vec::new();
    let mut threads = Vec::new();
    for number in 0..WORKERS {
        let (task, to_do) = channel();
        let (answers, seen) = (answers.clone(), Arc::clone(&seen));
        threads.push(std::thread::spawn(move || worker(number, &to_do, &answers, &seen)));
        tasks.push(task);
    }
    drop(answers);
    let (into_ring, first) = sync_channel(1);
    let (out_of_ring, more) = ring(first);
    threads.extend(more);

    println!("ready");
    let mut sum = 0;
    for step in 1..=steps {
        for task in &tasks {
            task.send(mix(sum ^ step)).expect("a worker");
        }
        into_ring.send(sum ^ step).expect("the ring");
        let mut found: Vec<(u64, u64)> = (0..WORKERS).map(|_| answered.recv().expect("an answer")).collect();
        found.sort_unstable();
        sum = found.iter().fold(sum, |sum, (_, state)| mix(sum ^ state));
        sum = mix(sum ^ out_of_ring.recv().expect("the ring"));
        println!("step {step} {sum:016x} {}", seen.lock().expect("nobody panics").len());
        while step == waits_at && !std::path::Path::new(&waits_for).exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    drop((tasks, into_ring));
    threads.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
    println!("verified");
    std::process::exit(8);
}
