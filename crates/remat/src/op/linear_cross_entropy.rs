//! Cross-entropy of a linear layer's output, without ever holding all logits.

use super::linear::Linear;
use super::{
    Calibration, Case, Cost, Example, GradArgs, Io, NaiveIo, OpDef, Prediction, expect_rank, expect_shape,
};
use crate::graph::{Builder, DType, Type};
use crate::ids::ValueId;
use remat_kernels::linear::LinearShape;
use remat_kernels::linear_cross_entropy::{
    Classifier, ClassifierGrad, linear_cross_entropy, linear_cross_entropy_grad,
    linear_cross_entropy_with_grad, linear_cross_entropy_workspace,
};
use remat_kernels::naive;

/// The mean over rows of `-log softmax(x · weightᵀ (+ bias))[label]`; rows with a negative label are left out.
///
/// Inputs `x: [.., C]`, `weight: [V, C]`, labels `[..]` and optionally `bias: [V]`. Outputs the loss and, for the
/// backward, the logarithm of each row's softmax denominator. Logits exist for a few rows at a time.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct LinearCrossEntropy {}

/// The sizes for inputs `x, weight, labels` and perhaps `bias`.
fn sizes(x: &[&Type]) -> Result<LinearShape, String> {
    if !(3..=4).contains(&x.len()) {
        return Err(format!("takes x, weight, labels and perhaps bias, got {} inputs", x.len()));
    }
    let (features, weight, labels) = (x[0], x[1], x[2]);
    expect_rank("weight", weight, 2)?;
    let [outputs, inputs] = [weight.shape()[0], weight.shape()[1]];
    if features.dtype() != DType::F32 || features.rank() == 0 || features.last() != inputs {
        return Err(format!("x must be a float tensor whose last dimension is {inputs}, got {features}"));
    }
    if labels.dtype() != DType::I32 || labels.shape() != &features.shape()[..features.rank() - 1] {
        return Err(format!("there must be one integer label for every row of {features}, got {labels}"));
    }
    if outputs == 0 {
        return Err(format!("weight {weight} has no classes"));
    }
    if let Some(bias) = x.get(3) {
        expect_shape("bias", bias, &[outputs])?;
    }
    Ok(LinearShape { rows: features.rows(), inputs, outputs })
}

/// The layer for a kernel call, from the node's first `n` inputs.
fn classifier<'a>(io: &Io<'a>, n: usize) -> Classifier<'a> {
    let types: Vec<&Type> = (0..n).map(|i| io.x_type(i)).collect();
    let shape = sizes(&types).expect("the types were checked when the node was made");
    Classifier { shape, weight: io.f32(1), bias: (n == 4).then(|| io.f32(3)) }
}

fn workspace(x: &[&Type]) -> u64 {
    sizes(x).map_or(0, |shape| 4 * linear_cross_entropy_workspace(shape) as u64)
}

/// So many products of the size of all logits.
fn cost(products: usize, inputs: &[&Type], x: &[&Type], y: &[&Type]) -> Cost {
    Cost::of_products(x, y, &[inputs[0].numel(), inputs[1].shape()[0], products])
}

impl OpDef for LinearCrossEntropy {
    fn name() -> &'static str {
        "linear_cross_entropy"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        let shape = sizes(x)?;
        Ok(vec![Type::scalar(), Type::f32(&[shape.rows]).map_err(|e| e.to_string())?])
    }

    fn differentiable_outputs(&self) -> Option<&'static [usize]> {
        Some(&[0])
    }

    fn grad(&self, b: &mut Builder, args: &GradArgs<'_>) -> crate::Result<Vec<Option<ValueId>>> {
        let mut inputs = args.x.to_vec();
        inputs.extend([args.y[1], args.dy0()]);
        let gradients = b.add_all(LinearCrossEntropyGrad {}, &inputs)?;
        let mut dx = vec![Some(gradients[0]), Some(gradients[1]), None];
        dx.extend(gradients.get(2).map(|&dbias| Some(dbias)));
        Ok(dx)
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        cost(1, x, x, y)
    }

    fn workspace(&self, x: &[&Type], _y: &[&Type]) -> u64 {
        workspace(x)
    }

    fn calibration() -> Option<Calibration> {
        let case = Case::floats(LinearCrossEntropy {}, &[&[512, 512], &[8192, 512], &[512]]);
        Some(Calibration::Arithmetic(vec![case.with_labels(2)]))
    }

    fn prediction(&self, n_inputs: usize) -> Option<Prediction> {
        // The bias, where there is one, is the last of `x, weight, labels, bias`.
        let inputs = if n_inputs > 3 { vec![0, 1, 3] } else { vec![0, 1] };
        Some(Prediction { op: Some(Linear {}.into()), inputs, labels: Some(2) })
    }

    fn run(&self, io: &mut Io<'_>) {
        let classifier = classifier(io, io.n_inputs());
        let loss = linear_cross_entropy(&classifier, io.f32(0), io.i32(2), io.out(1), io.workspace());
        io.out(0)[0] = loss;
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        let shape = sizes(io.x_types).expect("the types were checked");
        let labels = io.whole_numbers(2);
        let zeros = vec![0.0; shape.outputs];
        let bias = io.x.get(3).copied().unwrap_or(&zeros);
        let logits = naive::linear::linear(io.x[0], io.x[1], bias, shape.rows, shape.inputs);
        let loss = naive::linear::linear_cross_entropy(io.x[0], io.x[1], bias, &labels);
        vec![vec![loss], naive::linear::log_sum_exp(&logits, shape.outputs)]
    }

    fn examples() -> Vec<Example> {
        let labels = |shape: &[usize]| Type::i32(shape).expect("a small shape");
        vec![
            Example::normal(LinearCrossEntropy {}, &[&[5, 3], &[7, 3], &[]]).ints(2, labels(&[5]), 7),
            Example::normal(LinearCrossEntropy {}, &[&[2, 3, 4], &[5, 4], &[], &[5]]).ints(
                2,
                labels(&[2, 3]),
                5,
            ),
        ]
    }
}

/// The gradients of `x`, the weight and the bias, if there is one: together, since they share the logits. Inputs are
/// the inputs of the forward, its second output and the gradient of its loss.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct LinearCrossEntropyGrad {}

impl OpDef for LinearCrossEntropyGrad {
    fn name() -> &'static str {
        "linear_cross_entropy_grad"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        if !(5..=6).contains(&x.len()) {
            return Err(format!("takes the forward's inputs, lse and dloss: 5 or 6 inputs, got {}", x.len()));
        }
        let (inputs, saved) = x.split_at(x.len() - 2);
        let shape = sizes(inputs)?;
        expect_shape("lse", saved[0], &[shape.rows])?;
        expect_shape("dloss", saved[1], &[])?;
        let trained = [Some(inputs[0]), Some(inputs[1]), inputs.get(3).copied()];
        Ok(trained.into_iter().flatten().cloned().collect())
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        cost(3, x, x, y)
    }

    fn workspace(&self, x: &[&Type], _y: &[&Type]) -> u64 {
        workspace(&x[..x.len() - 2])
    }

    fn calibration() -> Option<Calibration> {
        let case = Case::floats(LinearCrossEntropyGrad {}, &[&[512, 512], &[8192, 512], &[512], &[512], &[]]);
        Some(Calibration::Arithmetic(vec![case.with_labels(2)]))
    }

    fn run(&self, io: &mut Io<'_>) {
        let n = io.n_inputs() - 2;
        let classifier = classifier(io, n);
        let (lse, dloss) = (io.f32(n), io.f32(n + 1)[0]);
        let (dx, dweight) = (io.out(0), io.out(1));
        let grad = ClassifierGrad { dx, dweight, dbias: (n == 4).then(|| io.out(2)) };
        linear_cross_entropy_grad(&classifier, io.f32(0), io.i32(2), lse, dloss, grad, io.workspace());
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        let n = io.x.len() - 2;
        let shape = sizes(&io.x_types[..n]).expect("the types were checked");
        let zeros = vec![0.0; shape.outputs];
        let bias = if n == 4 { io.x[3] } else { &zeros };
        let (labels, lse, dloss) = (io.whole_numbers(2), io.x[n], io.x[n + 1][0]);
        let grads = naive::linear::linear_cross_entropy_grad(io.x[0], io.x[1], bias, &labels, lse, dloss);
        grads.into_iter().take(n - 1).collect()
    }

    fn examples() -> Vec<Example> {
        let labels = |shape: &[usize]| Type::i32(shape).expect("a small shape");
        let (plain, with_bias): ([&[usize]; 5], [&[usize]; 6]) =
            ([&[5, 3], &[7, 3], &[], &[5], &[]], [&[2, 3, 4], &[5, 4], &[], &[5], &[6], &[]]);
        vec![
            Example::normal(LinearCrossEntropyGrad {}, &plain).ints(2, labels(&[5]), 7),
            Example::normal(LinearCrossEntropyGrad {}, &with_bias).ints(2, labels(&[2, 3]), 5),
        ]
    }
}

/// [`LinearCrossEntropy`] and [`LinearCrossEntropyGrad`] in one: the same bits, with the logits computed once.
///
/// Inputs are the inputs of the forward and the gradient of its loss. Outputs are the outputs of the forward, then of the
/// gradient.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct LinearCrossEntropyWithGrad {}

impl OpDef for LinearCrossEntropyWithGrad {
    fn name() -> &'static str {
        "linear_cross_entropy_with_grad"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        let Some((dloss, inputs)) = x.split_last() else {
            return Err("takes 4 or 5 inputs, got none".into());
        };
        let mut outputs = LinearCrossEntropy {}.infer(inputs)?;
        expect_shape("dloss", dloss, &[])?;
        outputs.extend([inputs[0].clone(), inputs[1].clone()]);
        outputs.extend(inputs.get(3).map(|&bias| bias.clone()));
        Ok(outputs)
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        cost(3, x, x, y)
    }

    fn workspace(&self, x: &[&Type], _y: &[&Type]) -> u64 {
        workspace(&x[..x.len() - 1])
    }

    fn calibration() -> Option<Calibration> {
        let case = Case::floats(LinearCrossEntropyWithGrad {}, &[&[512, 512], &[8192, 512], &[512], &[]]);
        Some(Calibration::Arithmetic(vec![case.with_labels(2)]))
    }

    fn run(&self, io: &mut Io<'_>) {
        let n = io.n_inputs() - 1;
        let classifier = classifier(io, n);
        let dloss = io.f32(n)[0];
        let grad = ClassifierGrad { dx: io.out(2), dweight: io.out(3), dbias: (n == 4).then(|| io.out(4)) };
        let (x, labels, workspace) = (io.f32(0), io.i32(2), io.workspace());
        let loss = linear_cross_entropy_with_grad(&classifier, x, labels, io.out(1), dloss, grad, workspace);
        io.out(0)[0] = loss;
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        let n = io.x.len() - 1;
        let shape = sizes(&io.x_types[..n]).expect("the types were checked");
        let zeros = vec![0.0; shape.outputs];
        let bias = if n == 4 { io.x[3] } else { &zeros };
        let (labels, dloss) = (io.whole_numbers(2), io.x[n][0]);
        let logits = naive::linear::linear(io.x[0], io.x[1], bias, shape.rows, shape.inputs);
        let lse = naive::linear::log_sum_exp(&logits, shape.outputs);
        let loss = naive::linear::linear_cross_entropy(io.x[0], io.x[1], bias, &labels);
        let grads = naive::linear::linear_cross_entropy_grad(io.x[0], io.x[1], bias, &labels, &lse, dloss);
        [vec![loss], lse].into_iter().chain(grads.into_iter().take(n - 1)).collect()
    }

    fn examples() -> Vec<Example> {
        let labels = |shape: &[usize]| Type::i32(shape).expect("a small shape");
        let (plain, with_bias): ([&[usize]; 4], [&[usize]; 5]) =
            ([&[5, 3], &[7, 3], &[], &[]], [&[2, 3, 4], &[5, 4], &[], &[5], &[]]);
        vec![
            Example::normal(LinearCrossEntropyWithGrad {}, &plain).ints(2, labels(&[5]), 7),
            Example::normal(LinearCrossEntropyWithGrad {}, &with_bias).ints(2, labels(&[2, 3]), 5),
        ]
    }
}
