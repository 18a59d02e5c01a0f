//! Training: optimizers and learning rates, batches, the session that runs steps, evaluation in the same memory,
//! checkpoints, and the comparison of sessions.

mod checkpoint;
mod compare;
mod contest;
mod data;
mod evaluation;
mod learning_rate;
mod optimizer;
mod session;
pub(crate) mod updates;

pub use checkpoint::{Checkpoints, Identity};
pub use compare::{Comparison, Side, compare};
pub use contest::{Performance, Rounds, contest};
pub use data::{Batches, ImageShape, Images, Objective, Part, Synthetic, Text, Tokenizer, check_indices};
pub use evaluation::{Evaluation, Score, evaluation_graph};
pub use learning_rate::{Decay, LearningRate};
pub use optimizer::{Optimizer, Rule};
pub use session::{Session, StepResult};
