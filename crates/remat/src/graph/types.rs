//! Tensor types: element type and shape. Sizes are checked once, here, so that later arithmetic cannot overflow.

use crate::error::{Error, Result};
use remat_plan::Bytes;

/// Buffers start and end on multiples of this many bytes: a cache line, and what AVX-512 loads like.
pub const ALIGNMENT: u64 = 64;

/// Element type.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// 32-bit float: all arithmetic.
    F32,
    /// 32-bit integer: token ids and labels.
    I32,
    /// Byte: positions inside a pooling window.
    U8,
}

impl DType {
    /// Bytes per element.
    pub fn size(self) -> usize {
        match self {
            DType::F32 | DType::I32 => 4,
            DType::U8 => 1,
        }
    }

    /// As printed in types.
    pub fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::I32 => "i32",
            DType::U8 => "u8",
        }
    }
}

/// Element type and shape of a contiguous row-major tensor.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Type {
    dtype: DType,
    shape: Vec<usize>,
}

impl Type {
    /// A type whose size in bytes fits comfortably into 62 bits.
    pub fn new(dtype: DType, shape: &[usize]) -> Result<Type> {
        let numel = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        match numel.and_then(|n| n.checked_mul(dtype.size())) {
            Some(bytes) if bytes < 1 << 62 => Ok(Type { dtype, shape: shape.to_vec() }),
            _ => Err(Error::TooLarge { shape: shape.to_vec() }),
        }
    }

    /// A float tensor.
    pub fn f32(shape: &[usize]) -> Result<Type> {
        Type::new(DType::F32, shape)
    }

    /// An integer tensor.
    pub fn i32(shape: &[usize]) -> Result<Type> {
        Type::new(DType::I32, shape)
    }

    /// One float.
    pub fn scalar() -> Type {
        Type { dtype: DType::F32, shape: Vec::new() }
    }

    /// The same elements in another element type of at most the same size.
    pub fn with_dtype(&self, dtype: DType) -> Type {
        debug_assert!(dtype.size() <= 4);
        Type { dtype, shape: self.shape.clone() }
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Extents, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Extent of the last dimension; 1 for a scalar.
    pub fn last(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// Number of elements.
    pub fn numel(&self) -> usize {
        self.shape.iter().product()
    }

    /// Number of rows when all but the last dimension are flattened.
    pub fn rows(&self) -> usize {
        self.shape.split_last().map_or(1, |(_, rest)| rest.iter().product())
    }

    /// Bytes of the elements.
    pub fn bytes(&self) -> u64 {
        (self.numel() * self.dtype.size()) as u64
    }

    /// Bytes of the buffer that holds it: rounded up to [`ALIGNMENT`].
    pub fn buffer_bytes(&self) -> Bytes {
        aligned(self.bytes())
    }
}

/// Rounds up to [`ALIGNMENT`].
pub fn aligned(bytes: u64) -> Bytes {
    Bytes(bytes.div_ceil(ALIGNMENT) * ALIGNMENT)
}

impl std::fmt::Display for Type {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}[", self.dtype.name())?;
        for (i, d) in self.shape.iter().enumerate() {
            write!(f, "{}{d}", if i > 0 { "," } else { "" })?;
        }
        write!(f, "]")
    }
}

impl std::str::FromStr for Type {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Type, String> {
        let malformed = || format!("`{text}` is not a type; write for example f32[8,512]");
        let (name, rest) = text.split_once('[').ok_or_else(malformed)?;
        let dims = rest.strip_suffix(']').ok_or_else(malformed)?;
        let dtype = match name {
            "f32" => DType::F32,
            "i32" => DType::I32,
            "u8" => DType::U8,
            _ => return Err(malformed()),
        };
        let shape = match dims {
            "" => Vec::new(),
            _ => dims
                .split(',')
                .map(|d| d.parse::<usize>().map_err(|_| malformed()))
                .collect::<std::result::Result<_, _>>()?,
        };
        Type::new(dtype, &shape).map_err(|e| e.to_string())
    }
}
