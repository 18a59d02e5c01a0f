//! Runs one op by itself, with memory of its own: for the measuring profiler and for tests.

use super::{Buffer, Io, Op, Run};
use crate::graph::Type;

/// An op with its inputs, outputs and workspace.
#[derive(Debug)]
pub struct Alone {
    op: Op,
    x_types: Vec<Type>,
    y_types: Vec<Type>,
    /// Memory in units of 8 bytes, which is more alignment than any element needs.
    x: Vec<Vec<u64>>,
    y: Vec<Vec<u64>>,
    workspace: Vec<u64>,
}

fn words(ty: &Type) -> Vec<u64> {
    vec![0; ty.bytes().div_ceil(8) as usize]
}

fn bytes_of(words: &[u64], n: u64) -> &[u8] {
    // SAFETY: a u64 is eight readable bytes.
    let bytes = unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), words.len() * 8) };
    &bytes[..n as usize]
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
            x: inputs.iter().map(words).collect(),
            y: y_types.iter().map(words).collect(),
            y_types,
            workspace: vec![0; workspace.div_ceil(8) as usize],
        })
    }

    /// The bytes of an input, to be filled.
    pub fn input_mut(&mut self, i: usize) -> &mut [u8] {
        let n = self.x_types[i].bytes() as usize;
        let words = &mut self.x[i];
        // SAFETY: a u64 is eight writable bytes, and any bytes are a u64.
        let bytes =
            unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), words.len() * 8) };
        &mut bytes[..n]
    }

    /// The bytes of an output after a run.
    pub fn output(&self, i: usize) -> &[u8] {
        bytes_of(&self.y[i], self.y_types[i].bytes())
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
        let x_pointers: Vec<*mut u8> = self.x.iter_mut().map(|x| x.as_mut_ptr().cast()).collect();
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
                None => Buffer { ptr: self.y[o].as_mut_ptr().cast(), ty: &self.y_types[o], shared: false },
            })
            .collect();
        let workspace = (self.workspace.as_mut_ptr().cast(), self.workspace.len() * 8);
        // SAFETY: every buffer has memory of its own except the pairs, which are marked as shared.
        let mut io = unsafe { Io::new(&inputs, &outputs, workspace, run) };
        self.op.def().run(&mut io);
    }
}
