//! Networks of your own: layers that chain on small handles, and the [`Model`] they make.
//!
//! Nothing computes while a model is built. A [`Net`] collects a graph; a [`Tensor`] is a handle into it that can be
//! copied; every method adds nodes and gives the next handle. Parameters get PyTorch's names and initialisation, so
//! that weight files can be exchanged. The models of [`crate::model`] are written with exactly this.
//!
//! ```
//! use remat::nn::{Conv, Model};
//!
//! let model = Model::build("cnn", |g| {
//!     let labels = g.labels("labels", [64], 10);
//!     let mut h = g.input("input", [64, 32, 32, 3]);
//!     for (i, width) in [32, 64, 128].into_iter().enumerate() {
//!         h = h.scope(format!("block.{i}"), |h| {
//!             h.conv2d("conv", Conv::same(width, 3)).batch_norm("bn").relu().max_pool(2)
//!         });
//!     }
//!     h.global_avg_pool().dropout(0.2).linear("fc", 10).cross_entropy(labels)
//! })?;
//! assert_eq!(model.n_parameters(), 94_986);
//! # Ok::<(), remat::Error>(())
//! ```
//!
//! A chain needs no `?`: the net keeps the first mistake, ignores everything after it, and [`Model::build`] returns it
//! with the module and the line of the call that made it.
//!
//! ```
//! use remat::nn::Model;
//!
//! let error = Model::build("mlp", |g| {
//!     let x = g.input("input", [64, 784]).linear("fc1", 256).relu().reshape([64, 16, 8]);
//!     x.linear("fc2", 10).cross_entropy(g.labels("labels", [64], 10))
//! });
//! let message = error.unwrap_err().to_string();
//! assert!(message.starts_with("reshape at ") && message.ends_with("f32[64,256] has 16384 elements, f32[64,16,8] has 8192"));
//! ```
//!
//! Images are `[batch, height, width, channels]`; sequences are `[batch, time, width]`. A layer's first argument is its
//! name: parameters and nodes are found under it, as in PyTorch's `state_dict`. Names can hold dots, and must differ.

mod attention;
mod conv;
mod element_wise;
mod embedding;
pub mod init;
mod linear;
mod loss;
mod model;
mod net;
mod norm;
mod pool;
mod residual;
mod shape;
mod tensor;
mod transformer;

pub use crate::graph::Init;
pub use attention::Attention;
pub use conv::{Conv, ConvTranspose};
pub use embedding::{Embedding, Table};
pub use linear::Linear;
pub use loss::{Head, Loss};
pub use model::{Model, ModelRoles};
pub use net::Net;
pub use norm::BatchNorm;
pub use pool::Pool;
pub use residual::Residual;
pub use shape::Pair;
pub use tensor::Tensor;
pub use transformer::{DecoderLayer, EncoderLayer};
