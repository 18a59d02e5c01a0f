//! Where random decisions come from: a seed, or numbers that somebody else chose.
//!
//! Every decision is a number, and zero always means the simplest alternative. So a failing case is made smaller without
//! knowing what it is: by taking numbers away and by making them smaller ([`shrink`]). A fuzzer that makes bytes makes
//! cases as well.

/// A sequence of decisions, which is remembered.
#[derive(Clone, Debug)]
pub struct Choices {
    given: Vec<u32>,
    /// The state of the generator that follows the given numbers; `None`: zeros follow.
    random: Option<u64>,
    drawn: Vec<u32>,
}

impl Choices {
    /// As many as are asked for, all of them a function of the seed.
    pub fn of_seed(seed: u64) -> Choices {
        // Neighbouring seeds are far apart after one multiplication.
        let state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x2545_F491_4F6C_DD1D;
        Choices { given: Vec::new(), random: Some(state), drawn: Vec::new() }
    }

    /// These numbers, then zeros.
    pub fn of_numbers(given: Vec<u32>) -> Choices {
        Choices { given, random: None, drawn: Vec::new() }
    }

    /// The bytes of a fuzzer, two for each decision, then zeros.
    pub fn of_bytes(bytes: &[u8]) -> Choices {
        let number = |pair: &[u8]| u32::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0), 0, 0]);
        Choices::of_numbers(bytes.chunks(2).map(number).collect())
    }

    fn next(&mut self) -> u32 {
        let number = match (self.given.get(self.drawn.len()), &mut self.random) {
            (Some(&given), _) => given,
            (None, None) => 0,
            (None, Some(state)) => {
                *state =
                    state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (*state >> 32) as u32
            }
        };
        self.drawn.push(number);
        number
    }

    /// A number in `0..n`; 0 where there is nothing to choose from.
    pub fn below(&mut self, n: usize) -> usize {
        ((u64::from(self.next()) * n as u64) >> 32) as usize
    }

    /// True once in `n` times.
    pub fn once_in(&mut self, n: usize) -> bool {
        self.below(n) + 1 == n
    }

    /// One of these.
    pub fn one_of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    /// The numbers that decided so far.
    pub fn drawn(&self) -> &[u32] {
        &self.drawn
    }
}

/// Fewer and smaller numbers for which `fails` is still true, after at most `n_tries` tries.
pub fn shrink(numbers: &[u32], mut n_tries: usize, mut fails: impl FnMut(&[u32]) -> bool) -> Vec<u32> {
    let mut kept = numbers.to_vec();
    loop {
        let before = kept.clone();
        // The rest, then stretches from the back, then single numbers.
        let mut length = kept.len().div_ceil(2);
        while length > 0 {
            let mut end = kept.len();
            while end > 0 {
                let begin = end.saturating_sub(length);
                let without = [&kept[..begin], &kept[end..]].concat();
                try_one(&mut kept, without, &mut n_tries, &mut fails);
                end = begin.min(kept.len());
            }
            length /= 2;
        }
        for at in 0..kept.len() {
            for smaller in [0, kept[at] / 4, kept[at] / 2] {
                if smaller < kept[at] {
                    let mut other = kept.clone();
                    other[at] = smaller;
                    if try_one(&mut kept, other, &mut n_tries, &mut fails) {
                        break;
                    }
                }
            }
        }
        if kept == before || n_tries == 0 {
            return kept;
        }
    }
}

fn try_one(
    kept: &mut Vec<u32>,
    other: Vec<u32>,
    n_tries: &mut usize,
    fails: &mut impl FnMut(&[u32]) -> bool,
) -> bool {
    if *n_tries == 0 {
        return false;
    }
    *n_tries -= 1;
    let is_failing = fails(&other);
    if is_failing {
        *kept = other;
    }
    is_failing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_chooses_the_same_and_numbers_replay_it() {
        let draw = |mut choices: Choices| (1..50).map(|n| choices.below(n)).collect::<Vec<_>>();
        let mut first = Choices::of_seed(7);
        let seen: Vec<usize> = (1..50).map(|n| first.below(n)).collect();
        assert_eq!(seen, draw(Choices::of_seed(7)));
        assert_ne!(seen, draw(Choices::of_seed(8)));
        assert_eq!(seen, draw(Choices::of_numbers(first.drawn().to_vec())));
        assert_eq!(draw(Choices::of_bytes(&[])), vec![0; 49]);
        assert!((1..50).zip(&seen).all(|(n, &chosen)| chosen < n));
    }

    #[test]
    fn shrinking_leaves_what_the_failure_needs() {
        // It fails if some number of at least 1000 follows one of at least 10.
        let fails = |numbers: &[u32]| {
            let first = numbers.iter().position(|&n| n >= 10);
            first.is_some_and(|first| numbers[first + 1..].iter().any(|&n| n >= 1000))
        };
        let numbers: Vec<u32> = (0..60).map(|i| i * 77 % 4001).collect();
        assert!(fails(&numbers));
        let small = shrink(&numbers, 10_000, fails);
        assert!(fails(&small) && small.len() == 2, "{small:?}");
        assert!(small[0] < 40 && small[1] < 4000, "{small:?}");
        assert_eq!(shrink(&numbers, 0, fails), numbers);
    }
}
