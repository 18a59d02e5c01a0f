//! What a kernel sees of memory: typed slices of its inputs, outputs and workspace.

use super::{DType, Type};
use remat_kernels::raw::{Dst, Src};
use remat_kernels::rng::Key;

/// Facts about the running step that ops may use.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Run {
    /// Seed of the run: dropout masks follow from it.
    pub seed: u64,
    /// Training step, from 1.
    pub step: u64,
    /// Learning rate of this step.
    pub learning_rate: f64,
    /// Which part of the step's batch is running.
    pub micro: MicroBatch,
}

impl Run {
    /// The random key of a stream for this batch.
    pub fn key(&self, stream: u64) -> Key {
        Key::new(self.seed, self.batch(), stream)
    }

    /// The running number of the batch, from 1: the step, unless a step has several micro-batches.
    pub fn batch(&self) -> u64 {
        (self.step - 1) * self.micro.count + self.micro.index + 1
    }
}

/// One of the micro-batches whose gradients make one update.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MicroBatch {
    /// Its number, from 0.
    pub index: u64,
    /// How many there are.
    pub count: u64,
}

impl MicroBatch {
    /// The whole batch at once.
    pub const ONLY: MicroBatch = MicroBatch { index: 0, count: 1 };

    /// Sums start over.
    pub fn is_first(self) -> bool {
        self.index == 0
    }

    /// Parameters are updated.
    pub fn is_last(self) -> bool {
        self.index + 1 == self.count
    }
}

/// A buffer of one node: address, type and whether an output lies on the same storage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffer<'a> {
    pub(crate) ptr: *mut u8,
    pub(crate) ty: &'a Type,
    pub(crate) shared: bool,
}

/// A node's buffers for one run of its kernel.
///
/// Correct by construction: an output can be taken once, and an input that shares storage with an output can only
/// be read through [`Io::src`]. Either misuse is a bug of the op and stops the program.
#[derive(Debug)]
pub struct Io<'a> {
    inputs: &'a [Buffer<'a>],
    outputs: &'a [Buffer<'a>],
    taken: u64,
    workspace: (*mut u8, usize),
    run: &'a Run,
}

// SAFETY: the pointers stand for slices that only this node's kernel touches; which thread runs it does not matter.
unsafe impl Send for Io<'_> {}

impl<'a> Io<'a> {
    /// # Safety
    /// Every buffer is valid for its type, aligned to 4 bytes, and touched by nothing else for `'a`. Outputs and
    /// workspace overlap nothing, except that an output may be exactly the storage of an input marked `shared`.
    pub(crate) unsafe fn new(
        inputs: &'a [Buffer<'a>],
        outputs: &'a [Buffer<'a>],
        workspace: (*mut u8, usize),
        run: &'a Run,
    ) -> Io<'a> {
        assert!(outputs.len() <= 64, "at most 64 outputs per node");
        Io { inputs, outputs, taken: 0, workspace, run }
    }

    /// Facts about the running step.
    pub fn run(&self) -> &'a Run {
        self.run
    }

    /// Number of inputs.
    pub fn n_inputs(&self) -> usize {
        self.inputs.len()
    }

    /// Type of an input.
    pub fn x_type(&self, i: usize) -> &'a Type {
        self.inputs[i].ty
    }

    /// Type of an output.
    pub fn y_type(&self, i: usize) -> &'a Type {
        self.outputs[i].ty
    }

    fn input<T>(&self, i: usize, dtype: DType) -> &'a [T] {
        let buffer = &self.inputs[i];
        assert!(!buffer.shared, "input {i} shares storage with an output: read it through src");
        assert_eq!(buffer.ty.dtype(), dtype, "input {i} has another element type");
        // SAFETY: valid, aligned and unaliased by the contract of `new`; not shared with an output as asserted.
        unsafe { std::slice::from_raw_parts(buffer.ptr.cast(), buffer.ty.numel()) }
    }

    /// A float input.
    pub fn f32(&self, i: usize) -> &'a [f32] {
        self.input(i, DType::F32)
    }

    /// An integer input.
    pub fn i32(&self, i: usize) -> &'a [i32] {
        self.input(i, DType::I32)
    }

    /// A byte input.
    pub fn u8(&self, i: usize) -> &'a [u8] {
        self.input(i, DType::U8)
    }

    fn take(&mut self, i: usize, dtype: DType) -> &Buffer<'a> {
        assert_eq!(self.taken & (1 << i), 0, "output {i} was taken twice");
        self.taken |= 1 << i;
        let buffer = &self.outputs[i];
        assert_eq!(buffer.ty.dtype(), dtype, "output {i} has another element type");
        buffer
    }

    fn output<T>(&mut self, i: usize, dtype: DType) -> &'a mut [T] {
        let buffer = self.take(i, dtype);
        assert!(!buffer.shared, "output {i} shares storage with an input: write it through dst");
        // SAFETY: valid, aligned and unaliased by the contract of `new`; handed out once as asserted in `take`.
        unsafe { std::slice::from_raw_parts_mut(buffer.ptr.cast(), buffer.ty.numel()) }
    }

    /// A float output; each output can be taken once.
    pub fn out(&mut self, i: usize) -> &'a mut [f32] {
        self.output(i, DType::F32)
    }

    /// A byte output; each output can be taken once.
    pub fn out_u8(&mut self, i: usize) -> &'a mut [u8] {
        self.output(i, DType::U8)
    }

    /// A float input that may share storage with an output.
    pub fn src(&self, i: usize) -> Src<'a> {
        let buffer = &self.inputs[i];
        assert_eq!(buffer.ty.dtype(), DType::F32, "input {i} has another element type");
        // SAFETY: valid by the contract of `new`; `Src` is made for exact aliasing.
        unsafe { Src::from_raw(buffer.ptr.cast(), buffer.ty.numel()) }
    }

    /// A float output that may share storage with an input; each output can be taken once.
    pub fn dst(&mut self, i: usize) -> Dst<'a> {
        let buffer = self.take(i, DType::F32);
        // SAFETY: valid by the contract of `new`; `Dst` is made for exact aliasing.
        unsafe { Dst::from_raw(buffer.ptr.cast(), buffer.ty.numel()) }
    }

    /// The scratch memory that [`OpDef::workspace`](super::OpDef::workspace) asked for, as floats; can be taken once.
    /// Its contents are unspecified.
    pub fn workspace(&mut self) -> &'a mut [f32] {
        let (ptr, bytes) = std::mem::replace(&mut self.workspace, (std::ptr::null_mut(), 0));
        if bytes == 0 {
            return &mut [];
        }
        // SAFETY: valid and unaliased by the contract of `new`; handed out once since it is replaced by nothing.
        unsafe { std::slice::from_raw_parts_mut(ptr.cast(), bytes / 4) }
    }
}
