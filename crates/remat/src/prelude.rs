//! What most programs need, in one line: `use remat::prelude::*;`

pub use crate::inference::{Image, Inference, Prediction, Sampling};
pub use crate::nn::{
    Attention, BatchNorm, Conv, ConvTranspose, DecoderLayer, Embedding, EncoderLayer, Head, Init, Linear,
    Loss, Model, Net, Pool, Residual, Table, Tensor,
};
pub use crate::optimizer::{Optimizer, adam, adamw, sgd};
pub use crate::profile::Machine;
pub use crate::train::{
    Batch, Batches, Dataset, Decay, Images, LearningRate, Part, Synthetic, Text, Tokenizer,
};
pub use crate::training::{PlanSummary, Trainer, Training};
pub use remat_plan::Bytes;
