//! The sizes of a pooling, checked once so that the kernels need not.

use std::fmt;
use std::ops::Range;

/// Positions of a window that `max_pool` can tell apart in a byte.
pub const MAX_WINDOW: usize = 256;

/// The sizes of a pooling; pairs are `(height, width)`. [`PoolShape::checked`] makes it safe to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolShape {
    /// Images.
    pub n: usize,
    /// Height of an input image.
    pub h: usize,
    /// Width of an input image.
    pub w: usize,
    /// Channels.
    pub c: usize,
    /// The window.
    pub kernel: (usize, usize),
    /// Input positions from one window to the next.
    pub stride: (usize, usize),
    /// Positions added on each side of the image: absent for the maximum, zero for the average.
    pub padding: (usize, usize),
}

/// Why sizes do not make a pooling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolError {
    /// A size that must be at least one is zero.
    Zero(&'static str),
    /// Some window would lie in the padding alone.
    PaddingTooLarge {
        /// The padding.
        padding: usize,
        /// The extent of the window.
        kernel: usize,
    },
    /// The window is larger than the padded image.
    KernelTooLarge {
        /// `"height"` or `"width"`.
        axis: &'static str,
        /// Extent of the window.
        kernel: usize,
        /// Size of the image with its padding.
        image: usize,
    },
    /// The number of elements does not fit in memory's address range.
    Overflow,
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            PoolError::Zero(what) => write!(f, "{what} of a pooling must be at least 1"),
            PoolError::PaddingTooLarge { padding, kernel } => {
                write!(f, "padding {padding} is more than half of the window's {kernel}")
            }
            PoolError::KernelTooLarge { axis, kernel, image } => {
                write!(f, "window has {kernel} in {axis}, but the padded image has only {image}")
            }
            PoolError::Overflow => write!(f, "sizes of a pooling overflow"),
        }
    }
}

impl std::error::Error for PoolError {}

impl PoolShape {
    /// The same shape, if it describes a pooling whose sizes can be computed without overflow.
    pub fn checked(self) -> Result<PoolShape, PoolError> {
        let sizes = [
            (self.n, "the number of images"),
            (self.h, "the image height"),
            (self.w, "the image width"),
            (self.c, "the number of channels"),
            (self.kernel.0.min(self.kernel.1), "the window"),
            (self.stride.0.min(self.stride.1), "the stride"),
        ];
        if let Some(&(_, what)) = sizes.iter().find(|(size, _)| *size == 0) {
            return Err(PoolError::Zero(what));
        }
        for (axis, size, kernel, padding) in [
            ("height", self.h, self.kernel.0, self.padding.0),
            ("width", self.w, self.kernel.1, self.padding.1),
        ] {
            if padding > kernel / 2 {
                return Err(PoolError::PaddingTooLarge { padding, kernel });
            }
            let image = size.checked_add(2 * padding).ok_or(PoolError::Overflow)?;
            if kernel > image {
                return Err(PoolError::KernelTooLarge { axis, kernel, image });
            }
        }
        // Padding is at most half a window, so the output has at most twice the rows and columns of the input.
        let bytes =
            [self.n, self.h, self.w, self.c].iter().try_fold(16usize, |all, &size| all.checked_mul(size));
        match bytes {
            Some(bytes) if bytes <= isize::MAX as usize => Ok(self),
            _ => Err(PoolError::Overflow),
        }
    }

    /// Height of an output image.
    pub fn out_h(&self) -> usize {
        self.rows().n_windows
    }

    /// Width of an output image.
    pub fn out_w(&self) -> usize {
        self.cols().n_windows
    }

    /// Elements of all input images.
    pub fn input_len(&self) -> usize {
        self.n * self.h * self.w * self.c
    }

    /// Elements of all output images.
    pub fn output_len(&self) -> usize {
        self.n * self.out_h() * self.out_w() * self.c
    }

    pub(crate) fn rows(&self) -> Axis {
        Axis::new(self.h, self.kernel.0, self.stride.0, self.padding.0)
    }

    pub(crate) fn cols(&self) -> Axis {
        Axis::new(self.w, self.kernel.1, self.stride.1, self.padding.1)
    }
}

/// Windows along one axis.
#[derive(Clone, Copy)]
pub(crate) struct Axis {
    size: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
    pub(crate) n_windows: usize,
}

impl Axis {
    fn new(size: usize, kernel: usize, stride: usize, padding: usize) -> Axis {
        Axis { size, kernel, stride, padding, n_windows: (size + 2 * padding - kernel) / stride + 1 }
    }

    /// The input positions of a window, without the padding.
    pub(crate) fn window(&self, window: usize) -> Range<usize> {
        let start = window * self.stride;
        start.saturating_sub(self.padding)..(start + self.kernel - self.padding).min(self.size)
    }

    /// The place of an input position within a window that covers it.
    pub(crate) fn place(&self, position: usize, window: usize) -> usize {
        position + self.padding - window * self.stride
    }

    /// The windows that cover an input position.
    pub(crate) fn covering(&self, position: usize) -> Range<usize> {
        let last = position + self.padding;
        let first = (last + 1).saturating_sub(self.kernel).div_ceil(self.stride);
        first..(last / self.stride + 1).min(self.n_windows)
    }
}
