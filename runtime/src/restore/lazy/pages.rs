//! Where in an address space the content of the checkpoint belongs.
//!
//! A page is not struck off when it has been brought: nobody faults on a page that is there, and a copy to one is
//! refused. Only the program changes what is in here, by what it does to the memory.

use std::ops::Range as Span;

use ckpt_store::PAGE_BYTES;

const PAGE: u64 = PAGE_BYTES as u64;

/// Addresses where consecutive pages of a range belong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The addresses.
    pub span: Span<u64>,
    /// Which range, by its number in the plan.
    pub range: usize,
    /// The page of the range that belongs to the first address.
    pub first: usize,
}

impl Piece {
    /// The part of it that is in `span`, if any.
    fn within(&self, span: &Span<u64>) -> Option<Piece> {
        let part = self.span.start.max(span.start)..self.span.end.min(span.end);
        let first = self.first + (part.start.saturating_sub(self.span.start) / PAGE) as usize;
        (part.start < part.end).then_some(Piece { span: part, range: self.range, first })
    }

    fn pages(&self) -> Span<usize> {
        self.first..self.first + ((self.span.end - self.span.start) / PAGE) as usize
    }
}

/// All of an address space.
#[derive(Clone, Debug, Default)]
pub struct Pages(Vec<Piece>);

impl Pages {
    /// Adds `bytes` at `address`, which are range number `range`.
    pub fn add(&mut self, address: u64, bytes: u64, range: usize) {
        self.0.push(Piece { span: address..address + bytes, range, first: 0 });
    }

    /// What belongs to `address` and around it: at most `most` pages, from a border of so many on.
    pub fn around(&self, address: u64, most: u64) -> Option<Piece> {
        let begin = address / (most * PAGE) * (most * PAGE);
        let piece = self.0.iter().find(|piece| piece.span.contains(&address))?;
        piece.within(&(begin..begin + most * PAGE))
    }

    /// Where pages `pages` of range `range` belong: addresses, and which of them.
    pub fn places_of(&self, range: usize, pages: Span<usize>) -> impl Iterator<Item = (u64, Span<usize>)> {
        self.0.iter().filter(move |piece| piece.range == range).filter_map(move |piece| {
            let all = piece.pages();
            let part = all.start.max(pages.start)..all.end.min(pages.end);
            let address = piece.span.start + (part.start.saturating_sub(all.start)) as u64 * PAGE;
            (part.start < part.end).then_some((address, part))
        })
    }

    /// The content of these addresses is gone.
    pub fn remove(&mut self, span: Span<u64>) {
        if !self.0.iter().any(|piece| piece.within(&span).is_some()) {
            return;
        }
        let before_and_after = |piece: &Piece| [piece.within(&(0..span.start)), piece.within(&(span.end..u64::MAX))];
        self.0 = self.0.iter().flat_map(before_and_after).flatten().collect();
    }

    /// What was at `from` is at `to` now.
    pub fn shift(&mut self, from: u64, to: u64, bytes: u64) {
        let moved: Vec<Piece> = self.0.iter().filter_map(|piece| piece.within(&(from..from + bytes))).collect();
        self.remove(from..from + bytes);
        self.remove(to..to + bytes);
        self.0.extend(moved.into_iter().map(|Piece { span, range, first }| {
            let span = span.start - from + to..span.end - from + to;
            Piece { span, range, first }
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten pages at page 100, which are range 7.
    fn ten() -> Pages {
        let mut pages = Pages::default();
        pages.add(100 * PAGE, 10 * PAGE, 7);
        pages
    }

    /// Which page of range 7 belongs to page `number`.
    fn at(pages: &Pages, number: u64) -> Option<usize> {
        pages.around(number * PAGE, 1).map(|piece| piece.first)
    }

    #[test]
    fn what_is_removed_is_zeros_and_its_neighbours_stay() {
        let mut pages = ten();
        pages.remove(103 * PAGE..105 * PAGE);
        let found: Vec<_> = (99..111).map(|number| at(&pages, number)).collect();
        let expected = [None, Some(0), Some(1), Some(2), None, None, Some(5), Some(6), Some(7), Some(8), Some(9), None];
        assert_eq!(found, expected);
        let places: Vec<_> = pages.places_of(7, 2..6).collect();
        assert_eq!(places, [(102 * PAGE, 2..3), (105 * PAGE, 5..6)]);
    }

    #[test]
    fn what_moves_is_found_where_it_is_and_not_where_it_was() {
        let mut pages = ten();
        pages.shift(104 * PAGE, 500 * PAGE, 3 * PAGE);
        assert_eq!((at(&pages, 103), at(&pages, 104), at(&pages, 107)), (Some(3), None, Some(7)));
        assert_eq!((at(&pages, 500), at(&pages, 502), at(&pages, 503)), (Some(4), Some(6), None));
        // Onto a part of itself.
        pages.shift(500 * PAGE, 100 * PAGE, 2 * PAGE);
        assert_eq!(
            (at(&pages, 100), at(&pages, 101), at(&pages, 102), at(&pages, 500)),
            (Some(4), Some(5), Some(2), None)
        );
    }

    #[test]
    fn what_is_brought_for_a_fault_ends_where_its_piece_does() {
        let pages = ten();
        let piece = pages.around(105 * PAGE, 8).unwrap();
        assert_eq!((piece.span, piece.first), (104 * PAGE..110 * PAGE, 4));
        let piece = pages.around(101 * PAGE, 8).unwrap();
        assert_eq!((piece.span, piece.first), (100 * PAGE..104 * PAGE, 0));
    }
}
