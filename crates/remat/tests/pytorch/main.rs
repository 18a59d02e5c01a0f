//! The engine against PyTorch from the same weights.
//!
//! Weights and data are computed from names on both sides; the fixtures hold PyTorch's results in f32 and f64, and
//! `bench/pytorch/fixtures.py` writes them. We compare with the f64 ones. Tolerances, all relative to f64:
//! the loss [`LOSS_TOLERANCE`]; everything about a gradient [`GRADIENT_TOLERANCE`] of its norm, where the norm is
//! taken as at least a thousandth of the whole gradient's (some gradients are zero but for rounding), and the sum of
//! `n` elements may err by `sqrt(n)` times as much. PyTorch's own f32 run must stay within a tenth of every tolerance:
//! a fixture noisier than that could not tell an error of ours from its own.

mod fixture;
mod weights;

use fixture::{GradientFacts, ModelFixture, Pair};
use remat::exec::{Engine, Reference, as_floats_mut};
use remat::graph::{Builder, FileLayout, Graph, Init, Kind, Source, Type};
use remat::model::{self, Options};
use remat::op::adam::Adam;
use remat::op::sgd::Sgd;
use remat::op::{MicroBatch, Op, Run};
use remat::optimizer::{Optimizer, Rule};
use remat::step::{TrainingStep, training_step};
use serde_json::{Map, Value};

const LOSS_TOLERANCE: f64 = 1e-5;
const GRADIENT_TOLERANCE: f64 = 1e-4;

/// The model of a fixture, ready to run, with generated weights and data.
struct Model {
    step: TrainingStep,
    engine: Reference,
}

impl Model {
    fn new(name: &str, fixture: &ModelFixture, optimizer: &Optimizer) -> Model {
        let mut typed = Options::new();
        fixture.options.iter().for_each(|(name, value)| typed.set(name, value));
        let forward =
            model::find(name).and_then(|m| m.build(&typed)).expect("the fixture's options are the model's");
        let step = training_step(forward.graph(), optimizer).expect("every model can be trained");
        let mut engine = Reference::new(step.graph.clone(), 2).expect("two threads can be had");
        engine.initialise(0).expect("no store is involved");
        for source in &step.graph.sources {
            fill(&step.graph, source, &fixture.input, &mut engine);
        }
        Model { step, engine }
    }

    /// Runs step `number` (from 1) and returns its loss.
    fn run(&mut self, number: u64, learning_rate: f64) -> f64 {
        self.engine.step(&Run { seed: 0, step: number, learning_rate, micro: MicroBatch::ONLY }, None);
        f64::from(self.engine.floats(self.step.roles.loss)[0])
    }

    fn source(&self, name: &str) -> &Source {
        let found = self.step.graph.sources.iter().find(|s| s.name == name);
        found.unwrap_or_else(|| panic!("the model has no `{name}`"))
    }

    /// The gradient of a parameter in PyTorch's element order.
    fn gradient(&self, name: &str) -> Vec<f64> {
        let source = self.source(name);
        let &(_, gradient) = self
            .step
            .roles
            .gradients
            .iter()
            .find(|g| g.0 == source.value)
            .expect("every parameter is trained");
        let ours = self.engine.floats(gradient);
        pytorch_order(&self.step.graph, source).map(|i| f64::from(ours[i])).collect()
    }
}

/// The shape of a source in PyTorch, and the permutation that brings our axes there.
fn pytorch_axes(graph: &Graph, source: &Source) -> Option<[usize; 4]> {
    let value = &graph.values[source.value];
    // Images are NHWC here and NCHW there, convolution weights OHWI and OIHW: the same permutation.
    let is_image = value.kind == Kind::Input && source.init == Init::Batch && value.ty.rank() == 4;
    let moves = is_image || source.file_layout == FileLayout::ConvWeight;
    moves.then(|| value.ty.shape().try_into().expect("images and convolution weights have four axes"))
}

fn pytorch_shape(graph: &Graph, source: &Source) -> Vec<usize> {
    match pytorch_axes(graph, source) {
        Some([n, h, w, c]) => vec![n, c, h, w],
        None => graph.values[source.value].ty.shape().to_vec(),
    }
}

/// For each position in PyTorch's order, the position in ours.
fn pytorch_order(graph: &Graph, source: &Source) -> Box<dyn Iterator<Item = usize>> {
    match pytorch_axes(graph, source) {
        Some([n, h, w, channels]) => Box::new((0..n).flat_map(move |n| {
            (0..channels).flat_map(move |c| (0..h * w).map(move |pixel| (n * h * w + pixel) * channels + c))
        })),
        None => Box::new(0..graph.values[source.value].ty.numel()),
    }
}

/// Fills a parameter or an input with generated values; `image` names the tensor that a float input takes.
fn fill(graph: &Graph, source: &Source, image: &str, engine: &mut Reference) {
    let value = &graph.values[source.value];
    if let Init::Indices(limit) | Init::Labels(limit) = source.init {
        let ids = weights::ids(&source.name, value.ty.numel(), limit);
        let bytes = engine.bytes_mut(source.value);
        bytes.chunks_exact_mut(4).zip(ids).for_each(|(b, id)| b.copy_from_slice(&id.to_ne_bytes()));
        return;
    }
    let generated = match value.kind {
        Kind::Parameter => weights::parameter(&source.name, &pytorch_shape(graph, source)),
        Kind::Input => weights::image(image, value.ty.numel()),
        _ => return,
    };
    let ours = as_floats_mut(engine.bytes_mut(source.value));
    pytorch_order(graph, source).zip(generated).for_each(|(i, x)| ours[i] = x);
}

/// Fails when a number of ours, or PyTorch's in f32, is further from the f64 one than allowed. Returns our error as
/// a fraction of what is allowed.
fn check(what: &str, ours: f64, [single, double]: Pair, allowed: f64) -> f64 {
    assert!(
        (ours - double).abs() <= allowed,
        "{what}: {ours} instead of {double} (f32: {single}, allowed ±{allowed:e})"
    );
    assert!(
        (single - double).abs() <= 0.1 * allowed,
        "{what}: the fixture is too noisy for a tolerance of {allowed:e}"
    );
    (ours - double).abs() / allowed
}

fn check_gradient(facts: &GradientFacts, ours: &[f64], whole_norm: f64) -> f64 {
    let name = &facts.name;
    let allowed = GRADIENT_TOLERANCE * facts.norm[1].max(1e-3 * whole_norm);
    let norm = ours.iter().map(|g| g * g).sum::<f64>().sqrt();
    let probe: f64 =
        weights::centred(&format!("{name}.probe"), ours.len()).zip(ours).map(|(r, g)| r * g).sum();
    let mut worst = check(&format!("{name}, norm"), norm, facts.norm, allowed);
    worst = worst.max(check(&format!("{name}, probe"), probe, facts.probe, allowed));
    let allowed_sum = allowed * (ours.len() as f64).sqrt();
    worst = worst.max(check(&format!("{name}, sum"), ours.iter().sum(), facts.sum, allowed_sum));
    for (&index, &value) in facts.indices.iter().zip(&facts.values) {
        worst = worst.max(check(&format!("{name}[{index}]"), ours[index], value, allowed));
    }
    worst
}

/// One step of a model: names and shapes, loss, every gradient, running statistics.
fn check_model(name: &str) {
    let fixture: ModelFixture = fixture::read(name);
    let mut model = Model::new(name, &fixture, &Optimizer::sgd(0.0));
    let graph = &model.step.graph;
    let is_parameter = |s: &&Source| graph.values[s.value].kind == Kind::Parameter;
    let parameters = graph.sources.iter().filter(is_parameter);
    let mut ours: Vec<_> = parameters.map(|s| (s.name.clone(), pytorch_shape(graph, s))).collect();
    let mut theirs: Vec<_> = fixture.parameters.iter().map(|p| (p.name.clone(), p.shape.clone())).collect();
    ours.sort();
    theirs.sort();
    assert_eq!(ours, theirs, "names or shapes of parameters differ");

    let loss = model.run(1, 0.0);
    let mut worst = check("loss", loss, fixture.loss, LOSS_TOLERANCE * fixture.loss[1].abs());
    for facts in &fixture.parameters {
        worst = worst.max(check_gradient(facts, &model.gradient(&facts.name), fixture.gradient_norm));
    }
    for facts in &fixture.buffers {
        let ours = model.engine.floats(model.source(&facts.name).value);
        for (i, (&x, &value)) in ours.iter().zip(&facts.values).enumerate() {
            check(&format!("{}[{i}]", facts.name), f64::from(x), value, 1e-5 * value[1].abs().max(1.0));
        }
    }
    println!("{name}: the largest error is {:.0} % of the tolerance", worst * 100.0);
}

#[test]
fn mlp() {
    check_model("mlp");
}

#[test]
fn resnet18() {
    check_model("resnet18");
}

#[test]
fn resnet50() {
    check_model("resnet50");
}

#[test]
fn unet() {
    check_model("unet");
}

#[test]
fn transformer() {
    check_model("transformer");
}

#[test]
fn bert() {
    check_model("bert");
}

#[test]
fn gpt() {
    check_model("gpt");
}

/// A number of a fixture's options.
fn number(options: &Map<String, Value>, name: &str, default: f64) -> f64 {
    options.get(name).map_or(default, |v| v.as_f64().expect("options are numbers"))
}

#[test]
fn losses_over_three_updates() {
    let fixture: fixture::TrainingFixture = fixture::read("training");
    assert_eq!(fixture.runs.len(), 3);
    for run in fixture.runs {
        let weight_decay = number(&run.options, "weight_decay", 0.0);
        let rule = match run.optimizer.as_str() {
            "sgd" => {
                Rule::Sgd { momentum: number(&run.options, "momentum", 0.0), weight_decay, nesterov: false }
            }
            "adam" => Rule::Adam { weight_decay },
            "adamw" => Rule::AdamW { weight_decay },
            other => panic!("unknown optimizer {other}"),
        };
        let learning_rate = number(&run.options, "lr", f64::NAN);
        let of_model: ModelFixture = fixture::read(&run.model);
        let mut model =
            Model::new(&run.model, &of_model, &Optimizer { rule, ..Optimizer::adam(learning_rate) });
        for (i, &loss) in run.losses.iter().enumerate() {
            let ours = model.run(i as u64 + 1, learning_rate);
            // Updates amplify rounding, the more the closer the loss comes to zero.
            check(&format!("{}, loss {i}", run.model), ours, loss, 1e-4);
        }
    }
}

#[test]
fn optimizers_over_five_updates() {
    let fixture: fixture::OptimizerFixture = fixture::read("optimizers");
    for run in fixture.runs {
        let beta = |i: usize, default| {
            run.options.get("betas").map_or(default, |b| b[i].as_f64().expect("a number"))
        };
        let weight_decay = number(&run.options, "weight_decay", 0.0);
        let momentum = number(&run.options, "momentum", 0.0);
        let op: Op = match run.optimizer.as_str() {
            "sgd" => Sgd { momentum, weight_decay, nesterov: run.options.contains_key("nesterov") }.into(),
            name => Adam {
                beta1: beta(0, 0.9),
                beta2: beta(1, 0.999),
                eps: number(&run.options, "eps", 1e-8),
                weight_decay,
                decoupled: name == "adamw",
            }
            .into(),
        };
        let n_states = if op.is::<Sgd>() { usize::from(momentum != 0.0) } else { 2 };
        let ty = Type::f32(&[fixture.start.len()]).unwrap();
        let mut b = Builder::new("update");
        let parameter = b.parameter("parameter", ty.clone(), Init::Constant(0.0));
        let gradient = b.input("gradient", ty.shape()).unwrap();
        let mut inputs = vec![parameter, gradient];
        for i in 0..n_states {
            let name = format!("state{i}");
            inputs.push(b.source(
                &name,
                Kind::OptimizerState,
                ty.clone(),
                Init::Constant(0.0),
                FileLayout::Same,
            ));
        }
        b.add_all(op, &inputs).unwrap();
        let mut engine = Reference::new(b.finish(), 1).unwrap();
        engine.initialise(0).expect("no store is involved");
        as_floats_mut(engine.bytes_mut(parameter)).copy_from_slice(&fixture.start);
        assert_eq!(run.steps.len(), fixture.gradients.len());
        for (i, (expected, values)) in run.steps.iter().zip(&fixture.gradients).enumerate() {
            as_floats_mut(engine.bytes_mut(gradient)).copy_from_slice(values);
            let learning_rate = number(&run.options, "lr", f64::NAN);
            engine.step(&Run { seed: 0, step: i as u64 + 1, learning_rate, micro: MicroBatch::ONLY }, None);
            for (j, (&x, &value)) in engine.floats(parameter).iter().zip(expected).enumerate() {
                let what = format!("{} {:?}, step {i}, element {j}", run.optimizer, run.options);
                check(&what, f64::from(x), value, 1e-5);
            }
        }
    }
}

#[test]
fn both_sides_generate_the_same_bits() {
    let fixture: fixture::GeneratorFixture = fixture::read("generator");
    for p in fixture.parameters {
        assert_eq!(weights::parameter(&p.name, &p.shape), p.values, "{}", p.name);
    }
    assert_eq!(weights::image("input", 12), fixture.input);
    assert_eq!(weights::ids("labels", 12, 1000), fixture.labels);
}
