//! Element-wise ops in a few lines: [`Pointwise`] defines one whose inputs all have the same shape; its type rule, cost,
//! `reuse` and kernel call follow.

use super::{
    Calibration, Case, Cost, ElementWise, Example, GradArgs, InEvaluation, Io, MAX_OPERANDS, NaiveIo, OpDef,
    Run, expect_float, expect_inputs, expect_same,
};
use crate::graph::{Builder, Type};
use crate::ids::ValueId;
use remat_kernels::raw::{Dst, Src};
use serde::Serialize;

/// An element-wise op on tensors of one shape.
pub(crate) trait Pointwise:
    std::fmt::Debug + Sized + Send + Sync + PartialEq + Serialize + 'static
{
    /// As [`OpDef::name`].
    const NAME: &'static str;
    /// What messages call the inputs. The output may lie on any of them; the last is preferred, since it is `dy` in
    /// gradients and dies there.
    const OPERANDS: &'static [&'static str];
    /// Multiplications and additions per element.
    const FLOPS: u64;
    /// Whether [`Pointwise::gradient`] is defined.
    const HAS_GRADIENT: bool;

    /// What is wrong with the attributes.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// As [`OpDef::grad`].
    fn gradient(&self, _b: &mut Builder, args: &GradArgs<'_>) -> crate::Result<Vec<Option<ValueId>>> {
        Ok(vec![None; args.x.len()])
    }

    /// As [`ElementWise::compute`].
    fn kernel(&self, x: &[Src<'_>], y: Dst<'_>, at: usize, run: &Run);

    /// As [`OpDef::naive`].
    fn twin(&self, io: &NaiveIo<'_>) -> Vec<f64>;

    /// As [`OpDef::in_evaluation`].
    fn when_evaluating(&self) -> InEvaluation {
        InEvaluation::Same
    }

    /// Variants to test, the most ordinary first; every one is tried on the same shapes.
    fn variants() -> Vec<Self>;
}

impl<T: Pointwise> ElementWise for T {
    fn compute(&self, x: &[Src<'_>], y: Dst<'_>, at: usize, run: &Run) {
        self.kernel(x, y, at, run);
    }
}

impl<T: Pointwise> OpDef for T {
    fn name() -> &'static str {
        T::NAME
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        expect_inputs(x, T::OPERANDS.len())?;
        expect_float(T::OPERANDS[0], x[0])?;
        for (name, ty) in T::OPERANDS.iter().zip(x).skip(1) {
            expect_same(&format!("{} and {name}", T::OPERANDS[0]), x[0], ty)?;
        }
        self.check()?;
        Ok(vec![x[0].clone()])
    }

    fn grad(&self, b: &mut Builder, args: &GradArgs<'_>) -> crate::Result<Vec<Option<ValueId>>> {
        self.gradient(b, args)
    }

    fn differentiable_outputs(&self) -> Option<&'static [usize]> {
        T::HAS_GRADIENT.then_some(&[0])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        Cost::element_wise(x, y, T::FLOPS)
    }

    fn reuse(&self, _x: &[&Type]) -> Vec<(usize, usize)> {
        (0..T::OPERANDS.len()).rev().map(|i| (i, 0)).collect()
    }

    fn element_wise(&self) -> Option<&dyn ElementWise> {
        Some(self)
    }

    fn run(&self, io: &mut Io<'_>) {
        let mut operands = [Src::from(&[][..]); MAX_OPERANDS];
        for (i, operand) in operands[..T::OPERANDS.len()].iter_mut().enumerate() {
            *operand = io.src(i);
        }
        self.kernel(&operands[..T::OPERANDS.len()], io.dst(0), 0, io.run());
    }

    fn in_evaluation(&self) -> InEvaluation {
        self.when_evaluating()
    }

    fn calibration() -> Option<Calibration> {
        Some(Calibration::Memory(calibration_case::<T>))
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        vec![self.twin(io)]
    }

    fn examples() -> Vec<Example> {
        let shape: &[usize] = &[3, 37];
        T::variants().into_iter().map(|op| Example::normal(op, &vec![shape; T::OPERANDS.len()])).collect()
    }
}

fn calibration_case<T: Pointwise>(rows: usize, columns: usize) -> Case {
    let shape: &[usize] = &[rows, columns];
    Case::floats(T::variants().swap_remove(0), &vec![shape; T::OPERANDS.len()])
}
