//! Using a trained model: predictions and text, in one arena of a known size.
//!
//! In: a run's folder, or a model and its weights. Out: an [`Inference`]. It runs the forward pass as evaluation does
//! (running statistics, no dropout) up to what the loss would compare with the truth.

mod image;
mod sampling;

pub use image::Image;
pub use sampling::Sampling;

use crate::error::{Error, Result};
use crate::exec::{Engine as _, Executor, as_floats_mut};
use crate::graph::{DType, Graph, Kind};
use crate::ids::ValueId;
use crate::model;
use crate::nn::Model;
use crate::op::{MicroBatch, Run};
use crate::pipeline::{Fit, Place, Resting, compile_forward};
use crate::step::prediction_pass;
use crate::train::{About, Batch, Checkpoints, ImageShape, Newest, Part, RunFolder, Vocabulary};
use crate::weights::{Contents, WeightFile};
use remat_plan::Bytes;
use std::path::Path;

/// A model that predicts.
///
/// ```no_run
/// use remat::prelude::*;
///
/// let mut model = Inference::load("runs/digits")?;
/// println!("{:?}", model.predict_image(&Image::open("seven.png")?)?.top(3));
/// let mut writer = Inference::load("runs/tales")?;
/// println!("{}", writer.generate("Once upon", &Sampling::default().tokens(200).temperature(0.8))?);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Debug)]
pub struct Inference {
    executor: Executor,
    about: About,
    output: ValueId,
    /// Examples of a batch.
    n_rows: usize,
    damaged: Vec<String>,
}

/// What a model makes of one example.
#[derive(Clone, PartialEq, Debug)]
pub struct Prediction {
    /// The numbers that the model gives: logits for a classifier.
    pub values: Vec<f32>,
    /// What each of them stands for, where the model was trained on named classes.
    classes: Vec<String>,
}

impl Prediction {
    /// The likeliest classes with their probabilities, best first. Classes without a name are called by their number.
    pub fn top(&self, n: usize) -> Vec<(String, f32)> {
        let highest = self.values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let weights: Vec<f32> = self.values.iter().map(|&value| libm::expf(value - highest)).collect();
        let sum: f32 = weights.iter().sum();
        let mut order: Vec<usize> = (0..weights.len()).collect();
        order.sort_by(|&a, &b| weights[b].total_cmp(&weights[a]).then(a.cmp(&b)));
        let name = |class: usize| self.classes.get(class).cloned().unwrap_or_else(|| class.to_string());
        order.into_iter().take(n).map(|class| (name(class), weights[class] / sum)).collect()
    }
}

impl Inference {
    /// The model of a run's folder with its newest checkpoint: one that `remat train --checkpoint` or
    /// [`Trainer::save`](crate::training::Trainer::save) wrote.
    ///
    /// A listed model is built for one example at a time. Any other runs with the batch size it was trained with; build it
    /// with a smaller one and use [`Inference::new`] where that matters.
    pub fn load(folder: impl AsRef<Path>) -> Result<Inference> {
        let folder = folder.as_ref();
        let checkpoint = Checkpoints::newest(folder)?;
        let described = RunFolder::read(folder)?;
        let (forward, prediction) = match (model::of_name(&checkpoint.model), &described) {
            (Some((info, options)), _) => {
                // Some models cannot be built for one example; those run with the batch size of training.
                let one = info.build(&options.clone().with("batch", 1));
                let model = one.or_else(|_| info.build(&options))?;
                let prediction = model.roles().prediction;
                (model.into_graph(), prediction)
            }
            (None, Some(described)) => (described.forward()?, described.prediction()),
            (None, None) => {
                let message =
                    "does not say which model was trained; build the model in code and use `Inference::new`";
                return Err(Error::Checkpoint {
                    place: folder.display().to_string(),
                    message: message.to_owned(),
                });
            }
        };
        let about = described.map_or(About::Numbers, |described| described.about().clone());
        let inference = Inference::assemble(&forward, prediction, checkpoint.weights, about)?;
        Ok(Inference { damaged: checkpoint.damaged, ..inference })
    }

    /// A model of your own with the weights of a safetensors file, or of a run's folder.
    pub fn new(model: &Model, weights: impl AsRef<Path>) -> Result<Inference> {
        let (path, prediction) = (weights.as_ref(), model.roles().prediction);
        if path.is_dir() {
            let about = RunFolder::read(path)?.map_or(About::Numbers, |described| described.about().clone());
            let Newest { weights, damaged, .. } = Checkpoints::newest(path)?;
            let inference = Inference::assemble(model.graph(), prediction, weights, about)?;
            return Ok(Inference { damaged, ..inference });
        }
        let mut weights = WeightFile::open_any(path)?;
        weights.verify()?;
        Inference::assemble(model.graph(), prediction, weights, About::Numbers)
    }

    fn assemble(
        forward: &Graph,
        prediction: Option<ValueId>,
        mut weights: WeightFile,
        about: About,
    ) -> Result<Inference> {
        let is_there = |value: &ValueId| forward.values.get(*value).is_some();
        let pass = prediction_pass(forward, prediction.filter(is_there))?;
        let output = pass.roles.prediction.unwrap_or(pass.roles.loss);
        let n_rows = pass.read_inputs().first().map_or(1, |s| pass.graph.values[s.value].ty.shape()[0]);
        // Before any memory is reserved: a file that is not the model's must not decide how much that is.
        weights.check(&pass.graph, Contents::Weights)?;
        let program = match compile_forward(&pass, Bytes(u64::MAX), Place::Anywhere, Resting::default())? {
            Fit::Fits(program) => *program,
            Fit::Refused(refusal) => return Err(refusal.into()),
        };
        let n_threads = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
        let mut executor = Executor::new(program, n_threads)?;
        for source in executor.graph().sources.clone() {
            let value = executor.graph().values[source.value].clone();
            if value.kind.is_state() {
                weights.read(&source, &value.ty, 0, as_floats_mut(executor.bytes_mut(source.value)))?;
            }
        }
        Ok(Inference { executor, about, output, n_rows, damaged: Vec::new() })
    }

    /// Newer checkpoints of the folder that were passed over because they are damaged, each with what is wrong.
    pub fn damaged_checkpoints(&self) -> &[String] {
        &self.damaged
    }

    /// All memory that it uses: weights, inputs and everything in between.
    pub fn peak(&self) -> Bytes {
        self.executor.program().peak()
    }

    /// What the model was trained on.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// The tokens of a language model.
    pub fn vocabulary(&self) -> Result<&Vocabulary> {
        match &self.about {
            About::Text(vocabulary) => Ok(vocabulary),
            _ => Err(self.unfit("was not trained on text, so it cannot write any")),
        }
    }

    /// Runs one batch that `fill` makes and returns what the model predicts for every example.
    pub fn predict_batch(
        &mut self,
        fill: impl FnOnce(&mut Batch<'_>) -> Result<()>,
    ) -> Result<Vec<Prediction>> {
        self.run(fill)?;
        let values = self.executor.floats(self.output);
        let classes = match &self.about {
            About::Images { classes, .. } => classes.as_slice(),
            _ => &[],
        };
        let rows = values.chunks_exact((values.len() / self.n_rows).max(1));
        Ok(rows.map(|row| Prediction { values: row.to_vec(), classes: classes.to_vec() }).collect())
    }

    /// What the model predicts for one example: the elements of its float input.
    pub fn predict(&mut self, example: &[f32]) -> Result<Prediction> {
        let mut predictions = self.predict_batch(|batch| {
            let mut inputs = batch.inputs().iter_mut().filter(|input| input.limit().is_none());
            let Some(input) = inputs.next() else {
                let message = "no input of the model takes floats; use `predict_batch`".to_owned();
                return Err(Error::TrainingData { place: "predict".to_owned(), message });
            };
            let shape = input.shape().to_vec();
            let n: usize = shape[1..].iter().product();
            if example.len() != n {
                let message = format!("an example of {shape:?} has {n} elements, got {}", example.len());
                return Err(Error::TrainingData { place: format!("input `{}`", input.name()), message });
            }
            input.floats()?[..n].copy_from_slice(example);
            Ok(())
        })?;
        Ok(predictions.swap_remove(0))
    }

    /// The class of an image, scaled and normalised as in training.
    pub fn predict_image(&mut self, image: &Image) -> Result<Prediction> {
        let About::Images { scale, .. } = &self.about else {
            return Err(self.unfit("was not trained on images"));
        };
        let (scale, graph) = (*scale, self.executor.graph());
        let is_image =
            |v: ValueId| graph.values[v].kind == Kind::Input && graph.values[v].ty.dtype() == DType::F32;
        let input = graph.sources.iter().map(|s| s.value).find(|&v| is_image(v));
        let shape = input.and_then(|v| ImageShape::of_input(graph.values[v].ty.shape()));
        let shape = shape.ok_or_else(|| self.unfit("does not read images"))?;
        let mut pixels = vec![0.0; shape.numel()];
        scale.rgb(image.rgb(), image.size(), shape, &mut pixels);
        self.predict(&pixels)
    }

    /// Continues a text.
    pub fn generate(&mut self, prompt: &str, sampling: &Sampling) -> Result<String> {
        let mut bytes = Vec::new();
        self.generate_with(prompt, sampling, |part| bytes.extend_from_slice(part))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Continues a text and hands over the bytes of each token as soon as it is drawn, starting with the prompt.
    pub fn generate_with(
        &mut self,
        prompt: &str,
        sampling: &Sampling,
        mut each: impl FnMut(&[u8]),
    ) -> Result<()> {
        let vocabulary = self.vocabulary()?.clone();
        let mut tokens = vocabulary.encode(prompt);
        each(prompt.as_bytes());
        if tokens.is_empty() {
            // Something has to be there for the first prediction; a line end is how texts begin.
            tokens.push(u32::from(b'\n'));
        }
        for _ in 0..sampling.tokens {
            let logits = self.next_token_logits(&tokens)?;
            // A mask is a token that nothing in a text stands for.
            let token = sampling.draw(&logits[..logits.len().min(vocabulary.len())], tokens.len()) as u32;
            tokens.push(token);
            each(&vocabulary.bytes(token));
        }
        Ok(())
    }

    /// The logits of the token after these. Only as many of the last ones are seen as the model has positions.
    fn next_token_logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        let mut seen = 0;
        self.run(|batch| {
            let mut inputs = batch.inputs().iter_mut().filter(|input| input.limit().is_some());
            let Some(input) = inputs.next() else {
                let message = "no input of the model takes tokens".to_owned();
                return Err(Error::TrainingData { place: "generate".to_owned(), message });
            };
            let length = input.shape().last().copied().unwrap_or(1);
            let window = &tokens[tokens.len().saturating_sub(length)..];
            seen = window.len();
            // What follows the last token is not seen: the model is causal.
            input.integers()?.iter_mut().zip(window).for_each(|(to, &token)| *to = token as i32);
            Ok(())
        })?;
        let logits = self.executor.floats(self.output);
        let n_classes = self.executor.graph().values[self.output].ty.last();
        Ok(logits[(seen - 1) * n_classes..seen * n_classes].to_vec())
    }

    fn run(&mut self, fill: impl FnOnce(&mut Batch<'_>) -> Result<()>) -> Result<()> {
        let mut batch = Batch::new(1, Part::HeldOut, 0, self.executor.batch_mut());
        for input in batch.inputs() {
            // Examples that are not filled, and labels, which are not read.
            input.clear();
        }
        fill(&mut batch)?;
        batch.check()?;
        let run = Run { seed: 0, step: 1, learning_rate: 0.0, micro: MicroBatch::ONLY };
        self.executor.step(&run, None).map(|_| ())
    }

    fn unfit(&self, message: &str) -> Error {
        Error::TrainingData { place: self.executor.graph().name.clone(), message: message.to_owned() }
    }
}
