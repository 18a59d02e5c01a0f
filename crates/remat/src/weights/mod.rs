//! Weight files in the safetensors format, exchangeable with PyTorch.
//!
//! In and out: a graph's parameters and buffers, or all its state for a checkpoint, one tensor at a time, so that no
//! second copy is held beside the engine's own. Convolution weights are permuted between our `[out, kh, kw, in]` and PyTorch's
//! `[out, in, kh, kw]` on the way. A file is checked as a whole before the first tensor is read, and a saved file
//! replaces the old one only when it is complete: readers see the one or the other.
//!
//! Our files note a hash of their tensors and a hash of their notes, so that a disk that lies is noticed before what it gives is
//! used ([`WeightFile::verify`]). Files from elsewhere have no such notes and are taken as they are.

mod form;
mod read;
mod write;

pub use form::{Contents, row_elements};
pub use read::WeightFile;
pub use write::{save, save_with};

#[cfg(test)]
mod tests {
    use super::form::stored;
    use super::*;
    use crate::error::Result;
    use crate::graph::{Builder, FileLayout, Graph, Init, Kind, Source, Type};
    use safetensors::Dtype;
    use std::collections::HashMap;
    use std::path::{Path, PathBuf};

    fn small_graph(outputs: usize) -> Graph {
        let mut b = Builder::new("small");
        let conv = Type::f32(&[outputs, 2, 3, 4]).unwrap();
        b.source("conv.weight", Kind::Parameter, conv, Init::Constant(0.0), FileLayout::ConvWeight);
        b.buffer("bn.running_mean", Type::f32(&[5]).unwrap(), Init::Constant(0.0));
        b.source("state", Kind::OptimizerState, Type::scalar(), Init::Constant(0.0), FileLayout::Same);
        b.finish()
    }

    fn counting(graph: &Graph) -> HashMap<String, Vec<f32>> {
        stored(graph, Contents::Weights)
            .map(|(s, ty)| (s.name.clone(), (0..ty.numel()).map(|i| i as f32).collect()))
            .collect()
    }

    fn from(values: &HashMap<String, Vec<f32>>) -> impl FnMut(&Source, usize, &mut [f32]) -> Result<()> {
        |source, first, out| {
            out.copy_from_slice(&values[&source.name][first..][..out.len()]);
            Ok(())
        }
    }

    fn saved(folder: &Path) -> PathBuf {
        let (graph, path) = (small_graph(2), folder.join("small.safetensors"));
        let values = counting(&graph);
        save(&graph, &path, from(&values)).unwrap();
        path
    }

    #[test]
    fn what_is_saved_is_read_back_and_files_hold_pytorch_order() {
        let folder = tempfile::tempdir().unwrap();
        let (graph, path) = (small_graph(2), saved(folder.path()));
        let values = counting(&graph);
        let mut file = WeightFile::open(&graph, &path).unwrap();
        for (source, ty) in stored(&graph, Contents::Weights) {
            let mut out = vec![f32::NAN; ty.numel()];
            file.read(source, ty, 0, &mut out).unwrap();
            assert_eq!(out, values[&source.name], "{}", source.name);
            let row = row_elements(source, ty);
            let mut last = vec![f32::NAN; row];
            file.read(source, ty, ty.numel() - row, &mut last).unwrap();
            assert_eq!(last, values[&source.name][ty.numel() - row..], "the last row of {}", source.name);
            let (mut beyond, mut part) = (vec![0.0; row], vec![0.0; row.div_ceil(2)]);
            assert!(file.read(source, ty, ty.numel(), &mut beyond).is_err());
            assert!(row == 1 || file.read(source, ty, 0, &mut part).is_err());
        }
        let bytes = std::fs::read(&path).unwrap();
        let view = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let conv = view.tensor("conv.weight").unwrap();
        assert_eq!(conv.shape(), [2, 4, 2, 3]);
        // Element [1, 2, 1, 0] of the file is [1, 1, 0, 2] of ours.
        let at = ((4 + 2) * 2 + 1) * 3;
        let expected = (((2 + 1) * 3) * 4 + 2) as f32;
        assert_eq!(conv.data()[at * 4..at * 4 + 4], expected.to_le_bytes());
        assert!(view.tensor("state").is_err(), "optimizer state is no weight");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "a temporary file was left");
    }

    #[test]
    fn every_mismatch_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = saved(folder.path());
        let mut b = Builder::extend(small_graph(3), crate::graph::Phase::Forward);
        b.parameter("fc.weight", Type::f32(&[7]).unwrap(), Init::Constant(0.0));
        let mut graph = b.finish();
        graph.sources[1].name = "bn.mean".to_owned();
        let message = WeightFile::open(&graph, &path).unwrap_err().to_string();
        let (_, faults) = message.split_once("does not fit small:\n").expect(&message);
        assert_eq!(
            faults,
            "  conv.weight has shape [2, 4, 2, 3] instead of [3, 4, 2, 3]\n  bn.mean [5] is missing\n  \
             fc.weight [7] is missing\n  bn.running_mean is unknown"
        );
    }

    #[test]
    fn broken_files_are_refused_with_their_name() {
        let folder = tempfile::tempdir().unwrap();
        let graph = small_graph(2);
        let path = saved(folder.path());
        let whole = std::fs::read(&path).unwrap();
        let open = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            WeightFile::open(&graph, &path).unwrap_err().to_string()
        };
        for (bytes, message) in [
            (&whole[..whole.len() - 1], "is truncated"),
            (&[&whole[..], &[0]].concat()[..], "has bytes after its end"),
            (&whole[..4], "is too short"),
            (&whole[..20], "is not a safetensors file"),
            (&[0xFF; 64], "is not a safetensors file"),
            (b"\x02\0\0\0\0\0\0\0{]", "is not a safetensors file"),
        ] {
            let error = open(bytes);
            assert!(error.contains(message) && error.contains("small.safetensors"), "{error}");
        }
        let missing = WeightFile::open(&graph, &folder.path().join("none")).unwrap_err().to_string();
        assert!(missing.starts_with("open ") && missing.contains("none"), "{missing}");
    }

    #[test]
    fn other_element_types_and_batch_counters() {
        let folder = tempfile::tempdir().unwrap();
        let (graph, path) = (small_graph(2), folder.path().join("w"));
        let write = |dtype: Dtype, size: usize| {
            let data = vec![0; 48 * size];
            let mean = vec![0; 20];
            let counter = vec![0; 8];
            let view = |d, shape: &[usize], data| {
                safetensors::tensor::TensorView::new(d, shape.to_vec(), data).unwrap()
            };
            let tensors = [
                ("conv.weight", view(dtype, &[2, 4, 2, 3], &data)),
                ("bn.running_mean", view(Dtype::F32, &[5], &mean)),
                ("bn.num_batches_tracked", view(Dtype::I64, &[], &counter)),
            ];
            std::fs::write(&path, safetensors::serialize(tensors, None).unwrap()).unwrap();
        };
        write(Dtype::F32, 4);
        WeightFile::open(&graph, &path).unwrap();
        write(Dtype::F16, 2);
        let message = WeightFile::open(&graph, &path).unwrap_err().to_string();
        assert!(message.contains("conv.weight holds F16, only F32 is read"), "{message}");
    }

    #[test]
    fn a_failed_save_leaves_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let graph = small_graph(2);
        let values = counting(&graph);
        // A folder is where the file should go, so the rename fails after everything was written.
        let path = folder.path().join("taken");
        std::fs::create_dir_all(path.join("inside")).unwrap();
        let message = save(&graph, &path, from(&values)).unwrap_err().to_string();
        assert!(message.starts_with("write ") && message.contains("taken"), "{message}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "a temporary file was left");
    }
}
