//! The memory of a measurement: one mapping of large pages that all tensors of a line share.
//!
//! The kind of pages matters. With small pages, operands whose rows lie far apart need more address translations than
//! the processor keeps, and a kernel would be measured that the engine never sees.

use memmap2::MmapMut;

/// Elements that the beginnings of tensors are multiples of: a cache line, as in the engine.
const ALIGNMENT: usize = 16;

/// Room for some tensors.
pub(crate) struct Memory {
    map: MmapMut,
}

impl Memory {
    /// Room for tensors of these lengths.
    pub(crate) fn of(lens: &[usize]) -> Memory {
        let elements: usize = lens.iter().map(|len| len.next_multiple_of(ALIGNMENT)).sum();
        let map = MmapMut::map_anon((elements * size_of::<f32>()).max(1));
        let map = map.unwrap_or_else(|error| {
            eprintln!("no memory for {elements} elements: {error}; try a word that selects fewer lines");
            std::process::exit(2);
        });
        #[cfg(target_os = "linux")]
        if let Err(error) = map.advise(memmap2::Advice::HugePage) {
            eprintln!("pages are small, because large ones were refused: {error}");
        }
        Memory { map }
    }

    /// Tensors of the lengths that the memory was made for, filled with values without a pattern that a kernel could
    /// profit from.
    pub(crate) fn tensors<const N: usize>(&mut self, lens: [usize; N]) -> [&mut [f32]; N] {
        // SAFETY: a mapping begins at a page, and any bits are a valid `f32`.
        let (_, mut rest, _) = unsafe { self.map.align_to_mut::<f32>() };
        lens.map(|len| {
            let (tensor, behind) = std::mem::take(&mut rest).split_at_mut(len.next_multiple_of(ALIGNMENT));
            rest = behind;
            let tensor = &mut tensor[..len];
            fill(tensor);
            tensor
        })
    }
}

fn fill(tensor: &mut [f32]) {
    for (i, value) in tensor.iter_mut().enumerate() {
        let mixed = (i as u32).wrapping_mul(0x9E37_79B9) >> 8;
        *value = mixed as f32 / (1 << 23) as f32 - 1.0;
    }
}
