//! The gradient against the slope of the slow forward.

use super::kernel::{assert_close, run_naive};
use super::{Numbers, fill_inputs};
use crate::graph::{Builder, DType, FileLayout, Graph, Init, Kind, Type};
use crate::ids::{IdVec, ValueId};
use crate::op::{Example, Fill, GradArgs};

/// Step of the central differences, and their largest error relative to the largest element of the gradient.
const STEP: f64 = 1e-6;
const TOLERANCE: f64 = 1e-5;

/// A graph of one op and its gradient nodes.
struct Differentiated {
    graph: Graph,
    x: Vec<ValueId>,
    y: Vec<ValueId>,
    dy: Vec<Option<ValueId>>,
    dx: Vec<Option<ValueId>>,
}

fn differentiate(example: &Example) -> Differentiated {
    let mut b = Builder::new("one op");
    let source = |b: &mut Builder, name: &str, ty: &Type| {
        b.source(name, Kind::Input, ty.clone(), Init::Batch, FileLayout::Same)
    };
    let x: Vec<ValueId> =
        example.inputs.iter().enumerate().map(|(i, (ty, _))| source(&mut b, &format!("x{i}"), ty)).collect();
    let y = b.add_all(example.op.clone(), &x).expect("an example is well typed");
    let mut dy = vec![None; y.len()];
    for &o in example.op.def().differentiable_outputs().unwrap_or(&[]) {
        let ty = b.ty(y[o]).clone();
        dy[o] = Some(source(&mut b, &format!("dy{o}"), &ty));
    }
    let wants: Vec<bool> = example.inputs.iter().map(|(ty, _)| ty.dtype() == DType::F32).collect();
    let args = GradArgs { x: &x, y: &y, dy: &dy, wants: &wants };
    let dx = example.op.def().grad(&mut b, &args).expect("gradient nodes of an example are well typed");
    Differentiated { graph: b.finish(), x, y, dy, dx }
}

/// All values of the graph, computed by the slow twins from the sources.
fn evaluate(graph: &Graph, sources: &[(ValueId, Vec<f64>)]) -> IdVec<ValueId, Vec<f64>> {
    let mut values = IdVec::<ValueId, Vec<f64>>::filled(graph.values.len(), Vec::new());
    for (value, elements) in sources {
        values[*value] = elements.clone();
    }
    for node in graph.nodes.iter() {
        let x: Vec<&[f64]> = node.inputs.iter().map(|&v| values[v].as_slice()).collect();
        let y = run_naive(&node.op, &x, &graph.input_types(node), &graph.output_types(node));
        for (&value, elements) in node.outputs.iter().zip(y) {
            values[value] = elements;
        }
    }
    values
}

/// `Σ y · dy` of the op alone.
fn loss(example: &Example, inputs: &[Vec<f64>], y_types: &[&Type], dy: &[Option<Vec<f64>>]) -> f64 {
    let x: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
    let x_types: Vec<&Type> = example.inputs.iter().map(|(ty, _)| ty).collect();
    let y = run_naive(&example.op, &x, &x_types, y_types);
    let dot = |(y, dy): (&Vec<f64>, &Option<Vec<f64>>)| -> f64 {
        dy.iter().flatten().zip(y).map(|(dy, y)| dy * y).sum()
    };
    y.iter().zip(dy).map(dot).sum()
}

/// Nothing to check for an op without a gradient.
pub(super) fn check(example: &Example) {
    let op = &example.op;
    if op.def().differentiable_outputs().is_none_or(<[usize]>::is_empty) || example.inputs.is_empty() {
        return;
    }
    let d = differentiate(example);
    let mut inputs = fill_inputs(example);
    let mut numbers = Numbers(7);
    let y_types: Vec<&Type> = d.y.iter().map(|&y| &d.graph.values[y].ty).collect();
    let dy: Vec<Option<Vec<f64>>> =
        d.dy.iter().zip(&y_types).map(|(dy, ty)| dy.map(|_| numbers.fill(ty, Fill::Normal))).collect();
    let mut sources: Vec<_> = d.x.iter().copied().zip(inputs.iter().cloned()).collect();
    let given = d.dy.iter().zip(&dy).filter_map(|(id, dy)| Some(((*id)?, dy.clone()?)));
    sources.extend(given);
    let values = evaluate(&d.graph, &sources);

    assert!(d.dx.iter().any(Option::is_some), "{op:?} has no gradient for any float input");
    for (i, dx) in d.dx.iter().enumerate() {
        let Some(dx) = *dx else { continue };
        assert_eq!(d.graph.values[dx].ty, example.inputs[i].0, "{op:?}: type of the gradient of input {i}");
        let mut slopes = Vec::new();
        for at in 0..inputs[i].len() {
            let x = inputs[i][at];
            inputs[i][at] = x + STEP;
            let above = loss(example, &inputs, &y_types, &dy);
            inputs[i][at] = x - STEP;
            let below = loss(example, &inputs, &y_types, &dy);
            inputs[i][at] = x;
            slopes.push((above - below) / (2.0 * STEP));
        }
        assert_close(&format!("{op:?} gradient of input {i}"), &values[dx], &slopes, TOLERANCE);
    }
}
