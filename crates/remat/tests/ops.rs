//! Every op of the list, tested on its own examples: nothing here knows a particular op.
//!
//! * The kernel agrees with the slow `f64` twin, gives the same bits in any pool, and gives the same bits when an
//!   output lies on the storage of an input.
//! * The gradient, evaluated with the slow twins in `f64`, is the slope of the slow forward.
//! * The type rule answers every misuse with a message.

use remat::graph::{Builder, DType, Graph, Init, Kind, Type};
use remat::ids::{IdVec, ValueId};
use remat::op::{Alone, Example, Fill, GradArgs, MicroBatch, NaiveIo, Op, Run};

/// Largest error of a kernel, relative to the largest element of the output.
const KERNEL_TOLERANCE: f64 = 2e-5;
/// Step of the central differences, and their largest error relative to the largest element of the gradient.
const STEP: f64 = 1e-6;
const SLOPE_TOLERANCE: f64 = 1e-5;

const RUN: Run = Run { seed: 11, step: 3, learning_rate: 0.05, micro: MicroBatch::ONLY };

/// A reproducible sequence of numbers in `0..1`.
struct Numbers(u64);

impl Numbers {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Elements that `f32` holds exactly, so that the kernel and its slow twin read the same numbers.
    fn fill(&mut self, ty: &Type, fill: Fill) -> Vec<f64> {
        let mut element = || match fill {
            Fill::Normal => {
                let radius = (-2.0 * self.uniform().ln()).sqrt();
                radius * (std::f64::consts::TAU * self.uniform()).cos()
            }
            Fill::Uniform(low, high) => low + (high - low) * self.uniform(),
            Fill::Below(limit) => (limit as f64 * self.uniform()).floor(),
        };
        (0..ty.numel()).map(|_| f64::from(element() as f32)).collect()
    }
}

fn all_examples() -> impl Iterator<Item = Example> {
    Op::all_examples().into_iter().flat_map(|(_, examples)| examples)
}

fn fill_inputs(example: &Example) -> Vec<Vec<f64>> {
    let mut numbers = Numbers(42);
    example.inputs.iter().map(|(ty, fill)| numbers.fill(ty, *fill)).collect()
}

fn to_bytes(ty: &Type, values: &[f64]) -> Vec<u8> {
    let bytes_of = |&v: &f64| match ty.dtype() {
        DType::F32 => (v as f32).to_ne_bytes().to_vec(),
        DType::I32 => (v as i32).to_ne_bytes().to_vec(),
        DType::U8 => vec![v as u8],
    };
    values.iter().flat_map(bytes_of).collect()
}

fn from_bytes(ty: &Type, bytes: &[u8]) -> Vec<f64> {
    let word = |b: &[u8]| b.try_into().expect("four bytes");
    match ty.dtype() {
        DType::F32 => bytes.chunks(4).map(|b| f64::from(f32::from_ne_bytes(word(b)))).collect(),
        DType::I32 => bytes.chunks(4).map(|b| f64::from(i32::from_ne_bytes(word(b)))).collect(),
        DType::U8 => bytes.iter().map(|&b| f64::from(b)).collect(),
    }
}

/// The outputs of the op's kernel in a pool of that size, with each pair (input, output) on one storage.
fn run_kernel(
    example: &Example,
    inputs: &[Vec<f64>],
    shared: &[(usize, usize)],
    threads: usize,
) -> (Vec<Type>, Vec<Vec<u8>>) {
    let types: Vec<Type> = example.inputs.iter().map(|(ty, _)| ty.clone()).collect();
    let mut alone = Alone::new(&example.op, &types).expect("an example is well typed");
    for (i, (ty, values)) in types.iter().zip(inputs).enumerate() {
        alone.input_mut(i).copy_from_slice(&to_bytes(ty, values));
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a small pool starts");
    pool.install(|| if shared.is_empty() { alone.run(&RUN) } else { alone.run_in_place(shared, &RUN) });
    let outputs = (0..alone.output_types().len()).map(|o| alone.output(o).to_vec()).collect();
    (alone.output_types().to_vec(), outputs)
}

fn run_naive(op: &Op, inputs: &[&[f64]], x_types: &[&Type], y_types: &[&Type]) -> Vec<Vec<f64>> {
    op.def().naive(&NaiveIo { x: inputs, x_types, y_types, run: &RUN })
}

#[track_caller]
fn assert_close(what: &str, got: &[f64], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len(), "{what}: number of elements");
    let scale = want.iter().fold(1e-30f64, |scale, v| scale.max(v.abs()));
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let error = (got - want).abs() / scale;
        assert!(
            error <= tolerance,
            "{what}: element {i} is {got}, should be {want} (relative error {error:.1e})"
        );
    }
}

#[test]
fn every_op_has_examples_that_are_well_typed() {
    for (name, examples) in Op::all_examples() {
        assert!(!examples.is_empty(), "{name} has no example");
        for Example { op, inputs } in examples {
            assert_eq!(op.name(), name);
            let types: Vec<&Type> = inputs.iter().map(|(ty, _)| ty).collect();
            op.def().infer(&types).unwrap_or_else(|message| panic!("{op:?}: {message}"));
        }
    }
}

#[test]
fn kernels_agree_with_their_slow_twins() {
    for example in all_examples().filter(|example| !example.op.def().is_view()) {
        let inputs = fill_inputs(&example);
        let (y_types, outputs) = run_kernel(&example, &inputs, &[], 1);
        let x: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
        let x_types: Vec<&Type> = example.inputs.iter().map(|(ty, _)| ty).collect();
        let want = run_naive(&example.op, &x, &x_types, &y_types.iter().collect::<Vec<_>>());
        assert_eq!(want.len(), outputs.len(), "{:?}: number of outputs", example.op);
        for (o, (ty, want)) in y_types.iter().zip(&want).enumerate() {
            let got = from_bytes(ty, &outputs[o]);
            assert_close(&format!("{:?} output {o}", example.op), &got, want, KERNEL_TOLERANCE);
        }
    }
}

#[test]
fn kernels_give_the_same_bits_in_any_pool_and_in_place() {
    for example in all_examples().filter(|example| !example.op.def().is_view()) {
        let op = &example.op;
        let inputs = fill_inputs(&example);
        let (y_types, want) = run_kernel(&example, &inputs, &[], 1);
        for threads in [2, 3] {
            assert!(run_kernel(&example, &inputs, &[], threads).1 == want, "{op:?} with {threads} threads");
        }
        let x_types: Vec<&Type> = example.inputs.iter().map(|(ty, _)| ty).collect();
        let one_by_one = op.def().reuse(&x_types).into_iter().map(|pair| vec![pair]);
        let consumed = op.def().consumes(&x_types);
        for shared in one_by_one.chain([consumed]).filter(|shared| !shared.is_empty()) {
            let same_size = |&(i, o): &(usize, usize)| x_types[i].bytes() == y_types[o].bytes();
            assert!(shared.iter().all(same_size), "{op:?}: a shared pair has two sizes");
            let got = run_kernel(&example, &inputs, &shared, 2).1;
            assert!(got == want, "{op:?} with the outputs of {shared:?} in place");
        }
    }
}

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
        b.source(name, Kind::Input, ty.clone(), Init::Batch, remat::graph::FileLayout::Same)
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

/// All values of the graph, computed by the slow twins from those of the sources.
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

#[test]
fn gradients_are_the_slopes_of_the_slow_twins() {
    for example in all_examples() {
        let op = &example.op;
        if op.def().differentiable_outputs().is_none_or(<[usize]>::is_empty) || example.inputs.is_empty() {
            continue;
        }
        let d = differentiate(&example);
        let mut inputs = fill_inputs(&example);
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
            assert_eq!(
                d.graph.values[dx].ty, example.inputs[i].0,
                "{op:?}: type of the gradient of input {i}"
            );
            let mut slopes = Vec::new();
            for at in 0..inputs[i].len() {
                let x = inputs[i][at];
                inputs[i][at] = x + STEP;
                let above = loss(&example, &inputs, &y_types, &dy);
                inputs[i][at] = x - STEP;
                let below = loss(&example, &inputs, &y_types, &dy);
                inputs[i][at] = x;
                slopes.push((above - below) / (2.0 * STEP));
            }
            assert_close(&format!("{op:?} gradient of input {i}"), &values[dx], &slopes, SLOPE_TOLERANCE);
        }
    }
}

#[test]
fn attributes_survive_their_text_form() {
    for Example { op, .. } in all_examples() {
        let text = serde_json::to_string(&op).expect("attributes are plain data");
        let back: Op = serde_json::from_str(&text).expect("attributes read back");
        assert_eq!(op, back);
    }
}

#[test]
fn wrong_inputs_get_a_message_instead_of_a_panic() {
    let huge = usize::MAX / 8;
    let shapes: [&[usize]; 9] = [
        &[],
        &[0],
        &[3],
        &[0, 3],
        &[2, 0],
        &[2, 3, 4],
        &[1, 2, 3, 4],
        &[1, 1, 1, 1, 1],
        &[1, 1 << 40, 1 << 20],
    ];
    let mut odd: Vec<Type> =
        shapes.iter().flat_map(|shape| [Type::f32(shape), Type::i32(shape)]).flatten().collect();
    odd.extend([Type::f32(&[0, huge, huge]), Type::f32(&[huge])].into_iter().flatten());
    for Example { op, inputs } in all_examples() {
        let types: Vec<&Type> = inputs.iter().map(|(ty, _)| ty).collect();
        let mut cases: Vec<Vec<&Type>> = vec![Vec::new(), [&types[..], &types[..]].concat()];
        cases.extend((0..types.len()).map(|n| types[..n].to_vec()));
        for (i, wrong) in (0..types.len()).flat_map(|i| odd.iter().map(move |wrong| (i, wrong))) {
            let mut case = types.clone();
            case[i] = wrong;
            cases.push(case);
        }
        cases.extend(odd.iter().map(|wrong| vec![wrong; types.len()]));
        for case in cases {
            // Some of these are fine; then everything that is computed from the types must be, too.
            match op.def().infer(&case) {
                Ok(y) => {
                    let y: Vec<&Type> = y.iter().collect();
                    op.def().cost(&case, &y);
                    op.def().workspace(&case, &y);
                    op.def().reuse(&case);
                }
                Err(message) => {
                    let flawed = message.is_empty() || message.ends_with('.');
                    assert!(!flawed, "{op:?}: a message says something, without a final dot: {message}");
                }
            }
        }
    }
}
