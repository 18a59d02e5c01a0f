//! Training: learning rates, batches, the session that runs steps, evaluation in the same memory,
//! checkpoints, and the comparison of sessions.

mod accuracy;
mod checkpoint;
mod compare;
mod contest;
mod data;
mod evaluation;
mod identity;
mod learning_rate;
mod run_folder;
mod session;
mod verify;

pub use accuracy::{Accuracy, OpAccuracy, accuracy};
pub use checkpoint::{Checkpoints, Newest};
pub use compare::{Comparison, Side, Trial, compare};
pub use contest::{Performance, Rounds, contest};
pub use data::{
    Batch, BatchInput, Batches, BytePairs, Dataset, ImageScale, ImageShape, Images, Objective, Part,
    Synthetic, Text, Tokenizer, Vocabulary, decode_image,
};
pub use evaluation::{Evaluation, Score};
pub use identity::{Identity, Schedule};
pub use learning_rate::{Decay, LearningRate};
pub use run_folder::{About, RunFolder};
pub use session::{Session, StepResult};
pub use verify::Difference;
