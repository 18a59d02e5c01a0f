//! Several element-wise ops as one node: one pass over memory instead of one for each.
//!
//! The node holds a straight-line program. It is run block by block: a block of a few thousand elements passes
//! through all steps while it is in the nearest cache, and only the last step's result is written to memory. The
//! steps call the kernels that the ops use on their own, so the bits are those of separate nodes. Fusion makes these
//! nodes after autodiff (`crates/remat/src/fuse/`); they have no gradient of their own.

use super::add::Add;
use super::batch_norm_split::BatchNormApply;
use super::dropout::Dropout;
use super::gelu::Gelu;
use super::relu::{Relu, ReluGrad};
use super::scale::Scale;
use super::{Cost, ElementWise, Example, Fill, Io, MAX_OPERANDS, NaiveIo, Op, OpDef};
use crate::graph::{DType, Type};
use remat_kernels::fused::{REGISTERS, for_each_block, part};
use remat_kernels::raw::Src;

/// Most inputs and most steps of a program: what a node keeps on the stack while it runs.
pub const MAX_INPUTS: usize = 16;
/// See [`MAX_INPUTS`].
pub const MAX_STEPS: usize = 12;

/// A straight-line program of element-wise ops; its output is the last step's.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Fused {
    /// In order; each step but the last is read by a later one.
    pub steps: Vec<FusedStep>,
}

/// One op of a program.
#[derive(Clone, PartialEq, Debug)]
pub struct FusedStep {
    /// What it computes.
    pub op: Op,
    /// What it reads.
    pub x: Vec<Operand>,
}

/// Where a step's operand comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operand {
    /// An input of the node.
    Input(usize),
    /// The result of an earlier step.
    Step(usize),
}

impl Fused {
    /// The register of every step's result, or `None` if the program needs more than there are. A register is free
    /// again at the step that reads its value last, and that step may already take it.
    pub fn registers(&self) -> Option<[usize; MAX_STEPS]> {
        let mut register = [0; MAX_STEPS];
        let mut busy_until = [0; REGISTERS];
        // The last step writes to memory and needs none.
        let others = self.steps.len().saturating_sub(1);
        for (at, register) in register.iter_mut().enumerate().take(others) {
            let reads = |step: &FusedStep| step.x.contains(&Operand::Step(at));
            let last = self.steps.iter().rposition(reads)?;
            let free = busy_until.iter().position(|&until| until <= at)?;
            busy_until[free] = last;
            *register = free;
        }
        Some(register)
    }

    /// The types of a step's operands; all steps have the type of the output.
    fn operand_types<'a>(step: &FusedStep, x: &[&'a Type], y: &'a Type) -> Vec<&'a Type> {
        let ty = |operand: &Operand| match *operand {
            Operand::Input(i) => x[i],
            Operand::Step(_) => y,
        };
        step.x.iter().map(ty).collect()
    }

    fn check_form(&self, x: &[&Type]) -> Result<(), String> {
        if self.steps.is_empty() || self.steps.len() > MAX_STEPS || x.len() > MAX_INPUTS {
            return Err(format!("a program has 1 to {MAX_STEPS} steps and at most {MAX_INPUTS} inputs"));
        }
        for (at, FusedStep { op, x: operands }) in self.steps.iter().enumerate() {
            if op.def().element_wise().is_none() {
                return Err(format!("{} does not work element by element", op.name()));
            }
            let exists = |operand: &Operand| match *operand {
                Operand::Input(i) => i < x.len(),
                Operand::Step(step) => step < at,
            };
            if !operands.iter().all(exists) || operands.len() >= MAX_OPERANDS {
                return Err(format!("step {at} reads what is not there, takes {} inputs", x.len()));
            }
        }
        match self.registers() {
            Some(_) => Ok(()),
            None => Err(format!("a step is never read, or more than {REGISTERS} wait at the same time")),
        }
    }
}

impl OpDef for Fused {
    fn name() -> &'static str {
        "fused"
    }

    fn infer(&self, x: &[&Type]) -> Result<Vec<Type>, String> {
        self.check_form(x)?;
        let mut types: Vec<Type> = Vec::new();
        for step in &self.steps {
            let operand = |operand: &Operand| match *operand {
                Operand::Input(i) => x[i],
                Operand::Step(step) => &types[step],
            };
            let operands: Vec<&Type> = step.x.iter().map(operand).collect();
            let made = step.op.def().infer(&operands)?.pop().ok_or("an element-wise op makes a value")?;
            if types.first().is_some_and(|first| *first != made) {
                return Err(format!("all steps have one type, got {} and {made}", types[0]));
            }
            types.push(made);
        }
        let y = types.pop().ok_or("a program has a step")?;
        let repeated = |ty: &&&Type| ty.numel() != y.numel();
        let mut rows = x.iter().filter(repeated).map(|ty| ty.numel());
        let first = rows.next();
        if rows.any(|row| Some(row) != first) || x.iter().any(|ty| ty.dtype() != DType::F32) {
            return Err("inputs are float tensors, and repeated ones have one length".to_owned());
        }
        Ok(vec![y])
    }

    fn cost(&self, x: &[&Type], y: &[&Type]) -> Cost {
        let flops = |step: &FusedStep| step.op.def().cost(&Self::operand_types(step, x, y[0]), y).flops;
        let total = self.steps.iter().map(flops).fold(0, u64::saturating_add);
        Cost::with_flops(x, y, total)
    }

    fn workspace(&self, x: &[&Type], y: &[&Type]) -> u64 {
        4 * self.steps.iter().map(|step| table_len(step, x, y[0]) as u64).sum::<u64>()
    }

    fn reuse(&self, x: &[&Type]) -> Vec<(usize, usize)> {
        let largest = x.iter().map(|ty| ty.numel()).max().unwrap_or(0);
        (0..x.len()).rev().filter(|&i| x[i].numel() == largest).map(|i| (i, 0)).collect()
    }

    fn label(&self) -> Option<String> {
        Some(self.steps.iter().map(|step| step.op.name()).collect::<Vec<_>>().join("+"))
    }

    fn parts<'a>(&'a self, x: &[&'a Type], y: &[&'a Type]) -> Vec<(&'a Op, Vec<&'a Type>)> {
        self.steps.iter().map(|step| (&step.op, Self::operand_types(step, x, y[0]))).collect()
    }

    fn run(&self, io: &mut Io<'_>) {
        let len = io.y_type(0).numel();
        let registers = self.registers().expect("the type rule has counted the registers");
        let mut inputs = [Src::from(&[][..]); MAX_INPUTS];
        for (i, input) in inputs[..io.n_inputs()].iter_mut().enumerate() {
            *input = io.src(i);
        }

        let mut rest = io.workspace();
        let mut tables = [Src::from(&[][..]); MAX_STEPS];
        let mut compute: [Option<&dyn ElementWise>; MAX_STEPS] = [None; MAX_STEPS];
        for (at, step) in self.steps.iter().enumerate() {
            let def = step.op.def().element_wise().expect("the type rule asks for element-wise ops");
            compute[at] = Some(def);
            // Only what is an input as a whole can be made into a table.
            let mut types = [io.y_type(0); MAX_OPERANDS];
            let mut whole = [Src::from(&[][..]); MAX_OPERANDS];
            for (k, operand) in step.x.iter().enumerate() {
                if let Operand::Input(i) = *operand {
                    (types[k], whole[k]) = (io.x_type(i), inputs[i]);
                }
            }
            let n = step.x.len();
            let (table, others) = rest.split_at_mut(def.table_len(&types[..n]));
            rest = others;
            if !table.is_empty() {
                def.fill_table(&whole[..n], table);
                tables[at] = Src::from(&*table);
            }
        }

        let (y, run, last) = (io.dst(0), io.run(), self.steps.len() - 1);
        for_each_block(&inputs[..io.n_inputs()], y, |block, file| {
            for (at, step) in self.steps.iter().enumerate() {
                let mut operands = [Src::from(&[][..]); MAX_OPERANDS];
                let mut n = step.x.len();
                for (operand, from) in operands.iter_mut().zip(&step.x) {
                    *operand = match *from {
                        Operand::Input(i) => part(inputs[i], len, &block),
                        Operand::Step(step) => file.src(registers[step], block.len()),
                    };
                }
                if tables[at].len() > 0 {
                    operands[n] = part(tables[at], len, &block);
                    n += 1;
                }
                let result = if at == last {
                    y.part(block.start, block.len())
                } else {
                    file.dst(registers[at], block.len())
                };
                let step = compute[at].expect("filled above for every step");
                step.compute(&operands[..n], result, block.start, run);
            }
        });
    }

    fn naive(&self, io: &NaiveIo<'_>) -> Vec<Vec<f64>> {
        let mut made: Vec<Vec<f64>> = Vec::new();
        for step in &self.steps {
            let elements = |operand: &Operand| match *operand {
                Operand::Input(i) => io.x[i],
                Operand::Step(step) => &made[step][..],
            };
            let x: Vec<&[f64]> = step.x.iter().map(elements).collect();
            let x_types = Self::operand_types(step, io.x_types, io.y_types[0]);
            let result = step.op.def().naive(&NaiveIo { x: &x, x_types: &x_types, ..*io });
            made.extend(result);
        }
        made.pop().into_iter().collect()
    }

    fn examples() -> Vec<Example> {
        use Operand::{Input, Step};
        let step = |op: Op, x: &[Operand]| FusedStep { op, x: x.to_vec() };
        let residual = Fused {
            steps: vec![
                step(
                    BatchNormApply { eps: 1e-5 }.into(),
                    &[Input(0), Input(1), Input(2), Input(3), Input(4)],
                ),
                step(
                    BatchNormApply { eps: 1e-3 }.into(),
                    &[Input(5), Input(1), Input(2), Input(3), Input(4)],
                ),
                step(Add {}.into(), &[Step(0), Step(1)]),
                step(Relu {}.into(), &[Step(2)]),
            ],
        };
        let branch = Fused {
            steps: vec![
                step(Add {}.into(), &[Input(0), Input(1)]),
                step(Dropout { p: 0.3, stream: 9 }.into(), &[Step(0)]),
                step(Gelu { tanh: false }.into(), &[Step(0)]),
                step(ReluGrad {}.into(), &[Step(1), Step(2)]),
                step(Scale { factor: 0.5 }.into(), &[Step(3)]),
            ],
        };
        let residual = |shape: &[usize], channels: &[usize]| {
            let shapes = [shape, channels, channels, channels, channels, shape];
            Example::normal(residual.clone(), &shapes).fill(2, Fill::Uniform(0.5, 2.0))
        };
        vec![
            residual(&[2, 2, 3, 5], &[5]),
            residual(&[3, 2100], &[2100]),
            Example::normal(branch.clone(), &[&[3, 37], &[3, 37]]),
            Example::normal(branch, &[&[7, 700], &[700]]),
        ]
    }
}

fn table_len(step: &FusedStep, x: &[&Type], y: &Type) -> usize {
    let def = step.op.def().element_wise();
    def.map_or(0, |def| def.table_len(&Fused::operand_types(step, x, y)))
}
