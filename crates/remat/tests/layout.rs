//! Packing: never an overlap, never below the bound, and close to it on step-like lives. Small layouts, and one case for every
//! kind of fault, are text cases in tests/corpus/; broken layouts of whole steps are in tests/mutations.rs.

#[path = "common/planned.rs"]
mod planned;

use remat::layout::{Block, LayoutFault, assign_around, check, lower_bound, pack, pack_around};
use remat_plan::Bytes;

/// A small deterministic generator; the tests need variety, not quality.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

fn height(blocks: &[Block], offsets: &[u64]) -> u64 {
    blocks.iter().zip(offsets).map(|(b, o)| b.bytes + o).max().unwrap_or(0)
}

fn assert_disjoint(blocks: &[Block], offsets: &[u64]) {
    for i in 0..blocks.len() {
        for j in 0..i {
            let in_time = blocks[i].start <= blocks[j].end && blocks[j].start <= blocks[i].end;
            let in_space =
                offsets[i] < offsets[j] + blocks[j].bytes && offsets[j] < offsets[i] + blocks[i].bytes;
            assert!(!(in_time && in_space), "blocks {i} and {j} overlap");
        }
    }
}

#[test]
fn random_blocks_never_overlap() {
    let mut random = Random(7);
    for case in 0..60 {
        let n = 1 + random.below(60) as usize;
        let blocks: Vec<Block> = (0..n)
            .map(|_| {
                let start = random.below(40) as u32;
                Block::new(start, start + random.below(12) as u32, 64 * (1 + random.below(20)))
            })
            .collect();
        let offsets = pack(&blocks, 0);
        assert_disjoint(&blocks, &offsets);
        let (got, bound) = (height(&blocks, &offsets), lower_bound(&blocks));
        assert!(got >= bound, "case {case}: below the bound");
        assert!(got as f64 <= 1.25 * bound as f64, "case {case}: {got} for a bound of {bound}");
    }
}

/// Cuts a rectangle of time and memory into blocks, which then fill it without a gap.
fn cut(random: &mut Random, time: (u32, u32), bytes: u64, n_cuts: u32, blocks: &mut Vec<Block>) {
    let (start, end) = time;
    let (can_cut_time, can_cut_bytes) = (start < end, bytes > 64);
    if n_cuts == 0 || !(can_cut_time || can_cut_bytes) {
        blocks.push(Block::new(start, end, bytes));
    } else if can_cut_time && (!can_cut_bytes || random.below(2) == 0) {
        let middle = start + random.below(u64::from(end - start)) as u32;
        cut(random, (start, middle), bytes, n_cuts - 1, blocks);
        cut(random, (middle + 1, end), bytes, n_cuts - 1, blocks);
    } else {
        let below = 64 * (1 + random.below(bytes / 64 - 1));
        cut(random, time, below, n_cuts - 1, blocks);
        cut(random, time, bytes - below, n_cuts - 1, blocks);
    }
}

#[test]
fn a_rectangle_that_was_cut_up_is_put_together_again_nearly_without_gaps() {
    let mut random = Random(11);
    let mut waste = 0.0;
    for _ in 0..8 {
        let mut blocks = Vec::new();
        cut(&mut random, (0, 299), 64 * 4000, 7, &mut blocks);
        let (offsets, bound) = (pack(&blocks, 0), lower_bound(&blocks));
        assert_disjoint(&blocks, &offsets);
        waste += (height(&blocks, &offsets) as f64 / bound as f64 - 1.0) / 8.0;
    }
    println!("{:.2} % wasted on average", 100.0 * waste);
    assert!(waste < 0.01, "{waste}");
}

#[test]
fn blocks_with_a_place_keep_it() {
    let block = |start, end| Block::new(start, end, 64);
    let blocks = [block(0, 3), block(2, 5), block(4, 8)];
    // The second block must leave the first its place; there is nothing left to move where all have one.
    assert_eq!(pack_around(&blocks, &[Some(64), None, Some(64)], 0), [64, 0, 64]);
    assert_eq!(pack_around(&blocks, &[Some(64), Some(0), Some(128)], 0), [64, 0, 128]);
}

#[test]
fn nested_lives_meet_the_bound() {
    // Activations of a chain: made in order, used in reverse order, with a gradient and a workspace at each step.
    let n = 40u32;
    let mut blocks = Vec::new();
    for i in 0..n {
        blocks.push(Block::new(i, 2 * n - i, 64 * u64::from(1 + i % 7)));
        let start = 2 * n - i;
        blocks.push(Block::new(start, (start + 1).min(2 * n), 64 * u64::from(1 + i % 5)));
        blocks.push(Block::new(i, i, 64 * u64::from(i % 3)));
    }
    let offsets = pack(&blocks, 0);
    assert_disjoint(&blocks, &offsets);
    assert_eq!(height(&blocks, &offsets), lower_bound(&blocks));
}

#[test]
fn nothing_to_pack_needs_nothing() {
    assert!(pack(&[], 0).is_empty());
    assert_eq!(lower_bound(&[]), 0);
}

/// Evaluation is laid out around the state of training; nothing but its checker sees that the state is where it was.
#[test]
fn state_that_has_a_place_must_keep_it() {
    let (_, program) = planned::programs().remove(0);
    let (schedule, training) = (program.schedule(), program.layout());
    let graph = &schedule.graph;
    let states = graph.sources.iter().map(|s| s.value).filter(|&v| graph.values[v].kind.is_state());
    let mut placed: Vec<_> = states.map(|v| (v, training.offset[v].expect("state has a place"))).collect();
    let around = assign_around(schedule, &placed, Bytes(u64::MAX)).expect("a right layout");
    assert_eq!(check(schedule, &around, &placed), Vec::new());
    let (value, offset) = placed[0];
    placed[0].1 = offset + 64;
    let fault = LayoutFault::Displaced { value, expected: offset + 64, found: offset };
    assert_eq!(check(schedule, &around, &placed), [fault]);
}
