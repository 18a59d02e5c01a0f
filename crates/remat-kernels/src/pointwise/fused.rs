//! The loop under fused element-wise programs: blocks that stay in the nearest cache from the first step to the last.
//!
//! In: the inputs, the output, and a body that computes one block. The body calls ordinary element-wise kernels on parts of
//! its operands; what passes from one to the next lies in a register file of a few blocks. Large tensors are read once and
//! written once, whatever the number of steps, and each element sees the same arithmetic as in separate passes, so the
//! bits are the same. Time O(n), no workspace.

use std::cell::UnsafeCell;
use std::ops::Range;

use crate::base::cache::{LINE, prefetch};
use crate::base::par;
use crate::base::raw::{Dst, Src};
use crate::base::vector::{Kernel, Vector, dispatch};

/// Elements of a block: few, so that the requests for later blocks spread evenly, and enough that choosing the kernels costs
/// little.
pub const BLOCK: usize = 256;
/// Blocks from the one that is computed to the one whose memory is asked for. The steps of a block take turns with the tensors,
/// so the processor does not foresee what comes next; without asking, a chain of three steps takes half as long again.
const AHEAD: usize = 2;
/// Values that can wait in registers at the same time.
pub const REGISTERS: usize = 4;
/// Elements per task, enough to pay for clearing the registers.
const TASK: usize = 1 << 16;

/// Blocks of intermediate values; each task has its own.
pub struct Registers(UnsafeCell<[[f32; BLOCK]; REGISTERS]>);

impl Registers {
    fn new() -> Registers {
        Registers(UnsafeCell::new([[0.0; BLOCK]; REGISTERS]))
    }

    /// The first `len` elements of a register, to be read.
    pub fn src(&self, register: usize, len: usize) -> Src<'_> {
        assert!(register < REGISTERS && len <= BLOCK, "register out of range");
        // SAFETY: in range as asserted. The cell is not shared between threads, and what is read here is written only
        // by the same kernel call, element for element, which is what `Src` and `Dst` are made for.
        unsafe { Src::from_raw(self.0.get().cast::<f32>().add(register * BLOCK), len) }
    }

    /// The first `len` elements of a register, to be written.
    pub fn dst(&self, register: usize, len: usize) -> Dst<'_> {
        assert!(register < REGISTERS && len <= BLOCK, "register out of range");
        // SAFETY: as above.
        unsafe { Dst::from_raw(self.0.get().cast::<f32>().add(register * BLOCK), len) }
    }
}

/// Runs `body` on blocks that cover `y`, in parallel. Inputs are as long as `y` or are rows, all of one length, that repeat: a
/// block holds whole rows if they are short, and lies inside one row if they are long.
pub fn for_each_block(inputs: &[Src<'_>], y: Dst<'_>, body: impl Fn(Range<usize>, &Registers) + Sync + Send) {
    let len = y.len();
    let row = inputs.iter().map(Src::len).find(|&n| n != len).unwrap_or(len).max(1);
    let block = if row <= BLOCK { BLOCK / row * row } else { BLOCK };
    par::for_each_range(len, TASK / block * block, |task| {
        let registers = Registers::new();
        let mut at = task.start;
        while at < task.end {
            let row_end = if row > BLOCK { (at / row + 1) * row } else { usize::MAX };
            let end = (at + block).min(task.end).min(row_end);
            let streams = inputs.iter().filter(|input| input.len() == len).map(Src::address);
            for stream in streams.chain([y.address()]) {
                let ahead = stream.wrapping_add(at + AHEAD * block);
                (0..end - at).step_by(LINE).for_each(|line| prefetch(ahead.wrapping_add(line)));
            }
            body(at..end, &registers);
            at = end;
        }
    });
}

/// The part of an operand that a block of [`for_each_block`] sees: its own elements, or for a repeated operand the
/// row or the part of the row that the block covers.
pub fn part<'a>(operand: Src<'a>, len: usize, block: &Range<usize>) -> Src<'a> {
    let row = operand.len();
    if row == len {
        operand.part(block.start, block.len())
    } else if row <= BLOCK {
        operand
    } else {
        operand.part(block.start % row, block.len())
    }
}

/// `y = (x - mean) * scale + bias` with one constant of each kind per column; rows repeat them. `y` may be `x`.
pub fn normalise(x: Src<'_>, [mean, scale, bias]: [Src<'_>; 3], y: Dst<'_>) {
    assert_eq!(x.len(), y.len(), "input and output have the same length");
    assert!(mean.len() > 0 && x.len().is_multiple_of(mean.len()), "whole rows");
    assert_eq!([scale.len(), bias.len()], [mean.len(); 2], "as many constants of each kind");
    dispatch(Normalise { x, constants: [mean, scale, bias], y });
}

/// In vectors rather than arrays: of these the compiler takes rows of 512 and more sixteen at a time, and spends five times
/// as long on sorting their elements.
struct Normalise<'a> {
    x: Src<'a>,
    constants: [Src<'a>; 3],
    y: Dst<'a>,
}

impl Kernel for Normalise<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let (x, constants, y) = (self.x.address(), self.constants.map(|row| row.address()), self.y.address());
        let row = self.constants[0].len();
        for start in (0..self.x.len()).step_by(row) {
            for at in (0..row).step_by(V::LANES) {
                let n = V::LANES.min(row - at);
                // SAFETY: all rows have `row` elements, of which `n` follow `at`. The caller's block belongs to one task,
                // which has read these elements before it writes them.
                unsafe {
                    let of = |from: *const f32| {
                        if n == V::LANES { V::load(from) } else { V::load_first(from, n) }
                    };
                    let [mean, scale, bias] = constants.map(|row| of(row.add(at)));
                    let result = (of(x.add(start + at)) - mean) * scale + bias;
                    let to = y.add(start + at).cast_mut();
                    if n == V::LANES { result.store(to) } else { result.store_first(to, n) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pointwise::{activation, elementwise};
    use crate::testing::{random, same_bits_in_any_pool};

    /// `relu(a + row)` in one pass and in two.
    #[test]
    fn one_pass_gives_the_bits_of_separate_passes() {
        let sizes =
            [(1, 1), (7, 3), (100, 64), (3, 1000), (33, BLOCK), (5, BLOCK + 1), (3, 70_001), (40_000, 5)];
        for (rows, cols) in sizes {
            let (a, row) = (random(rows * cols, 1), random(cols, 2));
            let fused = same_bits_in_any_pool(|| {
                let mut y = vec![f32::NAN; a.len()];
                let (a, row, out) = (Src::from(&a[..]), Src::from(&row[..]), Dst::from(&mut y[..]));
                for_each_block(&[a, row], out, |block, registers| {
                    let len = block.len();
                    let (terms, sum) = ([a, row].map(|x| part(x, a.len(), &block)), registers.dst(0, len));
                    elementwise::add(terms[0], terms[1], sum);
                    activation::relu(registers.src(0, len), out.part(block.start, len));
                });
                y
            });
            let mut apart = vec![f32::NAN; a.len()];
            elementwise::add(Src::from(&a[..]), Src::from(&row[..]), Dst::from(&mut apart[..]));
            let sum = apart.clone();
            activation::relu(Src::from(&sum[..]), Dst::from(&mut apart[..]));
            let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert!(bits(&fused) == bits(&apart), "[{rows}, {cols}]");
        }
    }

    #[test]
    fn blocks_cover_everything_once_and_keep_to_rows() {
        for (len, row) in [(0, 0), (1, 1), (10_000, 10_000), (9_000, 3), (BLOCK * 100, BLOCK * 10 + 5)] {
            let seen: Vec<_> = (0..len).map(|_| std::sync::atomic::AtomicU8::new(0)).collect();
            let (whole, mut y) = (vec![0.0; len], vec![0.0; len]);
            let inputs = [&whole[..], &whole[..row]].map(Src::from);
            for_each_block(&inputs, Dst::from(&mut y[..]), |block, _| {
                assert!(row > BLOCK || block.start % row == 0, "a block begins with a row");
                assert!(
                    row <= BLOCK || block.start / row == (block.end - 1) / row,
                    "a block stays in its row"
                );
                block.for_each(|i| {
                    seen[i].fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                });
            });
            assert!(seen.iter().all(|n| n.load(std::sync::atomic::Ordering::Relaxed) == 1), "{len}, {row}");
        }
    }
}
