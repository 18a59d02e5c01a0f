//! Packing: never an overlap, never below the bound, and close to it on step-like lives.

use remat::graph::Graph;
use remat::ids::{Id, IdVec, NodeId, ValueId};
use remat::layout::{Block, Layout, assign, check, lower_bound, pack, pack_around};
use remat::profile::problem;
use remat::rewrite::{Schedule, apply};
use remat_plan::{Bytes, Request, solve};

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
                Block { start, end: start + random.below(12) as u32, bytes: 64 * (1 + random.below(20)) }
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
        blocks.push(Block { start, end, bytes });
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
    let block = |start, end| Block { start, end, bytes: 64 };
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
        blocks.push(Block { start: i, end: 2 * n - i, bytes: 64 * u64::from(1 + i % 7) });
        blocks.push(Block {
            start: 2 * n - i,
            end: (2 * n - i + 1).min(2 * n),
            bytes: 64 * u64::from(1 + i % 5),
        });
        blocks.push(Block { start: i, end: i, bytes: 64 * u64::from(i % 3) });
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

const STEP: &str = r#"graph "tiny"
%0: f32[16] = input "x" "batch"
%1: f32[16] = parameter "w" {"uniform":0.5}
%2: f32[16] = add {} %0 %1 @a forward
%3: f32[16] = relu {} %2 @b forward
%4: f32[16] = relu {} %3 @c forward
%5: f32[16] = relu_grad {} %4 %4 @c backward
%6: f32[16] = relu_grad {} %3 %5 @b backward
%7: f32[16] = sgd {"momentum":0.0,"nesterov":false,"weight_decay":0.0} %1 %6 @a optimizer
output %4
"#;

/// The keep-all schedule of the fixture.
fn schedule() -> Schedule {
    let graph = Graph::from_text(STEP).expect("valid text");
    let seconds = IdVec::filled(graph.nodes.len(), 1.0);
    let problem = problem(&graph, &seconds).expect("a valid problem");
    let outcome =
        solve(&problem.problem, "save-all", &Request::new(Bytes(u64::MAX))).expect("a known planner");
    apply(&graph, &problem, outcome.plan().expect("keep-all always fits")).expect("a right schedule")
}

#[test]
fn dying_inputs_hand_their_storage_over() {
    let layout = assign(&schedule(), Bytes(0)).expect("a right layout");
    let of = |n: usize| layout.offset[ValueId::new(n)];
    // x dies in the addition, the sum in the first relu: all three lie in one place. State stays where it is.
    assert_eq!((of(0), of(2)), (of(2), of(3)));
    assert_eq!(of(1), of(7));
    assert_eq!(layout.arena, Bytes(4 * 64));
    assert_eq!(layout.arena, layout.used);
}

/// Node 3 reads value 4, which is the step's output and must survive.
fn overwrite_a_live_input(layout: &mut Layout) {
    layout.shared[NodeId::new(3)] = vec![(0, 0)];
    layout.offset[ValueId::new(5)] = layout.offset[ValueId::new(4)];
}

#[test]
fn the_checker_sees_what_a_wrong_layout_would_do() {
    let schedule = schedule();
    let right = assign(&schedule, Bytes(0)).expect("a right layout");
    let broken = |change: &dyn Fn(&mut Layout)| {
        let mut layout = right.clone();
        change(&mut layout);
        check(&schedule, &layout)
    };
    assert!(broken(&|_| {}).is_empty());
    let value = ValueId::new;
    let faults: [(&str, Vec<String>); 6] = [
        ("overlaps", broken(&|l| l.offset[value(4)] = l.offset[value(3)])),
        ("outside", broken(&|l| l.arena = Bytes(3 * 64))),
        ("not aligned", broken(&|l| l.offset[value(5)] = l.offset[value(5)].map(|o| o + 4))),
        ("no place", broken(&|l| l.offset[value(6)] = None)),
        ("does not overwrite", broken(&|l| l.shared[NodeId::new(5)].clear())),
        ("still live", broken(&|l| overwrite_a_live_input(l))),
    ];
    for (word, found) in faults {
        assert!(found.iter().any(|f| f.contains(word)), "no `{word}` in {found:?}");
    }
}
