//! The ops: each in one file with its type rule, gradient, cost, workspace and kernel; one list names them all.
//!
//! An op is a small plain struct of attributes. [`OpDef`] says what it means; the `ops!` list below makes the closed
//! enum [`Op`], its names, its text form and the table that the tests walk. Adding an op: CONTRIBUTING.md.

mod alone;
mod axis;
mod buffer;
mod element_wise;
mod io;
mod reference;
mod window;

pub use alone::Alone;
pub(crate) use buffer::Owned;
pub use element_wise::{ElementWise, MAX_OPERANDS};
pub(crate) use io::Buffer;
pub use io::{Io, MicroBatch, Run};
pub use reference::{Example, Fill, NaiveIo};

use crate::graph::{Builder, DType, Type};
use crate::ids::ValueId;
use axis::{around_axis, with_axis};

/// What a node may do besides computing its outputs from its inputs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Nothing: it can run again at any time with the same result. Random ops are pure too, since their numbers are
    /// a function of seed, step and stream.
    Pure,
    /// It replaces persistent state and must run exactly once.
    Update,
}

/// Work of one run, for the analytic profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cost {
    /// Multiplications and additions.
    pub flops: u64,
    /// Bytes read from and written to memory, each tensor once.
    pub bytes: u64,
}

impl Cost {
    /// Every input read once, every output written once, and `flops_per_element` for each element of the largest tensor.
    pub fn element_wise(x: &[&Type], y: &[&Type], flops_per_element: u64) -> Cost {
        let largest = x.iter().chain(y).map(|t| t.numel() as u64).max().unwrap_or(0);
        Cost { flops: flops_per_element.saturating_mul(largest), bytes: traffic(x, y) }
    }

    /// Every input read once, every output written once, and this many flops.
    pub fn with_flops(x: &[&Type], y: &[&Type], flops: u64) -> Cost {
        Cost { flops, bytes: traffic(x, y) }
    }

    /// Every input read once, every output written once, and as many multiply-adds as the product of `sizes`.
    pub fn of_products(x: &[&Type], y: &[&Type], sizes: &[usize]) -> Cost {
        let flops = sizes.iter().fold(2, |flops: u64, &size| flops.saturating_mul(size as u64));
        Cost { flops, bytes: traffic(x, y) }
    }
}

fn traffic(x: &[&Type], y: &[&Type]) -> u64 {
    x.iter().chain(y).fold(0, |sum: u64, t| sum.saturating_add(t.bytes()))
}

/// What [`OpDef::grad`] is given: the node to differentiate and what is wanted.
#[derive(Debug)]
pub struct GradArgs<'a> {
    /// The node's inputs.
    pub x: &'a [ValueId],
    /// The node's outputs.
    pub y: &'a [ValueId],
    /// The gradient of each output, or `None` where the loss does not depend on it.
    pub dy: &'a [Option<ValueId>],
    /// Which inputs need a gradient. Nodes for the others would be wasted work.
    pub wants: &'a [bool],
}

impl GradArgs<'_> {
    /// The gradient of the first output. The reverse walk only visits nodes with a gradient, and an op whose only
    /// differentiable output is the first can rely on it.
    pub fn dy0(&self) -> ValueId {
        self.dy[0].expect("a visited node has a gradient for its differentiable output")
    }
}

/// The meaning of an op.
pub trait OpDef: std::fmt::Debug {
    /// The type rule: output types, or what is wrong with the inputs.
    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String>;

    /// Adds backward nodes and returns the gradient of each input, `None` where it is not wanted or does not exist.
    /// The default returns `None` for all, which makes the op a constant to autodiff.
    fn grad(&self, _b: &mut Builder, args: &GradArgs<'_>) -> crate::Result<Vec<Option<ValueId>>> {
        Ok(vec![None; args.x.len()])
    }

    /// Which outputs a gradient can flow into; the others (statistics, indices) are constants to autodiff.
    /// `None`: the op is not differentiable at all.
    fn differentiable_outputs(&self) -> Option<&'static [usize]> {
        None
    }

    /// Work of one run.
    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost;

    /// Bytes of scratch memory, by shape only.
    fn workspace(&self, _x: &[&Type], _y: &[&Type]) -> u64 {
        0
    }

    /// What it does besides computing.
    fn effect(&self) -> Effect {
        Effect::Pure
    }

    /// The output is the input's storage with another shape; nothing runs.
    fn is_view(&self) -> bool {
        false
    }

    /// Pairs (input, output) that may share storage when the input dies here. The kernel must then read through
    /// [`Io::src`] and write through [`Io::dst`].
    fn reuse(&self, _x: &[&Type]) -> Vec<(usize, usize)> {
        Vec::new()
    }

    /// Pairs (input, output) of state that an update overwrites. The kernel must read through [`Io::src`] and write
    /// through [`Io::dst`].
    fn consumes(&self, _x: &[&Type]) -> Vec<(usize, usize)> {
        Vec::new()
    }

    /// The op as something that can compute any part of its output, if it works element by element.
    fn element_wise(&self) -> Option<&dyn ElementWise> {
        None
    }

    /// The kernel call.
    fn run(&self, io: &mut Io<'_>);

    /// The slow twin, straight from the definition in `f64`: an oracle for tests.
    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>>;

    /// Cases for the automatic tests: kernel against slow twin, gradient against finite differences.
    fn examples() -> Vec<Example>
    where
        Self: Sized;
}

/// Makes the closed set of ops from one list.
macro_rules! ops {
    ($($name:literal => $module:ident :: $op:ident,)*) => {
        /// Any op.
        #[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
        pub enum Op {
            $(
                #[doc = concat!("See [`", stringify!($module), "::", stringify!($op), "`].")]
                #[serde(rename = $name)]
                $op($module::$op),
            )*
        }

        impl Op {
            /// As in the text form, the report and the documentation.
            pub fn name(&self) -> &'static str {
                match self { $(Op::$op(_) => $name,)* }
            }

            /// Its meaning.
            pub fn def(&self) -> &dyn OpDef {
                match self { $(Op::$op(op) => op,)* }
            }

            /// All names, in the order of the list.
            pub const NAMES: &'static [&'static str] = &[$($name,)*];

            /// The test cases of all ops, by name.
            pub fn all_examples() -> Vec<(&'static str, Vec<Example>)> {
                vec![$(($name, <$module::$op as OpDef>::examples()),)*]
            }
        }

        $(
            impl From<$module::$op> for Op {
                fn from(op: $module::$op) -> Op {
                    Op::$op(op)
                }
            }
        )*
    };
}

// One file per op and its gradient ops, in the order of docs/ops.md and of the report's legend.
pub mod accumulate;
pub mod accuracy;
pub mod adam;
pub mod add;
pub mod attention;
pub mod avg_pool;
pub mod batch_norm;
pub mod batch_norm_inference;
pub mod batch_norm_split;
pub mod clip_factor;
pub mod concat;
pub mod constant;
pub mod conv2d;
pub mod conv_transpose2d;
pub mod cross_entropy;
pub mod dropout;
pub mod embedding;
pub mod fused;
pub mod gelu;
pub mod global_avg_pool;
pub mod layer_norm;
pub mod linear;
pub mod linear_cross_entropy;
pub mod matmul;
pub mod max_pool;
pub mod mse;
pub mod mul;
pub mod pad;
pub mod relu;
pub mod reshape;
pub mod rms_norm;
pub mod running_update;
pub mod scale;
pub mod sgd;
pub mod silu;
pub mod slice;
pub mod softmax;
pub mod sum_rows;
pub mod sum_squares;
pub mod transpose;

ops! {
    "linear" => linear::Linear,
    "linear_grad_input" => linear::LinearGradInput,
    "linear_grad_weight" => linear::LinearGradWeight,
    "matmul" => matmul::MatMul,
    "sum_rows" => sum_rows::SumRows,
    "conv2d" => conv2d::Conv2d,
    "conv2d_grad_input" => conv2d::Conv2dGradInput,
    "conv2d_grad_weight" => conv2d::Conv2dGradWeight,
    "conv_transpose2d" => conv_transpose2d::ConvTranspose2d,
    "batch_norm" => batch_norm::BatchNorm,
    "batch_norm_grad" => batch_norm::BatchNormGrad,
    "batch_norm_inference" => batch_norm_inference::BatchNormInference,
    "batch_stats" => batch_norm_split::BatchStats,
    "batch_norm_apply" => batch_norm_split::BatchNormApply,
    "batch_norm_relu_grad" => batch_norm_split::BatchNormReluGrad,
    "running_update" => running_update::RunningUpdate,
    "layer_norm" => layer_norm::LayerNorm,
    "layer_norm_grad" => layer_norm::LayerNormGrad,
    "rms_norm" => rms_norm::RmsNorm,
    "rms_norm_grad" => rms_norm::RmsNormGrad,
    "softmax" => softmax::Softmax,
    "softmax_grad" => softmax::SoftmaxGrad,
    "relu" => relu::Relu,
    "relu_grad" => relu::ReluGrad,
    "gelu" => gelu::Gelu,
    "gelu_grad" => gelu::GeluGrad,
    "silu" => silu::Silu,
    "silu_grad" => silu::SiluGrad,
    "add" => add::Add,
    "mul" => mul::Mul,
    "scale" => scale::Scale,
    "dropout" => dropout::Dropout,
    "fused" => fused::Fused,
    "constant" => constant::Constant,
    "max_pool" => max_pool::MaxPool,
    "max_pool_grad" => max_pool::MaxPoolGrad,
    "avg_pool" => avg_pool::AvgPool,
    "avg_pool_grad" => avg_pool::AvgPoolGrad,
    "global_avg_pool" => global_avg_pool::GlobalAvgPool,
    "global_avg_pool_grad" => global_avg_pool::GlobalAvgPoolGrad,
    "embedding" => embedding::Embedding,
    "embedding_grad" => embedding::EmbeddingGrad,
    "attention" => attention::Attention,
    "attention_grad" => attention::AttentionGrad,
    "reshape" => reshape::Reshape,
    "transpose" => transpose::Transpose,
    "slice" => slice::Slice,
    "pad" => pad::Pad,
    "concat" => concat::Concat,
    "cross_entropy" => cross_entropy::CrossEntropy,
    "cross_entropy_grad" => cross_entropy::CrossEntropyGrad,
    "linear_cross_entropy" => linear_cross_entropy::LinearCrossEntropy,
    "linear_cross_entropy_grad" => linear_cross_entropy::LinearCrossEntropyGrad,
    "linear_cross_entropy_with_grad" => linear_cross_entropy::LinearCrossEntropyWithGrad,
    "mse" => mse::Mse,
    "mse_grad" => mse::MseGrad,
    "accuracy" => accuracy::Accuracy,
    "accumulate" => accumulate::Accumulate,
    "sum_squares" => sum_squares::SumSquares,
    "clip_factor" => clip_factor::ClipFactor,
    "sgd" => sgd::Sgd,
    "adam" => adam::Adam,
}

impl Op {
    /// A name for reports that tells fused nodes apart: `batch_norm_apply+relu`.
    pub fn label(&self) -> String {
        match self {
            Op::Fused(fused) => fused.label(),
            _ => self.name().to_owned(),
        }
    }
}

/// Fails with a message when the number of inputs is wrong.
pub(crate) fn expect_inputs(x: &[&Type], n: usize) -> Result<(), String> {
    if x.len() == n { Ok(()) } else { Err(format!("takes {n} inputs, got {}", x.len())) }
}

/// Fails with a message when two types that must be equal are not.
pub(crate) fn expect_same(what: &str, a: &Type, b: &Type) -> Result<(), String> {
    if a == b { Ok(()) } else { Err(format!("{what} must have the same type, got {a} and {b}")) }
}

/// Fails with a message unless it is a float tensor.
pub(crate) fn expect_float(what: &str, ty: &Type) -> Result<(), String> {
    if ty.dtype() == DType::F32 { Ok(()) } else { Err(format!("{what} must be a float tensor, got {ty}")) }
}

/// Fails with a message unless it is an integer tensor.
pub(crate) fn expect_ints(what: &str, ty: &Type) -> Result<(), String> {
    if ty.dtype() == DType::I32 { Ok(()) } else { Err(format!("{what} must be an integer tensor, got {ty}")) }
}

/// Fails with a message unless it is a float tensor of this rank.
pub(crate) fn expect_rank(what: &str, ty: &Type, rank: usize) -> Result<(), String> {
    let fits = ty.dtype() == DType::F32 && ty.rank() == rank;
    if fits { Ok(()) } else { Err(format!("{what} must be a float tensor of rank {rank}, got {ty}")) }
}

/// Fails with a message unless it is a float tensor of this shape.
pub(crate) fn expect_shape(what: &str, ty: &Type, shape: &[usize]) -> Result<(), String> {
    let fits = ty.dtype() == DType::F32 && ty.shape() == shape;
    if fits { Ok(()) } else { Err(format!("{what} must be a float tensor of shape {shape:?}, got {ty}")) }
}
