//! What can go wrong, as facts. Messages say what, where and what to try, without a final dot.
//!
//! A budget that cannot be met is an outcome of planning; it becomes [`Error::DoesNotFit`] where a caller asked for
//! something to run. [`Error::Bug`] is ours, never the
//! user's: a checker found a stage's output wrong.
//!
//! A message is complete: it contains its cause, which is therefore not a `source` of the error as well. Whoever prints a
//! chain of sources would print it twice.

/// A failure of the engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An op was given inputs it does not take.
    #[error("{op} at `{scope}`: {message}")]
    Type {
        /// The op's name.
        op: &'static str,
        /// Module path.
        scope: String,
        /// What does not fit.
        message: String,
    },
    /// A mistake in a model, at the line that made it.
    #[error("{place} at {location}: {message}")]
    Model {
        /// Module path, or the op where it has none.
        place: String,
        /// `file:line` of the call.
        location: String,
        /// What does not fit.
        message: String,
    },
    /// A tensor's size cannot be expressed.
    #[error(
        "a tensor of shape {shape:?} is too large to address; use a smaller batch, image, sequence or width"
    )]
    TooLarge {
        /// The shape asked for.
        shape: Vec<usize>,
    },
    /// A model option that makes no sense.
    #[error("{model}: option `{option}` {message}")]
    Option {
        /// Model name.
        model: String,
        /// Option name.
        option: String,
        /// What is wrong and what would be right.
        message: String,
    },
    /// No such model.
    #[error("there is no model `{name}`; known models: {known}")]
    UnknownModel {
        /// What was asked for.
        name: String,
        /// What exists.
        known: String,
    },
    /// Text that is not a graph.
    #[error("graph text, line {line}: {message}")]
    Parse {
        /// One-based line.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// The loss cannot be differentiated.
    #[error("{op} at `{scope}` has no gradient, but the loss depends on it through a parameter")]
    NoGradient {
        /// The op's name.
        op: &'static str,
        /// Module path.
        scope: String,
    },
    /// Input data outside the range that an op can read.
    #[error("{what}: element {index} is {value}, outside 0..{limit}")]
    Data {
        /// The tensor's name.
        what: String,
        /// Flat position.
        index: usize,
        /// What is there.
        value: i64,
        /// Exclusive limit.
        limit: usize,
    },
    /// Weights that do not fit the model.
    #[error("{place}: {message}")]
    Weights {
        /// File or tensor.
        place: String,
        /// What is wrong.
        message: String,
    },
    /// A checkpoint, or a folder of them, that cannot be used.
    #[error("{place}: {message}")]
    Checkpoint {
        /// File or folder.
        place: String,
        /// What is wrong and what to do.
        message: String,
    },
    /// Training data that cannot be used.
    #[error("{place}: {message}")]
    TrainingData {
        /// File or folder, and the place in it where there is one.
        place: String,
        /// What is wrong and what would be right.
        message: String,
    },
    /// The operating system refused.
    #[error("{action}: {cause}")]
    Io {
        /// What was being done, with the path.
        action: String,
        /// Why it failed.
        cause: std::io::Error,
    },
    /// Modules that cannot be checkpointed.
    #[error("{cause}; `remat graph` and `remat profile` show the modules of a model")]
    Module {
        /// Which, and why.
        cause: remat_plan::CheckpointError,
    },
    /// The planner crate refused its input.
    #[error(transparent)]
    Plan(#[from] remat_plan::Error),
    /// A budget that is none, or that cannot be used this way.
    #[error("{message}")]
    Budget {
        /// What is wrong and what would be right.
        message: String,
    },
    /// An environment variable that cannot be followed.
    #[error("{message}")]
    Environment {
        /// Which, what is wrong and what would be right.
        message: String,
    },
    /// A step does not fit its budget.
    #[error("{message}")]
    DoesNotFit {
        /// Why, and what to try.
        message: String,
        /// No plan needs less than this.
        floor: remat_plan::Bytes,
        /// The smallest peak that was found.
        lowest_peak: remat_plan::Bytes,
    },
    /// A value was not the same when it was computed again.
    #[error(
        "{difference}: the op is not deterministic, or the machine's memory fails; the state after this step cannot be trusted"
    )]
    Unrepeatable {
        /// Which, and in which step.
        difference: String,
    },
    /// What is in memory is the state after no step.
    #[error(
        "the state in memory cannot be used: {why}; continue from the last checkpoint (`--resume`, `Trainer::resume`)"
    )]
    StateLost {
        /// What became of it.
        why: String,
    },
    /// A checker found our own output wrong.
    #[error("internal error in {stage}; please report it with the command you ran:\n  {}", faults.join("\n  "))]
    Bug {
        /// The stage whose output is wrong.
        stage: &'static str,
        /// Every fault found.
        faults: Vec<String>,
    },
}

/// The engine's result type.
pub type Result<T> = std::result::Result<T, Error>;

impl From<remat_plan::CheckpointError> for Error {
    fn from(cause: remat_plan::CheckpointError) -> Error {
        Error::Module { cause }
    }
}

impl Error {
    /// What a checker found.
    pub fn bug(stage: &'static str, faults: impl IntoIterator<Item = impl std::fmt::Display>) -> Error {
        Error::Bug { stage, faults: faults.into_iter().map(|fault| fault.to_string()).collect() }
    }

    /// An io error with what was being done.
    pub fn io(action: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
        let action = action.into();
        move |cause| Error::Io { action, cause }
    }
}
