//! What a product reads and writes, as its loops see it: the sizes, the parts of the sums, and where operands lie.
//!
//! A new kind of product (another convolution, another way of packing) is one implementation of [`Operands`].

use std::ops::Range;

use crate::product::prefetch::Region;

pub(crate) use crate::product::micro::RowPointers;

/// The sizes of a product.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) taps: usize,
    pub(crate) depth: usize,
}

/// Some steps of the sums: these steps of each of these taps.
#[derive(Clone)]
pub(crate) struct Visit {
    pub(crate) taps: Range<usize>,
    pub(crate) steps: Range<usize>,
}

/// What a product reads and where it writes.
///
/// # Safety
/// [`Operands::left`] leaves pointers that are readable as it says, and [`Operands::target`] gives addresses of rows
/// of `cols` columns `col_stride` apart, writable and different for different rows.
pub(crate) unsafe trait Operands: Sync {
    /// Fills `block` with panels of the columns `cols`, zeros beyond them, for some steps of one tap; panels are
    /// [`right_stride`](crate::product::panel::right_stride) apart.
    fn pack_right(&self, tap: usize, steps: Range<usize>, cols: Range<usize>, block: &mut [f32]);

    /// Fills `pointers`, one entry for every block of rows and tap of the visit, blocks outermost; returns the elements
    /// from one step to the next. Rows beyond the range may point to anything readable. What does not lie well in memory
    /// is copied to `space`, which has room for panels of all rows, [`LEFT_STRIDE`](crate::product::panel::LEFT_STRIDE) apart.
    fn left(
        &self,
        rows: Range<usize>,
        visit: &Visit,
        pointers: &mut [RowPointers],
        space: &mut [f32],
    ) -> usize;

    /// Where the left operand of some rows lies, about.
    fn left_region(&self, rows: Range<usize>, visit: &Visit) -> Region;

    /// Where the right operand of some columns lies, about.
    fn right_region(&self, cols: Range<usize>, visit: &Visit) -> Region;

    /// The address of column 0 of a row of the output.
    fn target(&self, row: usize) -> *mut f32;

    /// Elements from one column of the output to the next.
    fn col_stride(&self) -> usize {
        1
    }
}
