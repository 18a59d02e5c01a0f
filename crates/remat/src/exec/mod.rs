//! Runs schedules: the executor in one arena, and the reference that keeps everything and is the oracle.

mod arena;
mod executor;
pub mod init;
mod reference;
mod watch;

pub use arena::Arena;
pub use executor::{Executor, StepStats};
pub use reference::Reference;

use crate::graph::{Graph, Init, Kind, Source};
use crate::ids::{NodeId, ValueId};

/// Sees every value that a step makes, as soon as it is made: the node as it is in the original graph, which of
/// its outputs, and the bytes.
pub type Observer<'a> = dyn FnMut(NodeId, usize, &[u8]) + 'a;

/// Something that holds the values of a training step and can run it.
pub trait Engine {
    /// The graph whose ids name the values.
    fn graph(&self) -> &Graph;

    /// The bytes of a source or output between two steps. State is the newest.
    fn bytes(&self, value: ValueId) -> &[u8];

    /// The bytes of a source, to be filled before a step.
    fn bytes_mut(&mut self, value: ValueId) -> &mut [u8];

    /// The inputs of the batch with their graph, to be filled before a step.
    fn batch_mut(&mut self) -> (&Graph, Vec<(&Source, &mut [u8])>);

    /// Floats of a source or output.
    fn floats(&self, value: ValueId) -> &[f32] {
        as_floats(self.bytes(value))
    }

    /// Fills parameters, buffers and optimizer state as a fresh model has them.
    fn initialise(&mut self, seed: u64) {
        let sources: Vec<_> = self.graph().sources.clone();
        for source in
            sources.iter().filter(|s| !matches!(s.init, Init::Batch | Init::Indices(_) | Init::Labels(_)))
        {
            debug_assert_ne!(self.graph().values[source.value].kind, Kind::Input);
            init::fill(source, seed, as_floats_mut(self.bytes_mut(source.value)));
        }
    }
}

/// Bytes of a float buffer as floats. Buffers are aligned, so nothing is cut off.
pub fn as_floats(bytes: &[u8]) -> &[f32] {
    // SAFETY: any four bytes are a float; `align_to` keeps to the alignment.
    let (before, floats, after) = unsafe { bytes.align_to::<f32>() };
    assert!(before.is_empty() && after.is_empty(), "a float buffer is aligned");
    floats
}

/// Bytes of a float buffer as floats. Buffers are aligned, so nothing is cut off.
pub fn as_floats_mut(bytes: &mut [u8]) -> &mut [f32] {
    // SAFETY: as above.
    let (before, floats, after) = unsafe { bytes.align_to_mut::<f32>() };
    assert!(before.is_empty() && after.is_empty(), "a float buffer is aligned");
    floats
}

/// Bytes of an integer buffer as integers. Buffers are aligned, so nothing is cut off.
pub fn as_integers_mut(bytes: &mut [u8]) -> &mut [i32] {
    // SAFETY: any four bytes are an integer; `align_to_mut` keeps to the alignment.
    let (before, integers, after) = unsafe { bytes.align_to_mut::<i32>() };
    assert!(before.is_empty() && after.is_empty(), "an integer buffer is aligned");
    integers
}
