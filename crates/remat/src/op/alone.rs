//! Runs one op by itself, with memory of its own: for the measuring profiler and for tests.

use super::{Buffer, Io, Op, Owned, Run};
use crate::graph::Type;

/// An op with its inputs, outputs and workspace.
#[derive(Debug)]
pub struct Alone {
    op: Op,
    x_types: Vec<Type>,
    y_types: Vec<Type>,
    x: Vec<Owned>,
    y: Vec<Owned>,
    workspace: Owned,
}

impl Alone {
    /// Allocates zeroed buffers, or says what is wrong with the inputs. Zero is a valid index, so any op can run.
    pub fn new(op: &Op, inputs: &[Type]) -> Result<Alone, String> {
        let x: Vec<&Type> = inputs.iter().collect();
        let y_types = op.def().infer(&x)?;
        let workspace = op.def().workspace(&x, &y_types.iter().collect::<Vec<_>>());
        Ok(Alone {
            op: op.clone(),
            x_types: inputs.to_vec(),
            x: inputs.iter().map(Owned::of).collect(),
            y: y_types.iter().map(Owned::of).collect(),
            y_types,
            workspace: Owned::zeroed(workspace as usize),
        })
    }

    /// The bytes of an input, to be filled.
    pub fn input_mut(&mut self, i: usize) -> &mut [u8] {
        self.x[i].bytes_mut()
    }

    /// Fills a float input with ordinary magnitudes without a pattern: zeros and denormals have speeds of their own.
    pub fn fill_ordinary(&mut self, i: usize) {
        for (k, element) in self.input_mut(i).chunks_exact_mut(4).enumerate() {
            let value = 0.5 + ((k.wrapping_mul(2_654_435_761) >> 8) & 0xFFFF) as f32 / 65536.0;
            element.copy_from_slice(&value.to_ne_bytes());
        }
    }

    /// The bytes of an output after a run.
    pub fn output(&self, i: usize) -> &[u8] {
        self.y[i].bytes()
    }

    /// Types of the outputs.
    pub fn output_types(&self) -> &[Type] {
        &self.y_types
    }

    /// Runs the kernel in the current thread pool.
    pub fn run(&mut self, run: &Run) {
        self.run_shared(&[], run);
    }

    /// Runs the kernel with each output of a pair (input, output) on the storage of the input. The outputs are copied
    /// to their own memory afterwards; the inputs are lost.
    pub fn run_in_place(&mut self, pairs: &[(usize, usize)], run: &Run) {
        self.run_shared(pairs, run);
        for &(i, o) in pairs {
            self.y[o].clone_from(&self.x[i]);
        }
    }

    fn run_shared(&mut self, pairs: &[(usize, usize)], run: &Run) {
        let x_pointers: Vec<*mut u8> = self.x.iter_mut().map(Owned::address).collect();
        let inputs: Vec<Buffer<'_>> = (0..self.x.len())
            .map(|i| Buffer {
                ptr: x_pointers[i],
                ty: &self.x_types[i],
                shared: pairs.iter().any(|pair| pair.0 == i),
            })
            .collect();
        let outputs: Vec<Buffer<'_>> = (0..self.y.len())
            .map(|o| match pairs.iter().find(|pair| pair.1 == o) {
                Some(&(i, _)) => {
                    assert_eq!(
                        self.x_types[i].bytes(),
                        self.y_types[o].bytes(),
                        "shared buffers have one size"
                    );
                    Buffer { ptr: x_pointers[i], ty: &self.y_types[o], shared: true }
                }
                None => Buffer { ptr: self.y[o].address(), ty: &self.y_types[o], shared: false },
            })
            .collect();
        let workspace = (self.workspace.address(), self.workspace.len());
        // SAFETY: every buffer has memory of its own except the pairs, which are marked as shared.
        let mut io = unsafe { Io::new(&inputs, &outputs, workspace, run) };
        self.op.def().run(&mut io);
    }
}
