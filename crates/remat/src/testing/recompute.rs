//! A training step in which the op runs a second time has the bits of one that keeps everything.

use super::Numbers;
use crate::exec::{Engine, Executor, Reference, as_floats_mut};
use crate::graph::{Builder, DType, FileLayout, Graph, Init, Kind, Source, Type};
use crate::ids::ValueId;
use crate::op::constant::Constant;
use crate::op::mse::Mse;
use crate::op::scale::Scale;
use crate::op::{Example, Fill, MicroBatch, Run};
use crate::optimizer::Optimizer;
use crate::pipeline::{Costs, Prepared, checkpoint, prepare_step};
use crate::profile::Machine;
use crate::step::training_step;

/// The module that is dropped after forward and computed again in backward.
const MODULE: &str = "recomputed";
const N_STEPS: u64 = 2;

/// Nothing to check for an op that a loss cannot depend on, or that replaces state.
pub(super) fn check(example: &Example) {
    let Some(forward) = model(example) else { return };
    let op = &example.op;
    let step = training_step(&forward, &Optimizer::adam(1e-2)).expect("an example can be trained");
    let costs = Costs::Analytic(Machine::nominal(1));
    let prepared = prepare_step(step, costs, |_, _| {}).expect("an example can be planned");
    // A module of which backward reads nothing is not run again by anybody.
    let Ok(program) = checkpoint(&prepared, &[MODULE]) else { return };
    let oracle = Reference::new(prepared.step.graph.clone(), 1).expect("an example is small");
    let want = train(&prepared, oracle, |oracle, run| oracle.step(run, None));
    for threads in [1, 2] {
        let mut executor = Executor::new(program.clone(), threads).expect("an example is small");
        executor.poison = true;
        let got = train(&prepared, executor, |executor, run| {
            let measured = executor.step(run, None).expect("no store is involved").peak;
            assert_eq!(measured, program.peak(), "{op:?}: measured and predicted peak");
        });
        assert!(got == want, "{op:?}: computed again with {threads} threads, other bits");
    }
}

/// Parameters as the op's float inputs, behind a node that has to be kept or made again, and a loss over its output.
fn model(example: &Example) -> Option<Graph> {
    let op = &example.op;
    let is_trainable = op.def().differentiable_outputs().is_some_and(|outputs| outputs.contains(&0))
        && op.def().consumes(&example.inputs.iter().map(|(ty, _)| ty).collect::<Vec<_>>()).is_empty();
    if !is_trainable || example.inputs.is_empty() {
        return None;
    }
    let mut b = Builder::new("one op");
    let inputs: Vec<(ValueId, &Type)> = (example.inputs.iter().enumerate())
        .map(|(i, (ty, _))| {
            let kind = if ty.dtype() == DType::F32 { Kind::Parameter } else { Kind::Input };
            let init = if kind == Kind::Parameter { Init::Normal(1.0) } else { Init::Batch };
            (b.source(&format!("x{i}"), kind, ty.clone(), init, FileLayout::Same), ty)
        })
        .collect();
    let y = b
        .scope(MODULE, |b| -> crate::Result<ValueId> {
            let mut x = Vec::new();
            for (value, ty) in inputs {
                let is_float = ty.dtype() == DType::F32;
                x.push(if is_float { b.add(Scale { factor: 0.75 }, &[value])? } else { value });
            }
            b.add(op.clone(), &x)
        })
        .expect("an example is well typed");
    let target = Constant { value: 0.5, shape: b.ty(y).shape().to_vec() };
    let target = b.add(target, &[]).expect("a constant of a known shape");
    let loss = b.add(Mse {}, &[y, target]).expect("two tensors of one shape");
    b.output(loss);
    Some(b.finish())
}

/// Losses and final state, as bits.
fn train<E: Engine>(prepared: &Prepared, mut engine: E, step: impl Fn(&mut E, &Run)) -> Vec<Vec<u8>> {
    let graph = &prepared.step.graph;
    let is_state = |source: &&Source| graph.values[source.value].kind.is_state();
    let mut numbers = Numbers(5);
    let mut fill = |engine: &mut E, source: &Source| {
        let ty = &graph.values[source.value].ty;
        let bytes = engine.bytes_mut(source.value);
        match ty.dtype() {
            // Optimizer state begins with zero.
            DType::F32 if source.init == Init::Constant(0.0) => bytes.fill(0),
            DType::F32 => {
                let values = numbers.fill(ty, Fill::Normal);
                as_floats_mut(bytes).iter_mut().zip(values).for_each(|(to, from)| *to = from as f32);
            }
            _ => {
                let values = numbers.fill(ty, Fill::Below(2)).into_iter().map(|v| (v as i32).to_ne_bytes());
                bytes.chunks_exact_mut(4).zip(values).for_each(|(to, from)| to.copy_from_slice(&from));
            }
        }
    };
    graph.sources.iter().filter(is_state).for_each(|source| fill(&mut engine, source));
    let mut seen = Vec::new();
    for number in 1..=N_STEPS {
        // The storage of a batch is given back during the step.
        graph.sources.iter().filter(|s| !is_state(s)).for_each(|source| fill(&mut engine, source));
        step(&mut engine, &Run { seed: 3, step: number, learning_rate: 1e-2, micro: MicroBatch::ONLY });
        seen.push(engine.bytes(prepared.step.roles.loss).to_vec());
    }
    seen.extend(graph.sources.iter().filter(is_state).map(|s| engine.bytes(s.value).to_vec()));
    seen
}
