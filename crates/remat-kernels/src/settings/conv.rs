//! The sizes of a convolution, checked once so that the kernels need not.

use std::fmt;

/// The sizes of a convolution; pairs are `(height, width)`. [`ConvShape::checked`] makes it safe to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConvShape {
    /// Images.
    pub n: usize,
    /// Height of an input image.
    pub h: usize,
    /// Width of an input image.
    pub w: usize,
    /// Input channels.
    pub c: usize,
    /// Output channels.
    pub o: usize,
    /// Height of the kernel.
    pub kh: usize,
    /// Width of the kernel.
    pub kw: usize,
    /// Input positions from one output position to the next.
    pub stride: (usize, usize),
    /// Zeros added on each side of the image.
    pub padding: (usize, usize),
    /// Input positions from one element of the kernel to the next.
    pub dilation: (usize, usize),
    /// Groups of channels that do not see each other.
    pub groups: usize,
    /// Whether sums are made by Winograd's algorithm: faster, and with other rounding. [`ConvShape::allows_winograd`] says
    /// where it can be, [`ConvShape::suits_winograd`] where it should be.
    pub winograd: bool,
}

/// Why sizes do not make a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConvError {
    /// A size that must be at least one is zero.
    Zero(&'static str),
    /// The channels are not a multiple of the groups.
    Groups {
        /// `"input"` or `"output"`.
        which: &'static str,
        /// That many channels.
        channels: usize,
        /// That many groups.
        groups: usize,
    },
    /// The dilated kernel is larger than the padded image.
    KernelTooLarge {
        /// `"height"` or `"width"`.
        axis: &'static str,
        /// Reach of the kernel.
        kernel: usize,
        /// Size of the image with its padding.
        image: usize,
    },
    /// Winograd's algorithm is wanted where it does not exist.
    Winograd,
    /// The number of elements does not fit in memory's address range.
    Overflow,
}

impl fmt::Display for ConvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            ConvError::Zero(what) => write!(f, "{what} of a convolution must be at least 1"),
            ConvError::Groups { which, channels, groups } => {
                write!(f, "{channels} {which} channels do not divide into {groups} groups")
            }
            ConvError::KernelTooLarge { axis, kernel, image } => {
                write!(f, "kernel reaches over {kernel} in {axis}, but the padded image has only {image}")
            }
            ConvError::Winograd => write!(
                f,
                "Winograd's algorithm is for kernels of 3×3 with stride 1, no dilation, one group and padding of at most 2"
            ),
            ConvError::Overflow => write!(f, "sizes of a convolution overflow"),
        }
    }
}

impl std::error::Error for ConvError {}

impl ConvShape {
    /// The same shape, if it describes a convolution whose sizes can be computed without overflow.
    pub fn checked(self) -> Result<ConvShape, ConvError> {
        let sizes = [
            (self.n, "the number of images"),
            (self.h, "the image height"),
            (self.w, "the image width"),
            (self.c, "the number of input channels"),
            (self.o, "the number of output channels"),
            (self.kh, "the kernel height"),
            (self.kw, "the kernel width"),
            (self.stride.0.min(self.stride.1), "the stride"),
            (self.dilation.0.min(self.dilation.1), "the dilation"),
            (self.groups, "the number of groups"),
        ];
        if let Some(&(_, what)) = sizes.iter().find(|(size, _)| *size == 0) {
            return Err(ConvError::Zero(what));
        }
        for (channels, which) in [(self.c, "input"), (self.o, "output")] {
            if channels % self.groups != 0 {
                return Err(ConvError::Groups { which, channels, groups: self.groups });
            }
        }
        let axes = [
            ("height", self.h, self.kh, self.stride.0, self.padding.0, self.dilation.0),
            ("width", self.w, self.kw, self.stride.1, self.padding.1, self.dilation.1),
        ];
        let mut positions = self.n;
        for (axis, size, kernel, stride, padding, dilation) in axes {
            let image =
                padding.checked_mul(2).and_then(|p| p.checked_add(size)).ok_or(ConvError::Overflow)?;
            let reach = (kernel - 1).checked_mul(dilation).and_then(|r| r.checked_add(1));
            let kernel = reach.ok_or(ConvError::Overflow)?;
            if kernel > image {
                return Err(ConvError::KernelTooLarge { axis, kernel, image });
            }
            positions = positions.checked_mul((image - kernel) / stride + 1).ok_or(ConvError::Overflow)?;
        }
        let products = [
            [self.n, self.h, self.w, self.c],
            [positions, self.o, 1, 1],
            [self.o, self.kh, self.kw, self.c],
            [positions, self.kh, self.kw, self.c],
        ];
        for product in products {
            let elements = product.iter().try_fold(4usize, |all, &size| all.checked_mul(size));
            if elements.is_none_or(|bytes| bytes > isize::MAX as usize) {
                return Err(ConvError::Overflow);
            }
        }
        if self.winograd && !self.allows_winograd() {
            return Err(ConvError::Winograd);
        }
        Ok(self)
    }

    /// Whether there is Winograd's algorithm for this convolution.
    pub fn allows_winograd(&self) -> bool {
        let kernel = (self.kh, self.kw) == (3, 3) && self.stride == (1, 1) && self.dilation == (1, 1);
        kernel && self.groups == 1 && self.padding.0 <= 2 && self.padding.1 <= 2
    }

    /// Whether Winograd's algorithm is faster, as measured: with few channels the transforms take longer than what they
    /// save, with many the transformed weight does not stay in the caches, and of a small image much of a tile lies
    /// outside. The number of images does not matter, so that a batch of another size has the same bits.
    pub fn suits_winograd(&self) -> bool {
        let (fewest, most) = (self.c.min(self.o), self.c.saturating_mul(self.o));
        self.allows_winograd() && fewest >= 32 && most <= 384 * 384 && self.out_h().min(self.out_w()) >= 8
    }

    /// Height of an output image.
    pub fn out_h(&self) -> usize {
        (self.h + 2 * self.padding.0 - self.dilation.0 * (self.kh - 1) - 1) / self.stride.0 + 1
    }

    /// Width of an output image.
    pub fn out_w(&self) -> usize {
        (self.w + 2 * self.padding.1 - self.dilation.1 * (self.kw - 1) - 1) / self.stride.1 + 1
    }

    /// Elements of one receptive field within one group: the length of the sums.
    pub fn patch_len(&self) -> usize {
        self.kh * self.kw * (self.c / self.groups)
    }
}
