//! `y = a + b`, where `b` may be repeated over leading dimensions: residuals, position embeddings, meeting gradients.

use super::sum_rows::SumRows;
use super::{
    Calibration, Case, Cost, ElementWise, Example, GradArgs, Io, NaiveIo, OpDef, Run, expect_float,
    expect_inputs,
};
use crate::graph::{Builder, Type};
use crate::ids::ValueId;
use remat_kernels::raw::{Dst, Src};
use remat_kernels::{elementwise as kernels, naive};

/// `y = a + b`; `b` has the shape of `a` or of its last dimensions.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Add {}

impl ElementWise for Add {
    fn compute(&self, x: &[Src<'_>], y: Dst<'_>, _at: usize, _run: &Run) {
        kernels::add(x[0], x[1], y);
    }
}

impl OpDef for Add {
    fn name() -> &'static str {
        "add"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, 2)?;
        expect_float("a", x[0])?;
        let fits = x[0].dtype() == x[1].dtype() && x[0].shape().ends_with(x[1].shape()) && x[1].numel() > 0;
        if fits { Ok(vec![x[0].clone()]) } else { Err(format!("cannot add {} to {}", x[1], x[0])) }
    }

    fn differentiable_outputs(&self) -> Option<&'static [usize]> {
        Some(&[0])
    }

    fn grad(&self, b: &mut Builder, args: &GradArgs<'_>) -> crate::Result<Vec<Option<ValueId>>> {
        let dy = args.dy0();
        let keep = b.ty(args.x[1]).rank();
        let repeated = b.ty(args.x[0]).rank() > keep;
        let db = if repeated && args.wants[1] { b.add(SumRows { keep }, &[dy])? } else { dy };
        Ok(vec![Some(dy), Some(db)])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::element_wise(x, y, 1)
    }

    fn reuse(&self, x: &[&Type]) -> Vec<(usize, usize)> {
        if x[0] == x[1] { vec![(0, 0), (1, 0)] } else { vec![(0, 0)] }
    }

    fn element_wise(&self) -> Option<&dyn ElementWise> {
        Some(self)
    }

    fn calibration() -> Option<Calibration> {
        Some(Calibration::Memory(|rows, columns| Case::floats(Add {}, &[&[rows, columns], &[rows, columns]])))
    }

    fn run(&self, io: &mut Io<'_>) {
        kernels::add(io.src(0), io.src(1), io.dst(0));
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        vec![naive::elementwise::add(io.x[0], io.x[1])]
    }

    fn examples() -> Vec<Example> {
        vec![
            Example::normal(Add {}, &[&[3, 37], &[3, 37]]),
            Example::normal(Add {}, &[&[2, 3, 5], &[3, 5]]),
            Example::normal(Add {}, &[&[4, 7], &[7]]),
        ]
    }
}
