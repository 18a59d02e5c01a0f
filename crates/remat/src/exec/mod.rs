//! Runs schedules: the executor in one arena, and the reference that keeps everything and is the oracle.

mod arena;
mod copies;
mod executor;
pub mod init;
mod reference;
mod walk;
mod watch;

pub use arena::Arena;
pub use copies::CopyTime;
pub use executor::{Executor, StepStats};
pub use reference::Reference;

use crate::error::Result;
use crate::graph::{Graph, Init, Kind, Source};
use crate::ids::{NodeId, ValueId};

/// Bytes of state that pass through memory at once where it rests in a store: outside of the arena, between steps only, and
/// the same for every model.
const PIECE: usize = 1 << 20;

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

    /// Whether a source is in memory between steps, so that [`Engine::bytes`] can be asked for it. What is not is read and
    /// written piece by piece.
    fn is_in_memory(&self, _value: ValueId) -> bool {
        true
    }

    /// Reads bytes of a source or output between two steps, wherever it is, from byte `first` on.
    fn read(&self, value: ValueId, first: u64, to: &mut [u8]) -> Result<()> {
        to.copy_from_slice(&self.bytes(value)[first as usize..][..to.len()]);
        Ok(())
    }

    /// Writes bytes of a source between two steps, wherever it is, from byte `first` on.
    fn write(&mut self, value: ValueId, first: u64, from: &[u8]) -> Result<()> {
        self.bytes_mut(value)[first as usize..][..from.len()].copy_from_slice(from);
        Ok(())
    }

    /// Reads elements of a float source or output between two steps, wherever it is, from element `first` on.
    fn read_floats(&self, value: ValueId, first: usize, to: &mut [f32]) -> Result<()> {
        // SAFETY: any bytes are floats, and floats are bytes.
        let (_, bytes, _) = unsafe { to.align_to_mut::<u8>() };
        self.read(value, 4 * first as u64, bytes)
    }

    /// Shows all bytes of a source or output, in order, in pieces of whole words.
    fn visit(&self, value: ValueId, see: &mut dyn FnMut(&[u8])) -> Result<()> {
        if self.is_in_memory(value) {
            see(self.bytes(value));
            return Ok(());
        }
        let bytes = self.graph().values[value].ty.bytes();
        let mut piece = vec![0u32; PIECE / 4];
        for first in (0..bytes).step_by(PIECE) {
            // SAFETY: any bytes are integers, and integers are bytes.
            let (_, piece, _) = unsafe { piece.align_to_mut::<u8>() };
            let piece = &mut piece[..PIECE.min((bytes - first) as usize)];
            self.read(value, first, piece)?;
            see(piece);
        }
        Ok(())
    }

    /// Fills all elements of a float source, wherever it is, in pieces of whole `rows` of elements: `fill` is told the
    /// number of the first element.
    fn fill_floats(
        &mut self,
        value: ValueId,
        row: usize,
        fill: &mut dyn FnMut(usize, &mut [f32]) -> Result<()>,
    ) -> Result<()> {
        if self.is_in_memory(value) {
            return fill(0, as_floats_mut(self.bytes_mut(value)));
        }
        let n = self.graph().values[value].ty.numel();
        let step = (PIECE / 4 / row.max(1)).max(1) * row.max(1);
        let mut piece = vec![0.0; step.min(n)];
        for first in (0..n).step_by(step) {
            let piece = &mut piece[..step.min(n - first)];
            fill(first, piece)?;
            // SAFETY: any float is four bytes.
            let (_, bytes, _) = unsafe { piece.align_to::<u8>() };
            self.write(value, 4 * first as u64, bytes)?;
        }
        Ok(())
    }

    /// Fills parameters, buffers and optimizer state as a fresh model has them.
    fn initialise(&mut self, seed: u64) -> Result<()> {
        let sources: Vec<_> = self.graph().sources.clone();
        for source in
            sources.iter().filter(|s| !matches!(s.init, Init::Batch | Init::Indices(_) | Init::Labels(_)))
        {
            debug_assert_ne!(self.graph().values[source.value].kind, Kind::Input);
            self.fill_floats(source.value, 1, &mut |first, out| {
                init::fill_from(source, seed, first, out);
                Ok(())
            })?;
        }
        Ok(())
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
