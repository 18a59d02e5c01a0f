//! No kernel writes outside its outputs and its workspace: the arena is compared after every kernel of every kind of model,
//! with every instruction set, with everything kept and within a budget.

use remat::graph::Type;
use remat::isa::{self, Isa};
use remat::model::{self, Options};
use remat::op::{Cost, Example, Io, NaiveIo, OpDef};
use remat::optimizer::Optimizer;
use remat::pipeline::{Costs, Fit, Program, compile, prepare};
use remat::prelude::Model;
use remat::profile::Machine;
use remat::train::{Session, Synthetic};
use remat_plan::{Bytes, Request};

const LANGUAGE: &[(&str, &str)] =
    &[("batch", "2"), ("seq", "9"), ("dim", "12"), ("layers", "2"), ("vocab", "23"), ("heads", "2")];

const CASES: [(&str, &[(&str, &str)]); 5] = [
    ("mlp", &[("batch", "5"), ("features", "7"), ("width", "9"), ("layers", "3")]),
    ("unet", &[("batch", "2"), ("image", "16"), ("width", "3")]),
    ("transformer", LANGUAGE),
    ("bert", LANGUAGE),
    ("gpt", LANGUAGE),
];

/// The program that keeps everything, and one for a budget half way to the floor.
fn programs(name: &str, options: &[(&str, &str)]) -> Vec<Program> {
    let options = options.iter().fold(Options::new(), |all, &(name, value)| all.with(name, value));
    let forward = model::find(name).expect("a model").build(&options).expect("valid options").into_graph();
    let costs = Costs::Analytic(Machine::nominal(1));
    let prepared = prepare(&forward, &Optimizer::adam(1e-3), costs, |_, _| {}).expect("a step");
    let half_way = Bytes((prepared.floor.bytes.0 + prepared.keep_all.peak().0) / 2);
    let request = Request { effort: Some(0.02), ..Request::new(half_way) };
    let budget = match compile(&prepared, "best", &request).expect("no internal error") {
        Fit::Fits(program) => Some(*program),
        Fit::Refused(_) => None,
    };
    [prepared.keep_all.clone()].into_iter().chain(budget).collect()
}

#[test]
fn kernels_write_only_what_is_theirs() {
    for (name, options) in CASES {
        for program in programs(name, options) {
            for isa in Isa::available() {
                isa::select(isa);
                let batches = Box::new(Synthetic { seed: 1 });
                let mut session = Session::new(program.clone(), batches, 1, 2).expect("memory");
                session.executor_mut().watch = true;
                for _ in 0..2 {
                    session.step(None).unwrap_or_else(|error| panic!("{name}: {error}"));
                }
            }
        }
    }
}

/// Doubles its input, and writes one element too many.
#[derive(Clone, PartialEq, Debug, remat::serde::Serialize)]
#[serde(crate = "remat::serde")]
struct Careless;

impl OpDef for Careless {
    fn name() -> &'static str {
        "careless"
    }
    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        Ok(vec![x[0].clone()])
    }
    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::element_wise(x, y, 1)
    }
    fn run(&self, io: &mut Io<'_>) {
        let (x, y) = (io.f32(0), io.out(0));
        y.iter_mut().zip(x).for_each(|(y, x)| *y = 2.0 * x);
        // SAFETY: none, that is the point; the arena is larger than this output.
        unsafe { y.as_mut_ptr().add(y.len()).write_volatile(123.5) };
    }
    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        vec![io.x[0].iter().map(|x| 2.0 * x).collect()]
    }
    fn examples() -> Vec<Example> {
        vec![Example::normal(Careless, &[&[3]])]
    }
}

#[test]
#[should_panic(expected = "which is not its own")]
fn a_stray_write_is_seen() {
    let model = Model::build("careless", |g| {
        let labels = g.labels("labels", [4], 3);
        g.input("input", [4, 5]).apply(Careless).linear("fc", 3).cross_entropy(labels)
    });
    let forward = model.expect("a model").into_graph();
    let costs = Costs::Analytic(Machine::nominal(1));
    let program = prepare(&forward, &Optimizer::adam(1e-3), costs, |_, _| {}).expect("a step").keep_all;
    let mut session = Session::new(program, Box::new(Synthetic { seed: 1 }), 1, 1).expect("memory");
    session.executor_mut().watch = true;
    let _ = session.step(None);
}
