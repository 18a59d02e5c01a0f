//! The kernel against its slow twin, in any pool, and in place.

use super::{RUN, fill_inputs};
use crate::graph::{DType, Type};
use crate::op::{Alone, Example, NaiveIo, Op};
use crate::threads::thread_pool;

/// Largest error of a kernel, relative to the largest element of the output.
const TOLERANCE: f64 = 2e-5;

/// Both checks; a view has no kernel.
pub(super) fn check(example: &Example) {
    if !example.op.def().is_view() {
        agrees_with_its_slow_twin(example);
        gives_the_same_bits_in_any_pool_and_in_place(example);
    }
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
    let pool = thread_pool(threads).expect("a small pool starts");
    pool.install(|| if shared.is_empty() { alone.run(&RUN) } else { alone.run_in_place(shared, &RUN) });
    let outputs = (0..alone.output_types().len()).map(|o| alone.output(o).to_vec()).collect();
    (alone.output_types().to_vec(), outputs)
}

pub(super) fn run_naive(op: &Op, inputs: &[&[f64]], x_types: &[&Type], y_types: &[&Type]) -> Vec<Vec<f64>> {
    op.def().naive(&NaiveIo { x: inputs, x_types, y_types, run: &RUN })
}

#[track_caller]
pub(super) fn assert_close(what: &str, got: &[f64], want: &[f64], tolerance: f64) {
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

fn agrees_with_its_slow_twin(example: &Example) {
    let inputs = fill_inputs(example);
    let (y_types, outputs) = run_kernel(example, &inputs, &[], 1);
    let x: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
    let x_types: Vec<&Type> = example.inputs.iter().map(|(ty, _)| ty).collect();
    let want = run_naive(&example.op, &x, &x_types, &y_types.iter().collect::<Vec<_>>());
    assert_eq!(want.len(), outputs.len(), "{:?}: number of outputs", example.op);
    for (o, (ty, want)) in y_types.iter().zip(&want).enumerate() {
        let got = from_bytes(ty, &outputs[o]);
        assert_close(&format!("{:?} output {o}", example.op), &got, want, TOLERANCE);
    }
}

fn gives_the_same_bits_in_any_pool_and_in_place(example: &Example) {
    let op = &example.op;
    let inputs = fill_inputs(example);
    let (y_types, want) = run_kernel(example, &inputs, &[], 1);
    for threads in [2, 3] {
        assert!(run_kernel(example, &inputs, &[], threads).1 == want, "{op:?} with {threads} threads");
    }
    let x_types: Vec<&Type> = example.inputs.iter().map(|(ty, _)| ty).collect();
    let one_by_one = op.def().reuse(&x_types).into_iter().map(|pair| vec![pair]);
    let consumed = op.def().consumes(&x_types);
    for shared in one_by_one.chain([consumed]).filter(|shared| !shared.is_empty()) {
        let same_size = |&(i, o): &(usize, usize)| x_types[i].bytes() == y_types[o].bytes();
        assert!(shared.iter().all(same_size), "{op:?}: a shared pair has two sizes");
        let got = run_kernel(example, &inputs, &shared, 2).1;
        assert!(got == want, "{op:?} with the outputs of {shared:?} in place");
    }
}
