//! What a kernel may change: its outputs and its workspace, and no other byte of the arena.

use std::ops::Range;

/// The first byte that differs between `before` and `after` and lies in none of the ranges.
pub(super) fn stray_write(before: &[u8], after: &[u8], mut allowed: Vec<Range<u64>>) -> Option<usize> {
    allowed.sort_by_key(|range| range.start);
    let end = before.len() as u64;
    let mut at = 0;
    for Range { start, end } in allowed.into_iter().chain(std::iter::once(end..end)) {
        if start > at {
            let (between, now) = (&before[at as usize..start as usize], &after[at as usize..start as usize]);
            if let Some(byte) = (between != now).then(|| between.iter().zip(now).position(|(a, b)| a != b)) {
                return byte.map(|byte| at as usize + byte);
            }
        }
        at = at.max(end);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_outside_counts_and_none_inside() {
        let before = [0; 20];
        let allowed = || vec![8..12, 2..4, 10..14];
        for byte in 0..20 {
            let mut after = before;
            after[byte] = 1;
            let is_outside = !(2..4).contains(&byte) && !(8..14).contains(&byte);
            assert_eq!(stray_write(&before, &after, allowed()), is_outside.then_some(byte));
        }
        assert_eq!(stray_write(&before, &before, vec![]), None);
        assert_eq!(stray_write(&before, &[1; 20], std::iter::once(0..20).collect()), None);
    }
}
