//! A queue between two threads, bounded by the bytes of what is in it: pieces are of very different lengths.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// What is in it, and whether both ends are there still.
struct State<T> {
    items: VecDeque<(u64, T)>,
    bytes: u64,
    has_sender: bool,
    has_receiver: bool,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    bytes_max: u64,
}

impl<T> Shared<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits as long as `is_vain` says so.
    fn wait_while(&self, is_vain: impl Fn(&State<T>) -> bool) -> MutexGuard<'_, State<T>> {
        self.changed.wait_while(self.state(), |state| is_vain(state)).unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State<T>)) {
        change(&mut self.state());
        self.changed.notify_all();
    }
}

/// The end where items come in.
pub struct Sender<T>(Arc<Shared<T>>);

/// The end where they go out, in the same order.
pub struct Receiver<T>(Arc<Shared<T>>);

/// A queue of items of so many bytes together; of more, if there is one alone.
pub fn queue<T>(bytes_max: u64) -> (Sender<T>, Receiver<T>) {
    let state = State { items: VecDeque::new(), bytes: 0, has_sender: true, has_receiver: true };
    let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new(), bytes_max });
    (Sender(shared.clone()), Receiver(shared))
}

impl<T> Sender<T> {
    /// Waits until there is room, and puts it in; false if nobody takes anything out any more.
    pub fn send(&self, bytes: u64, item: T) -> bool {
        let is_full = |state: &State<T>| {
            state.has_receiver && !state.items.is_empty() && state.bytes.saturating_add(bytes) > self.0.bytes_max
        };
        let mut state = self.0.wait_while(is_full);
        if state.has_receiver {
            state.items.push_back((bytes, item));
            state.bytes += bytes;
            self.0.changed.notify_all();
        }
        state.has_receiver
    }
}

impl<T> Iterator for Receiver<T> {
    type Item = T;

    /// Waits for the next one; nothing if no more come.
    fn next(&mut self) -> Option<T> {
        let mut state = self.0.wait_while(|state| state.items.is_empty() && state.has_sender);
        let (bytes, item) = state.items.pop_front()?;
        state.bytes -= bytes;
        self.0.changed.notify_all();
        Some(item)
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.change(|state| state.has_sender = false);
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.0.change(|state| {
            state.has_receiver = false;
            state.items.clear();
        });
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn all_comes_out_in_the_order_in_which_it_was_put_in_and_never_more_than_its_bytes_are_there() {
        let (sender, receiver) = queue(10);
        let shared = receiver.0.clone();
        thread::scope(|scope| {
            scope.spawn(move || (0..1000).for_each(|number| assert!(sender.send(number % 5, number))));
            for (expected, number) in receiver.enumerate() {
                assert_eq!(number, expected as u64);
                assert!(shared.state().bytes <= 10);
            }
            assert_eq!(shared.state().bytes, 0);
        });
    }

    #[test]
    fn what_is_sent_waits_until_there_is_room_for_it() {
        let (sender, mut receiver) = queue(10);
        assert!(sender.send(6, 'a') && sender.send(4, 'b'));
        thread::scope(|scope| {
            let third = scope.spawn(|| sender.send(5, 'c'));
            assert_eq!(receiver.next(), Some('a'));
            assert!(third.join().unwrap(), "6 bytes of 10 are free");
        });
        assert_eq!((receiver.next(), receiver.next()), (Some('b'), Some('c')));
    }

    #[test]
    fn one_that_is_larger_than_all_that_may_be_there_comes_alone() {
        let (sender, mut receiver) = queue(10);
        assert!(sender.send(50, 'a'));
        drop(sender);
        assert_eq!((receiver.next(), receiver.next()), (Some('a'), None));
    }

    #[test]
    fn who_waits_for_room_goes_on_when_nobody_takes_anything_out_any_more() {
        let (sender, receiver) = queue(1);
        assert!(sender.send(1, 'a'));
        thread::scope(|scope| {
            let second = scope.spawn(|| sender.send(1, 'b'));
            drop(receiver);
            assert!(!second.join().unwrap());
        });
        assert!(!sender.send(0, 'c'));
    }
}
