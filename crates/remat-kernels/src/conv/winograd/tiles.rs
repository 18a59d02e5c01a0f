//! Tiles of an image: where they lie, and how they are read, transformed and written.

use super::transform::{INPUTS, Input, OUTPUTS, Output, OutputGrad, PRODUCTS, both_ways};
use crate::base::cache::{LINE, prefetch};
use crate::base::raw::Dst;
use crate::base::vector::Vector;
use crate::product::micro::{COLS, Write};

/// The sizes of an image.
#[derive(Clone, Copy)]
pub(super) struct Image {
    pub(super) h: usize,
    pub(super) w: usize,
    pub(super) c: usize,
}

/// The tiles of an output image of a convolution, image after image and row by row.
#[derive(Clone, Copy)]
pub(super) struct Tiles {
    /// What a convolution reads, and the zeros around it.
    pub(super) source: Image,
    pub(super) padding: (usize, usize),
    /// What it writes.
    pub(super) target: Image,
}

/// Where transformed elements of a tile go: element `(e, channel)` to `first[e · of_product + channel / 16 · of_panel + channel
/// % 16]`.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) first: *mut f32,
    pub(super) of_product: usize,
    pub(super) of_panel: usize,
}

impl Tiles {
    pub(super) fn per_image(&self) -> usize {
        self.target.h.div_ceil(OUTPUTS) * self.target.w.div_ceil(OUTPUTS)
    }

    /// The image of a tile, and the first row and column of its outputs.
    #[inline(always)]
    fn corner(&self, tile: usize) -> (usize, usize, usize) {
        let across = self.target.w.div_ceil(OUTPUTS);
        let (image, tile) = (tile / self.per_image(), tile % self.per_image());
        (image, tile / across * OUTPUTS, tile % across * OUTPUTS)
    }

    /// Transforms what the kernel sees at a tile, all channels.
    ///
    /// # Safety
    /// `source` begins an array of images, of which the tile has one; the place has room for `PRODUCTS` elements of every
    /// channel, and for whole vectors.
    #[inline(always)]
    pub(super) unsafe fn transform_input<V: Vector>(&self, source: *const f32, tile: usize, place: Place) {
        let (image, row, col) = self.corner(tile);
        let corner = (row.wrapping_sub(self.padding.0), col.wrapping_sub(self.padding.1));
        // SAFETY: the caller's promise.
        unsafe { read_square::<V, INPUTS, Input>(source, self.source, image, corner, place) }
    }

    /// Transforms the outputs of a tile, all channels, for the gradient of the weights.
    ///
    /// # Safety
    /// As for [`Tiles::transform_input`], with images of outputs.
    #[inline(always)]
    pub(super) unsafe fn transform_output_grad<V: Vector>(&self, dy: *const f32, tile: usize, place: Place) {
        let (image, row, col) = self.corner(tile);
        // SAFETY: the caller's promise.
        unsafe { read_square::<V, OUTPUTS, OutputGrad>(dy, self.target, image, (row, col), place) }
    }

    /// Writes the outputs of a tile for the `n` channels from `channel` on, from products that lie `of_product` apart.
    ///
    /// # Safety
    /// Whole vectors of products are readable, and nothing else touches the outputs of the tile now.
    #[allow(clippy::too_many_arguments)]
    #[inline(always)]
    pub(super) unsafe fn write_outputs<V: Vector>(
        &self,
        products: *const f32,
        of_product: usize,
        tile: usize,
        channel: usize,
        n: usize,
        target: Dst<'_>,
        write: Write,
    ) {
        let (image, row, col) = self.corner(tile);
        let Image { h, w, c } = self.target;
        let mut lane = 0;
        while lane < n {
            let n_lanes = V::LANES.min(n - lane);
            let mut m = [[V::splat(0.0); INPUTS]; INPUTS];
            for (e, m) in m.as_flattened_mut().iter_mut().enumerate() {
                // SAFETY: the caller's promise.
                *m = unsafe { V::load(products.add(e * of_product + lane)) };
            }
            let y = both_ways::<Output, V, INPUTS, OUTPUTS>(&m);
            for (i, y) in y.into_iter().enumerate().take(h - row) {
                for (j, y) in y.into_iter().enumerate().take(w - col) {
                    let out = target.at(((image * h + row + i) * w + col + j) * c + channel + lane);
                    // SAFETY: as many channels of a position inside the image, which belongs to this tile.
                    unsafe {
                        match (write, n_lanes == V::LANES) {
                            (Write::Overwrite, true) => y.store(out),
                            (Write::Overwrite, false) => y.store_first(out, n_lanes),
                            (Write::Accumulate, true) => (V::load(out) + y).store(out),
                            (Write::Accumulate, false) => {
                                (V::load_first(out, n_lanes) + y).store_first(out, n_lanes);
                            }
                        }
                    }
                }
            }
            lane += V::LANES;
        }
    }
}

/// Reads a square of `I × I` positions, with zeros beyond the image, and transforms it.
///
/// # Safety
/// See [`Tiles::transform_input`]. Rows and columns before the image are numbers that have wrapped around.
#[inline(always)]
unsafe fn read_square<V: Vector, const I: usize, T: super::transform::Transform<I, INPUTS>>(
    source: *const f32,
    Image { h, w, c }: Image,
    image: usize,
    corner: (usize, usize),
    place: Place,
) {
    let mut channel = 0;
    while channel < c {
        let n_lanes = V::LANES.min(c - channel);
        let mut x = [[V::splat(0.0); I]; I];
        for (i, x) in x.iter_mut().enumerate() {
            let row = corner.0.wrapping_add(i);
            if row >= h {
                continue;
            }
            for (j, x) in x.iter_mut().enumerate() {
                let col = corner.1.wrapping_add(j);
                if col >= w {
                    continue;
                }
                let from = source.wrapping_add(((image * h + row) * w + col) * c + channel);
                // What the tile to the right sees in addition comes from memory as a few lines here and there.
                if j >= I - OUTPUTS && channel.is_multiple_of(LINE) {
                    prefetch(from.wrapping_add(OUTPUTS * c));
                }
                // SAFETY: as many channels of a position inside the image.
                *x =
                    unsafe { if n_lanes == V::LANES { V::load(from) } else { V::load_first(from, n_lanes) } };
            }
        }
        let transformed = both_ways::<T, V, I, INPUTS>(&x);
        let at = channel / COLS * place.of_panel + channel % COLS;
        for (e, element) in transformed.as_flattened().iter().enumerate().take(PRODUCTS) {
            // SAFETY: the place has room by the caller's promise.
            unsafe { element.store(place.first.add(e * place.of_product + at)) };
        }
        channel += V::LANES;
    }
}
