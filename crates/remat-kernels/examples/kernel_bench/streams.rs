//! Kernels that stream memory; the number behind the name is how many tensors each reads and writes.

use crate::Bench;
use crate::memory::Memory;
use remat_kernels::activation::{
    gelu, gelu_grad, gelu_tanh, gelu_tanh_grad, relu, relu_grad, silu, silu_grad,
};
use remat_kernels::dropout::dropout;
use remat_kernels::elementwise::add;
use remat_kernels::fused::{for_each_block, normalise, part};
use remat_kernels::fused_batch_norm::{Channels, relu_grad as relu_grad_of_norm};
use remat_kernels::loss::{cross_entropy, cross_entropy_grad};
use remat_kernels::optimizer::{Adam, Update, adam};
use remat_kernels::raw::{Dst, Src};
use remat_kernels::rng::Key;
use remat_kernels::sum_rows::sum_rows;
use remat_kernels::{batch_norm, layer_norm, rms_norm, softmax, sum_rows};

/// Elements of a streamed tensor: 32 MiB, well beyond the caches of a core.
const STREAM: usize = 1 << 23;
/// Columns of the streamed matrices, and of others with many and few.
const MANY_COLUMNS: usize = 2048;
const COLUMNS: usize = 512;
const FEW_COLUMNS: usize = 64;

/// Adam with its usual settings.
pub(crate) const ADAM: Adam = Adam {
    lr: 1e-3,
    beta1: 0.9,
    beta2: 0.999,
    eps: 1e-8,
    weight_decay: 0.0,
    decoupled: false,
    gradient_scale: 1.0,
};

impl Bench {
    pub(crate) fn streams(&self) {
        self.element_wise();
        self.rows();
        for columns in [MANY_COLUMNS, COLUMNS, FEW_COLUMNS] {
            self.columns(columns);
        }
        self.optimizer();
    }

    fn element_wise(&self) {
        let mut memory = Memory::of(&[STREAM; 3]);
        let [x, dy, y] = memory.tensors([STREAM; 3]);
        let (x, dy, y) = (Src::from(&*x), Src::from(&*dy), Dst::from(y));
        self.stream("relu", STREAM, 2, || relu(x, y));
        self.stream("relu_grad", STREAM, 3, || relu_grad(x, dy, y));
        self.stream("add", STREAM, 3, || add(x, dy, y));
        self.stream("gelu", STREAM, 2, || gelu(x, y));
        self.stream("gelu_grad", STREAM, 3, || gelu_grad(x, dy, y));
        self.stream("gelu_tanh", STREAM, 2, || gelu_tanh(x, y));
        self.stream("gelu_tanh_grad", STREAM, 3, || gelu_tanh_grad(x, dy, y));
        self.stream("silu", STREAM, 2, || silu(x, y));
        self.stream("silu_grad", STREAM, 3, || silu_grad(x, dy, y));
        self.stream("dropout", STREAM, 2, || dropout(x, 0.1, Key::new(1, 2, 3), y));
    }

    fn rows(&self) {
        let (rows, cols) = (STREAM / COLUMNS, COLUMNS);
        let space = layer_norm::grad_workspace(rows, cols);
        let lens = [STREAM, STREAM, STREAM, rows, rows, rows, cols, cols, cols, cols, space];
        let mut memory = Memory::of(&lens);
        let [x, dy, y, mean, rstd, lse, weight, bias, dweight, dbias, space] = memory.tensors(lens);
        let logits = &*x;
        let (x, dy, y) = (Src::from(&*x), Src::from(&*dy), Dst::from(y));
        self.stream("softmax", STREAM, 2, || softmax::forward(x, cols, y));
        self.stream("softmax_grad", STREAM, 3, || softmax::grad(x, dy, cols, y));
        let labels: Vec<i32> = (0..rows).map(|row| (row % cols) as i32).collect();
        self.stream("cross_entropy", STREAM, 1, || {
            std::hint::black_box(cross_entropy(logits, &labels, lse));
        });
        self.stream("cross_entropy_grad", STREAM, 2, || cross_entropy_grad(x, &labels, lse, 1.0, y));
        self.stream("layer_norm", STREAM, 2, || layer_norm::forward(x, weight, bias, 1e-5, y, mean, rstd));
        self.stream("layer_norm grad", STREAM, 3, || {
            layer_norm::grad(x, dy, weight, mean, rstd, y, dweight, dbias, space);
        });
        self.stream("rms_norm", STREAM, 2, || rms_norm::forward(x, weight, 1e-5, y, rstd));
        self.stream("rms_norm grad", STREAM, 3, || rms_norm::grad(x, dy, weight, rstd, y, dweight, space));
    }

    fn columns(&self, cols: usize) {
        let rows = STREAM / cols;
        let space = batch_norm::workspace(rows, cols).max(sum_rows::workspace(rows, cols));
        let lens = [STREAM, STREAM, STREAM, cols, cols, cols, cols, cols, cols, space];
        let mut memory = Memory::of(&lens);
        let [x, dy, y, mean, var, weight, bias, dweight, dbias, space] = memory.tensors(lens);
        var.fill(0.1);
        let terms = &*dy;
        let (x, dy, y) = (Src::from(&*x), Src::from(&*dy), Dst::from(y));
        let name = |kernel: &str| format!("{kernel}, {cols} columns");
        self.stream(&name("sum_rows"), STREAM, 1, || sum_rows(terms, dbias, space));
        self.stream(&name("batch_norm stats"), STREAM, 1, || batch_norm::stats(x, mean, var, space));
        self.stream(&name("batch_norm apply"), STREAM, 2, || {
            batch_norm::apply(x, mean, var, weight, bias, 1e-5, y);
        });
        self.stream(&name("batch_norm add relu, fused"), STREAM, 3, || {
            for_each_block(&[x, dy, Src::from(&*mean)], y, |block, registers| {
                let [normalised, sum] = [0, 1].map(|register| registers.dst(register, block.len()));
                let rows = [&*mean, weight, bias].map(|row| part(Src::from(row), STREAM, &block));
                normalise(part(x, STREAM, &block), rows, normalised);
                add(registers.src(0, block.len()), part(dy, STREAM, &block), sum);
                relu(registers.src(1, block.len()), y.part(block.start, block.len()));
            });
        });
        self.stream(&name("batch_norm grad (two passes)"), STREAM, 5, || {
            batch_norm::grad(x, dy, mean, var, weight, 1e-5, y, dweight, dbias, space);
        });
        self.stream(&name("batch_norm relu grad (two passes)"), STREAM, 5, || {
            let channels = Channels { mean, var, weight, bias, eps: 1e-5 };
            relu_grad_of_norm(x, dy, channels, y, dweight, dbias, space);
        });
    }

    fn optimizer(&self) {
        let mut memory = Memory::of(&[STREAM; 4]);
        let [dy, param, first, second] = memory.tensors([STREAM; 4]);
        second.fill(0.1);
        self.stream("adam", STREAM, 7, || {
            adam(&ADAM, 1, Src::from(&*dy), own(param), own(first), own(second));
        });
    }
}

/// An update in the parameter's own storage.
pub(crate) fn own(tensor: &mut [f32]) -> Update<'_> {
    let (pointer, len) = (tensor.as_mut_ptr(), tensor.len());
    // SAFETY: the exclusive borrow lasts as long as the update, which alone touches the memory.
    unsafe { Update { old: Src::from_raw(pointer, len), new: Dst::from_raw(pointer, len) } }
}
