//! Packs blocks (bytes over an interval of time) into as low an address range as it can.
//!
//! In: blocks. Out: one offset per block; blocks that overlap in time do not overlap in addresses. The problem is
//! NP-hard; [`lower_bound`] is the most bytes at one time. Training steps are nearly nested (what is made first is used
//! last), and first-fit in a good order usually meets the bound. The search:
//!
//! 1. Blocks that live all the time lie at the bottom, without gaps.
//! 2. First-fit of the others in several orders (longest life, most bytes, most bytes × time, first start).
//! 3. While neither the bound nor what the caller calls enough is met: the large blocks are stacked by weights,
//!    and fitted again in the order of the addresses they got, which never places one higher. Blocks that reach above the
//!    bound gain weight, some others change theirs at random; what is no worse is kept. Small blocks are fitted afterwards,
//!    into the gaps. How many blocks are large and what weighs at first is varied. Bounded work, deterministic.
//!
//! Each fit is O(n · blocks that overlap in time). Stacking by weight is the best-fit of Sekiyama et al. ("Profile-guided
//! memory optimization for deep neural networks", 2018), which took the longest life first; that blocks in the way gain
//! weight is squeaky-wheel optimization (Joslin and Clements, 1999).

/// Bytes that are needed from moment `start` to moment `end`, both included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// First moment.
    pub start: u32,
    /// Last moment.
    pub end: u32,
    /// Size.
    pub bytes: u64,
    /// Its offset is a multiple of this.
    pub align: u64,
    /// First and last moment of a time in between during which it is not there. Afterwards it has the same offset again.
    pub gap: Option<(u32, u32)>,
}

impl Block {
    /// A block without a gap that may lie anywhere.
    pub fn new(start: u32, end: u32, bytes: u64) -> Block {
        Block { start, end, bytes, align: 1, gap: None }
    }

    fn overlaps(&self, other: &Block) -> bool {
        let (start, end) = (self.start.max(other.start), self.end.min(other.end));
        let is_away = |gap: Option<(u32, u32)>| gap.is_some_and(|(from, to)| from <= start && end <= to);
        start <= end && !is_away(self.gap) && !is_away(other.gap)
    }
}

/// The most bytes in use at one time: no packing is smaller.
pub fn lower_bound(blocks: &[Block]) -> u64 {
    let mut events: Vec<(u32, bool, u64)> = Vec::with_capacity(2 * blocks.len());
    for block in blocks {
        events.push((block.start, true, block.bytes));
        events.push((block.end + 1, false, block.bytes));
        if let Some((from, to)) = block.gap {
            events.extend([(from, false, block.bytes), (to + 1, true, block.bytes)]);
        }
    }
    // At equal times what ends comes before what starts: `false < true`.
    events.sort_unstable();
    let (mut now, mut most) = (0u64, 0u64);
    for (_, begins, bytes) in events {
        if begins {
            now += bytes;
            most = most.max(now);
        } else {
            now -= bytes;
        }
    }
    most
}

/// Elementary steps that the improvement may take: about a second.
const WORK_LIMIT: u64 = 600_000_000;

/// Stacks that one start may try: few blocks take little work each.
const MOST_STACKS: usize = 3000;

/// Numbers of blocks, from the largest on, that the improvement moves. The others fill gaps.
const N_LARGE: [usize; 2] = [800, 400];

/// At first a block weighs its bytes times one of these functions of its life.
const OF_LIFE: [fn(f64) -> f64; 3] = [|life| life, |_| 1.0, f64::sqrt];

/// One in so many worse stacks is accepted, or the search would circle in one valley.
const WORSE_ACCEPTED: usize = 20;

/// Offsets for all blocks. The search stops when all lie below `enough`, or when no packing can be lower.
pub fn pack(blocks: &[Block], enough: u64) -> Vec<u64> {
    let bound = lower_bound(blocks).max(enough);
    let last = blocks.iter().map(|b| b.end).max().unwrap_or(0);
    let lasts = |block: &Block| block.start == 0 && block.end == last && block.gap.is_none();
    let (lasting, passing): (Vec<usize>, Vec<usize>) = (0..blocks.len()).partition(|&i| lasts(&blocks[i]));
    let mut offsets = vec![0u64; blocks.len()];
    let mut floor: u64 = 0;
    for &i in &lasting {
        offsets[i] = floor.next_multiple_of(blocks[i].align);
        floor = offsets[i] + blocks[i].bytes;
    }
    // What lies above counts its offsets from here.
    let align = passing.iter().map(|&i| blocks[i].align).max().unwrap_or(1);
    floor = floor.next_multiple_of(align);
    let moving: Vec<Block> = passing.iter().map(|&i| blocks[i]).collect();
    let packed = Search::new(&moving, &vec![None; moving.len()], bound.saturating_sub(floor)).run();
    for (&i, offset) in passing.iter().zip(packed) {
        offsets[i] = floor + offset;
    }
    offsets
}

/// As [`pack`], around blocks that already have an offset: those keep it.
pub fn pack_around(blocks: &[Block], fixed: &[Option<u64>], enough: u64) -> Vec<u64> {
    Search::new(blocks, fixed, enough).run()
}

struct Search<'a> {
    blocks: &'a [Block],
    /// Blocks that have a place already, by offset.
    fixed: Vec<(u64, u32)>,
    bound: u64,
    work: u64,
    random: u64,
}

impl<'a> Search<'a> {
    fn new(blocks: &'a [Block], fixed: &[Option<u64>], bound: u64) -> Self {
        let placed = fixed.iter().zip(0..).filter_map(|(offset, i)| Some(((*offset)?, i)));
        let mut fixed: Vec<(u64, u32)> = placed.collect();
        fixed.sort_unstable();
        Search { blocks, fixed, bound, work: 0, random: 0x9E37_79B9_7F4A_7C15 }
    }

    fn run(mut self) -> Vec<u64> {
        let length = |b: &Block| u64::from(b.end - b.start) + 1;
        type Score = fn(&Block, u64) -> u128;
        let scores: [Score; 4] = [
            |b, length| (u128::from(length) << 64) + u128::from(b.bytes),
            |b, _| u128::from(b.bytes),
            |b, length| u128::from(b.bytes) * u128::from(length),
            |b, _| u128::from(u32::MAX - b.start),
        ];
        let mut best: Option<(u64, Vec<u32>, Vec<u64>)> = None;
        let is_fixed: std::collections::HashSet<u32> = self.fixed.iter().map(|&(_, i)| i).collect();
        for score in scores {
            let mut order: Vec<u32> =
                (0..self.blocks.len() as u32).filter(|i| !is_fixed.contains(i)).collect();
            order.sort_by_key(|&i| {
                let block = &self.blocks[i as usize];
                std::cmp::Reverse(score(block, length(block)))
            });
            let (height, offsets) = self.fit(&order);
            if best.as_ref().is_none_or(|(h, ..)| height < *h) {
                best = Some((height, order, offsets));
            }
            if height <= self.bound {
                break;
            }
        }
        let (height, order, offsets) = best.expect("at least one order was tried");
        if height <= self.bound || order.is_empty() { offsets } else { self.improve(height, order, offsets) }
    }

    /// Stacks the large blocks by weights that learn, from several starts.
    fn improve(&mut self, height: u64, mut by_size: Vec<u32>, offsets: Vec<u64>) -> Vec<u64> {
        let mut best = (height, offsets);
        by_size.sort_by_key(|&i| std::cmp::Reverse(self.blocks[i as usize].bytes));
        let mut sizes = N_LARGE.map(|n| n.min(by_size.len())).to_vec();
        sizes.dedup();
        let n_starts = sizes.len() * OF_LIFE.len();
        let share = WORK_LIMIT / n_starts as u64;
        for (of_life, &n_large) in OF_LIFE.iter().flat_map(|f| sizes.iter().map(move |n| (f, n))) {
            self.climb(*of_life, by_size.split_at(n_large), self.work + share, &mut best);
        }
        best.1
    }

    /// One start of [`Search::improve`], until the bound is met or the work is done.
    fn climb(
        &mut self,
        of_life: fn(f64) -> f64,
        (large, small): (&[u32], &[u32]),
        limit: u64,
        best: &mut (u64, Vec<u64>),
    ) {
        let weight = |&i: &u32| {
            let block = &self.blocks[i as usize];
            block.bytes as f64 * of_life(f64::from(block.end - block.start) + 1.0)
        };
        let mut weights: Vec<f64> = large.iter().map(weight).collect();
        let mut kept = (u64::MAX, weights.clone());
        let mut lowest = u64::MAX;
        for _ in 0..MOST_STACKS {
            if best.0 <= self.bound || self.work >= limit {
                break;
            }
            let order = self.stack(large, &weights);
            let (height, offsets) = self.fit(&order);
            // Small blocks nearly always find a gap; they are only fitted when the large ones lie lower than before.
            if height < lowest {
                lowest = height;
                let whole: Vec<u32> = order.iter().chain(small).copied().collect();
                let fitted = self.fit(&whole);
                if fitted.0 < best.0 {
                    *best = fitted;
                }
            }
            if height <= kept.0 || self.below(WORSE_ACCEPTED) == 0 {
                kept = (height, weights.clone());
            } else {
                weights.clone_from(&kept.1);
            }
            for (&i, weight) in large.iter().zip(&mut weights) {
                if offsets[i as usize] + self.blocks[i as usize].bytes > self.bound {
                    *weight *= 1.0 + self.unit();
                }
            }
            for _ in 0..=self.below(3) {
                let (at, change) = (self.below(large.len()), 1.0 + 2.0 * self.unit());
                weights[at] *= if self.below(2) == 0 { change } else { 1.0 / change };
            }
        }
    }

    /// Stacks blocks on the time axis and returns them by ascending address: the heaviest block whose life lies within the
    /// lowest stretch of the surface goes there; where none does, the stretch is filled up to its lower neighbour.
    fn stack(&mut self, blocks: &[u32], weights: &[f64]) -> Vec<u32> {
        let mut by_weight: Vec<usize> = (0..blocks.len()).collect();
        by_weight.sort_by(|&a, &b| weights[b].total_cmp(&weights[a]));
        // Lives lie side by side, because they are looked through all the time.
        let life = |at: usize| (self.blocks[blocks[at] as usize].start, self.blocks[blocks[at] as usize].end);
        let mut lives: Vec<(u32, u32)> = by_weight.iter().map(|&at| life(at)).collect();
        let mut waiting: Vec<u32> = by_weight.iter().map(|&at| blocks[at]).collect();
        let mut stacked = Vec::with_capacity(blocks.len());
        let mut surface = vec![Stretch { start: 0, end: u32::MAX, height: 0 }];
        while !waiting.is_empty() {
            let lowest = surface.iter().copied().enumerate().min_by_key(|(_, stretch)| stretch.height);
            let (at, low) = lowest.expect("time is covered");
            let found = lives.iter().position(|&(start, end)| low.start <= start && end <= low.end);
            self.work += (surface.len() + found.unwrap_or(waiting.len())) as u64;
            // The surface is lowest here, so addresses ascend.
            let (start, end, height) = match found {
                Some(found) => {
                    lives.remove(found);
                    let i = waiting.remove(found);
                    stacked.push(i);
                    let block = &self.blocks[i as usize];
                    (block.start, block.end, low.height + block.bytes)
                }
                None => {
                    let neighbours = [at.checked_sub(1), Some(at + 1)].into_iter().flatten();
                    let heights = neighbours.filter_map(|n| Some(surface.get(n)?.height));
                    (low.start, low.end, heights.min().expect("the whole of time holds any block"))
                }
            };
            raise(&mut surface, at, Stretch { start, end, height });
        }
        stacked
    }

    /// A number from 0 to 1.
    fn unit(&mut self) -> f64 {
        self.below(1 << 20) as f64 / f64::from(1 << 20)
    }

    fn below(&mut self, n: usize) -> usize {
        // xorshift64: good enough to break ties, and the same on every machine.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % n.max(1) as u64) as usize
    }

    /// Places the blocks in this order, each at the lowest offset that is free for its whole life.
    fn fit(&mut self, order: &[u32]) -> (u64, Vec<u64>) {
        let mut offsets = vec![0u64; self.blocks.len()];
        // Placed blocks by offset, so that a gap is found in one pass.
        let mut placed: Vec<u32> = Vec::with_capacity(self.fixed.len() + order.len());
        let mut height = 0;
        for &(offset, i) in &self.fixed {
            offsets[i as usize] = offset;
            height = height.max(offset + self.blocks[i as usize].bytes);
            placed.push(i);
        }
        for &i in order {
            let block = &self.blocks[i as usize];
            let mut offset = 0;
            for &other_index in &placed {
                let other = &self.blocks[other_index as usize];
                let other_offset = offsets[other_index as usize];
                if other_offset >= offset + block.bytes {
                    break;
                }
                if other.overlaps(block) {
                    offset = offset.max((other_offset + other.bytes).next_multiple_of(block.align));
                }
            }
            self.work += placed.len() as u64;
            offsets[i as usize] = offset;
            height = height.max(offset + block.bytes);
            let at = placed.partition_point(|&p| offsets[p as usize] <= offset);
            placed.insert(at, i);
        }
        (height, offsets)
    }
}

/// A part of time and the height up to which it is filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stretch {
    start: u32,
    end: u32,
    height: u64,
}

/// Puts a higher stretch over a part of stretch `at`, and joins it with neighbours of the same height.
fn raise(surface: &mut Vec<Stretch>, at: usize, mut top: Stretch) {
    let old = surface[at];
    let before = (old.start < top.start).then(|| Stretch { end: top.start - 1, ..old });
    let after = (top.end < old.end).then(|| Stretch { start: top.end + 1, ..old });
    let (mut from, mut to) = (at, at + 1);
    if before.is_none() && at > 0 && surface[at - 1].height == top.height {
        (from, top.start) = (at - 1, surface[at - 1].start);
    }
    if after.is_none() && surface.get(at + 1).is_some_and(|next| next.height == top.height) {
        (to, top.end) = (at + 2, surface[at + 1].end);
    }
    surface.splice(from..to, before.into_iter().chain([top]).chain(after));
}
