//! The ops of this crate: each in one file with its type rule, gradient, cost, workspace and kernel; one list names them.
//!
//! An op is a small plain struct of attributes, and [`OpDef`] says what it means. The list below is what the text form,
//! the calibration of machines, the documentation and the tests walk. Adding an op: CONTRIBUTING.md. An op can also be
//! defined in another crate: nothing needs to be listed for it to be used.

mod alone;
mod axis;
mod buffer;
mod fused_text;
mod pointwise;
mod window;

pub(crate) use crate::graph::Buffer;
pub use crate::graph::{
    Calibration, Case, Cost, Effect, ElementWise, Example, Fill, GradArgs, InEvaluation, Io, MAX_OPERANDS,
    MicroBatch, NaiveIo, Op, OpDef, Prediction, Run,
};
pub use alone::Alone;
pub(crate) use buffer::Owned;

use crate::graph::{DType, Graph, Type};
use axis::{around_axis, with_axis};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::LazyLock;

/// An entry of the list: what is known about a kind of op without an instance.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// As in the text form, the report and the documentation.
    pub name: &'static str,
    /// Test cases: kernel against slow twin, gradient against finite differences.
    pub examples: fn() -> Vec<Example>,
    /// How its speed is measured.
    pub calibration: fn() -> Option<Calibration>,
    /// The op with these attributes.
    read: fn(serde_json::Value) -> serde_json::Result<Op>,
}

impl Entry {
    fn of<T: OpDef + PartialEq + Serialize + DeserializeOwned>() -> Entry {
        Entry {
            name: T::name(),
            examples: T::examples,
            calibration: T::calibration,
            read: |attributes| serde_json::from_value::<T>(attributes).map(Op::from),
        }
    }
}

/// Makes the table of this crate's ops from one list.
macro_rules! ops {
    ($($module:ident :: $op:ident,)*) => {
        static LIST: LazyLock<Vec<Entry>> = LazyLock::new(|| vec![$(Entry::of::<$module::$op>(),)*]);
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
    linear::Linear,
    linear::LinearGradInput,
    linear::LinearGradWeight,
    matmul::MatMul,
    sum_rows::SumRows,
    conv2d::Conv2d,
    conv2d::Conv2dGradInput,
    conv2d::Conv2dGradWeight,
    conv_transpose2d::ConvTranspose2d,
    batch_norm::BatchNorm,
    batch_norm::BatchNormGrad,
    batch_norm_inference::BatchNormInference,
    batch_norm_split::BatchStats,
    batch_norm_split::BatchNormApply,
    batch_norm_split::BatchNormReluGrad,
    running_update::RunningUpdate,
    layer_norm::LayerNorm,
    layer_norm::LayerNormGrad,
    rms_norm::RmsNorm,
    rms_norm::RmsNormGrad,
    softmax::Softmax,
    softmax::SoftmaxGrad,
    relu::Relu,
    relu::ReluGrad,
    gelu::Gelu,
    gelu::GeluGrad,
    silu::Silu,
    silu::SiluGrad,
    add::Add,
    mul::Mul,
    scale::Scale,
    dropout::Dropout,
    fused::Fused,
    constant::Constant,
    max_pool::MaxPool,
    max_pool::MaxPoolGrad,
    avg_pool::AvgPool,
    avg_pool::AvgPoolGrad,
    global_avg_pool::GlobalAvgPool,
    global_avg_pool::GlobalAvgPoolGrad,
    embedding::Embedding,
    embedding::EmbeddingGrad,
    attention::Attention,
    attention::AttentionGrad,
    reshape::Reshape,
    transpose::Transpose,
    slice::Slice,
    pad::Pad,
    concat::Concat,
    cross_entropy::CrossEntropy,
    cross_entropy::CrossEntropyGrad,
    linear_cross_entropy::LinearCrossEntropy,
    linear_cross_entropy::LinearCrossEntropyGrad,
    linear_cross_entropy::LinearCrossEntropyWithGrad,
    mse::Mse,
    mse::MseGrad,
    accuracy::Accuracy,
    accumulate::Accumulate,
    sum_squares::SumSquares,
    clip_factor::ClipFactor,
    sgd::Sgd,
    adam::Adam,
}

/// All ops of this crate, in the order of the list.
pub fn all() -> &'static [Entry] {
    &LIST
}

/// The op of this name with these attributes, as the text form of a graph has them.
pub fn read(name: &str, attributes: serde_json::Value) -> Result<Op, String> {
    let entry = all().iter().find(|entry| entry.name == name).ok_or_else(|| {
        format!(
            "there is no op `{name}` in this crate; a graph with ops of your own is built in code, not read"
        )
    })?;
    (entry.read)(attributes).map_err(|error| format!("{name}: {error}"))
}

impl Graph {
    /// Reads what [`Graph::to_text`] printed, or what a person wrote in that form. The result is verified.
    pub fn from_text(text: &str) -> crate::Result<Graph> {
        Graph::from_text_with(text, &read)
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
