//! Packs blocks (bytes over an interval of time) into as low an address range as it can.
//!
//! In: blocks. Out: one offset per block; blocks that overlap in time do not overlap in addresses. The problem is
//! NP-hard; [`lower_bound`] is the most bytes at one time. Training steps are nearly nested (what is made first is used
//! last), and first-fit in a good order usually meets the bound. The search:
//!
//! 1. Blocks that live all the time lie at the bottom, without gaps.
//! 2. First-fit of the others in several orders (longest life, most bytes, most bytes × time, first start).
//! 3. While neither the bound nor what the caller calls enough is met: take the best order of the large blocks, move those that
//!    reach highest towards its front, and a random one, fit again, keep what is no worse. Small blocks are fitted
//!    afterwards. Bounded work, deterministic.
//!
//! Each fit is O(n · blocks that overlap in time).

/// Bytes that are needed from run `start` to run `end`, both included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// First run.
    pub start: u32,
    /// Last run.
    pub end: u32,
    /// Size.
    pub bytes: u64,
}

impl Block {
    fn overlaps(&self, other: &Block) -> bool {
        self.start <= other.end && other.start <= self.end
    }
}

/// The most bytes in use at one time: no packing is smaller.
pub fn lower_bound(blocks: &[Block]) -> u64 {
    let mut events: Vec<(u32, bool, u64)> = Vec::with_capacity(2 * blocks.len());
    for block in blocks {
        events.push((block.start, true, block.bytes));
        events.push((block.end + 1, false, block.bytes));
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

/// Elementary steps that the improvement may take: a fraction of a second.
const WORK_LIMIT: u64 = 100_000_000;

/// Blocks that the improvement moves: the largest. The others fill gaps.
const N_LARGE: usize = 192;

/// Offsets for all blocks. The search stops when all lie below `enough`, or when no packing can be lower.
pub fn pack(blocks: &[Block], enough: u64) -> Vec<u64> {
    let bound = lower_bound(blocks).max(enough);
    let last = blocks.iter().map(|b| b.end).max().unwrap_or(0);
    let (lasting, passing): (Vec<usize>, Vec<usize>) =
        (0..blocks.len()).partition(|&i| blocks[i].start == 0 && blocks[i].end == last);
    let mut offsets = vec![0u64; blocks.len()];
    let mut floor = 0;
    for &i in &lasting {
        offsets[i] = floor;
        floor += blocks[i].bytes;
    }
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
            |b, length| (u128::from(length) << 64) | u128::from(b.bytes),
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
        if height <= self.bound { offsets } else { self.improve(height, order, offsets) }
    }

    /// Moves the large blocks that reach highest to the front of the order, again and again.
    fn improve(&mut self, height: u64, order: Vec<u32>, offsets: Vec<u64>) -> Vec<u64> {
        let mut best = (height, offsets);
        let mut by_size = order.clone();
        by_size.sort_by_key(|&i| std::cmp::Reverse(self.blocks[i as usize].bytes));
        let small = by_size.split_off(N_LARGE.min(by_size.len()));
        let is_small: std::collections::HashSet<u32> = small.iter().copied().collect();
        let mut order: Vec<u32> = order.into_iter().filter(|i| !is_small.contains(i)).collect();
        let (mut height, mut offsets) = self.fit(&order);
        let mut lowest_tried = u64::MAX;
        while best.0 > self.bound && self.work < WORK_LIMIT {
            // Small blocks nearly always find a gap; they are only fitted when the large ones lie lower than before.
            if height < lowest_tried {
                lowest_tried = height;
                let whole: Vec<u32> = order.iter().chain(&small).copied().collect();
                let fitted = self.fit(&whole);
                if fitted.0 < best.0 {
                    best = fitted;
                }
            }
            let mut candidate = order.clone();
            let top = |&i: &u32| offsets[i as usize] + self.blocks[i as usize].bytes == height;
            let highest: Vec<u32> = order.iter().copied().filter(top).collect();
            for i in highest {
                self.move_forward(&mut candidate, i);
            }
            let shuffled = candidate[self.below(candidate.len())];
            self.move_forward(&mut candidate, shuffled);
            let (new_height, new_offsets) = self.fit(&candidate);
            // Now and then a worse order is accepted, or the search would circle in one valley.
            if new_height <= height || self.below(64) == 0 {
                (height, order, offsets) = (new_height, candidate, new_offsets);
            }
        }
        best.1
    }

    /// Moves a block to a random earlier position.
    fn move_forward(&mut self, order: &mut Vec<u32>, block: u32) {
        if let Some(at) = order.iter().position(|&i| i == block) {
            let to = self.below(at + 1);
            order.remove(at);
            order.insert(to, block);
        }
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
                    offset = offset.max(other_offset + other.bytes);
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
