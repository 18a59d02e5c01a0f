//! Small models planned for less memory than they would like, so that their schedules recompute.

use remat::model::{self, Options};
use remat::pipeline::{Costs, Fit, Prepared, Program, compile, prepare};
use remat::profile::Machine;
use remat_plan::{Bytes, Request};

/// Options as one would type them.
const MODELS: [(&str, &str); 2] = [
    ("resnet18", "batch=2 image=32 classes=10"),
    ("gpt", "batch=2 seq=24 vocab=101 dim=32 layers=2 heads=4 dropout=0.1"),
];

/// Each model with a program that fits into the middle between its floor and what it needs without recomputation.
pub(crate) fn programs() -> Vec<(Prepared, Program)> {
    let planned = |&(name, typed): &(&str, &str)| {
        let entry = model::find(name).expect("a known model");
        let pairs = typed.split(' ').map(|pair| pair.split_once('=').expect("NAME=VALUE"));
        let options = pairs.fold(Options::new(), |options, (name, value)| options.with(name, value));
        let forward = entry.build(&options).expect("valid options").into_graph();
        let costs = Costs::Analytic(Machine::nominal(1));
        let prepared = prepare(&forward, &entry.optimizer, costs, |_, _| {}).expect("a valid step");
        let budget = Bytes(prepared.floor.bytes.0.midpoint(prepared.keep_all.peak().0));
        let request = Request { effort: Some(0.05), ..Request::new(budget) };
        let fit = compile(&prepared, "best", &request).expect("no internal error");
        let Fit::Fits(program) = fit else { panic!("{name} does not fit into {budget}") };
        assert!(program.schedule().n_recomputes() > 0, "{name} recomputes nothing");
        (prepared, *program)
    };
    MODELS.iter().map(planned).collect()
}
