//! The fixtures as data. A pair is the same number from PyTorch's f32 and f64 run.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

pub(crate) type Pair = [f64; 2];

/// One step of a model.
#[derive(serde::Deserialize)]
pub(crate) struct ModelFixture {
    pub(crate) options: Map<String, Value>,
    /// Name of the generated tensor that images are taken from.
    pub(crate) input: String,
    pub(crate) loss: Pair,
    pub(crate) gradient_norm: f64,
    pub(crate) parameters: Vec<GradientFacts>,
    pub(crate) buffers: Vec<BufferFacts>,
}

/// What is known of one parameter's gradient; positions count in PyTorch's layout.
#[derive(serde::Deserialize)]
pub(crate) struct GradientFacts {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) norm: Pair,
    pub(crate) sum: Pair,
    pub(crate) probe: Pair,
    pub(crate) indices: Vec<usize>,
    pub(crate) values: Vec<Pair>,
}

/// The first elements of a running statistic after the step.
#[derive(serde::Deserialize)]
pub(crate) struct BufferFacts {
    pub(crate) name: String,
    pub(crate) values: Vec<Pair>,
}

#[derive(serde::Deserialize)]
pub(crate) struct TrainingFixture {
    pub(crate) runs: Vec<TrainingRun>,
}

/// Losses before any update and after each of three.
#[derive(serde::Deserialize)]
pub(crate) struct TrainingRun {
    pub(crate) model: String,
    pub(crate) optimizer: String,
    pub(crate) options: Map<String, Value>,
    pub(crate) losses: Vec<Pair>,
}

#[derive(serde::Deserialize)]
pub(crate) struct OptimizerFixture {
    pub(crate) start: Vec<f32>,
    pub(crate) gradients: Vec<Vec<f32>>,
    pub(crate) runs: Vec<OptimizerRun>,
}

/// The parameter after each update.
#[derive(serde::Deserialize)]
pub(crate) struct OptimizerRun {
    pub(crate) optimizer: String,
    pub(crate) options: Map<String, Value>,
    pub(crate) steps: Vec<Vec<Pair>>,
}

#[derive(serde::Deserialize)]
pub(crate) struct GeneratorFixture {
    pub(crate) parameters: Vec<GeneratedParameter>,
    pub(crate) input: Vec<f32>,
    pub(crate) labels: Vec<i32>,
}

#[derive(serde::Deserialize)]
pub(crate) struct GeneratedParameter {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) values: Vec<f32>,
}

/// Reads `tests/fixtures/pytorch/<name>.json`.
pub(crate) fn read<T: DeserializeOwned>(name: &str) -> T {
    let path = format!("{}/tests/fixtures/pytorch/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{path}: {e}"))
}
