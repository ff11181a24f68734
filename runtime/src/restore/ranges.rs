//! Address arithmetic of the rebuild: where there is room, and in which order things move.

use crate::image::SpecialMapping;

/// First address that a process may map (`vm.mmap_min_addr` is not larger on any distribution).
pub const LOWEST: u64 = 0x1_0000;
/// End of the addresses of a process with four-level page tables; the kernel goes beyond only when asked.
pub const HIGHEST: u64 = 0x7fff_ffff_f000;
const PAGE: u64 = 4096;

/// Addresses `start .. end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
}

impl Span {
    /// `bytes` from `start`.
    pub fn of(start: u64, bytes: u64) -> Span {
        Span { start, end: start.saturating_add(bytes) }
    }

    fn of_special(mapping: &SpecialMapping) -> Span {
        Span::of(mapping.address, mapping.bytes)
    }

    /// Whether the two share an address.
    pub fn overlaps(self, other: Span) -> bool {
        self.start < other.end && other.start < self.end
    }
}

/// What lies between `spans`, within `0 .. HIGHEST`.
pub fn gaps(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_unstable();
    let mut gaps = Vec::new();
    let mut free_from = 0;
    for span in spans {
        if span.start > free_from {
            gaps.push(Span { start: free_from, end: span.start.min(HIGHEST) });
        }
        free_from = free_from.max(span.end);
    }
    if free_from < HIGHEST {
        gaps.push(Span { start: free_from, end: HIGHEST });
    }
    gaps
}

/// The start of `bytes` in the middle of the largest gap between `spans`: as far from everything as possible.
pub fn room(spans: Vec<Span>, bytes: u64) -> Option<u64> {
    let usable = gaps(spans).into_iter().map(|gap| Span { start: gap.start.max(LOWEST), end: gap.end });
    let largest = usable.max_by_key(|gap| gap.end.saturating_sub(gap.start))?;
    let spare = largest.end.checked_sub(largest.start)?.checked_sub(bytes)?;
    Some(largest.start + spare / 2 / PAGE * PAGE)
}

/// One `mremap` of a special mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// From.
    pub from: u64,
    /// To.
    pub to: u64,
    /// Length.
    pub bytes: u64,
    /// Whether it is the vdso, which carries the call site along.
    pub is_vdso: bool,
}

/// The moves that bring the special mappings from where they are to where they are wanted. Both hold the same
/// names and lengths. Where a wanted place is still occupied, all go through a temporary place, which is not in `avoided`.
pub fn moves(current: &[SpecialMapping], wanted: &[SpecialMapping], avoided: Option<Span>) -> Option<Vec<Move>> {
    let pairs: Vec<(&SpecialMapping, &SpecialMapping)> = current
        .iter()
        .map(|from| wanted.iter().find(|to| to.name == from.name).map(|to| (from, to)))
        .collect::<Option<_>>()?;
    let moving: Vec<_> = pairs.into_iter().filter(|(from, to)| from.address != to.address).collect();
    let step = |from: &SpecialMapping, source: u64, to: u64| Move {
        from: source,
        to,
        bytes: from.bytes,
        is_vdso: from.name == "[vdso]",
    };
    let occupied =
        moving.iter().any(|(_, to)| current.iter().any(|other| Span::of_special(other).overlaps(Span::of_special(to))));
    if !occupied {
        return Some(moving.iter().map(|(from, to)| step(from, from.address, to.address)).collect());
    }
    let spans = current.iter().chain(wanted).map(Span::of_special).chain(avoided).collect();
    let total = moving.iter().map(|(from, _)| from.bytes).sum();
    let mut temporary = room(spans, total)?;
    let mut away = Vec::new();
    let mut back = Vec::new();
    for (from, to) in moving {
        away.push(step(from, from.address, temporary));
        back.push(step(from, temporary, to.address));
        temporary += from.bytes;
    }
    away.extend(back);
    Some(away)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn special(name: &str, address: u64, bytes: u64) -> SpecialMapping {
        SpecialMapping { name: name.into(), address, bytes, digest: None, content: None }
    }

    /// Plays moves on a set of mappings and checks that none lands on another.
    fn play(current: &[SpecialMapping], moves: &[Move]) -> Vec<(u64, u64)> {
        let mut spans: Vec<Span> = current.iter().map(Span::of_special).collect();
        for step in moves {
            let index = spans.iter().position(|span| *span == Span::of(step.from, step.bytes)).unwrap();
            let target = Span::of(step.to, step.bytes);
            assert!(spans.iter().all(|span| !span.overlaps(target)), "{step:x?} lands on {spans:x?}");
            spans[index] = target;
        }
        spans.into_iter().map(|span| (span.start, span.end)).collect()
    }

    #[test]
    fn gaps_are_what_the_spans_leave() {
        let spans = vec![Span::of(0x5000, 0x1000), Span::of(0x1000, 0x2000), Span::of(0x2000, 0x1000)];
        let expected =
            [Span { start: 0, end: 0x1000 }, Span { start: 0x3000, end: 0x5000 }, Span { start: 0x6000, end: HIGHEST }];
        assert_eq!(gaps(spans), expected);
        assert_eq!(gaps(Vec::new()), [Span { start: 0, end: HIGHEST }]);
    }

    #[test]
    fn room_is_page_aligned_and_free() {
        let spans = vec![Span::of(0x40_0000, 0x1000), Span::of(0x7fff_0000_0000, 0x1000)];
        let start = room(spans.clone(), 0x3000).unwrap();
        assert_eq!(start % PAGE, 0);
        assert!(spans.iter().all(|span| !span.overlaps(Span::of(start, 0x3000))));
        assert_eq!(room(vec![Span { start: 0, end: HIGHEST }], 0x1000), None);
    }

    #[test]
    fn mappings_move_directly_where_there_is_room() {
        let current = [special("[vvar]", 0x10_0000, 0x4000), special("[vdso]", 0x10_4000, 0x2000)];
        let wanted = [special("[vvar]", 0x20_0000, 0x4000), special("[vdso]", 0x20_4000, 0x2000)];
        let moves = moves(&current, &wanted, None).unwrap();
        assert_eq!(moves.len(), 2);
        assert_eq!(play(&current, &moves), [(0x20_0000, 0x20_4000), (0x20_4000, 0x20_6000)]);
        assert!(!moves[0].is_vdso && moves[1].is_vdso);
    }

    #[test]
    fn overlapping_mappings_move_through_a_temporary_place() {
        let current = [special("[vvar]", 0x10_0000, 0x4000), special("[vdso]", 0x10_4000, 0x2000)];
        for shift in [0x1000, 0x2000, 0x4000, 0x6000] {
            let wanted = [special("[vvar]", 0x10_0000 + shift, 0x4000), special("[vdso]", 0x10_4000 + shift, 0x2000)];
            let places = play(&current, &moves(&current, &wanted, None).unwrap());
            assert_eq!(places[1], (0x10_4000 + shift, 0x10_6000 + shift));
        }
    }

    #[test]
    fn nothing_moves_when_all_is_in_place_and_names_must_agree() {
        let current = [special("[vdso]", 0x10_4000, 0x2000)];
        assert_eq!(moves(&current, &current, None), Some(Vec::new()));
        assert_eq!(moves(&current, &[special("[vvar]", 0x10_4000, 0x2000)], None), None);
    }
}
