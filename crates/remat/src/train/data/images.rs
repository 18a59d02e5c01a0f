//! Labelled images as batches: reshuffled every epoch, scaled to the model's size and normalised.
//!
//! In: IDX files as MNIST has them, or a folder with a subfolder of images per class. Out: [`Batches`]. Grey images are
//! normalised by their own mean and deviation, coloured ones by ImageNet's, per channel.

use super::folder::ImageFolder;
use super::idx::{self, IdxImages};
use super::image_batches::{ImageBatches, Skipped};
use super::image_set::Set;
use super::{Batches, Dataset, HELD_OUT_SHARE, ImageScale, ImageShape, Part, bad_data, input_shape};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::hash;
use crate::train::About;
use remat_plan::Bytes;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A set of images with its two parts.
#[derive(Clone, Debug)]
pub struct Images {
    training: Arc<Set>,
    /// The part for evaluation, where the data has one of its own.
    held_out: Option<Arc<Set>>,
    n_classes: usize,
    identity: String,
    /// Images that were replaced by others because they cannot be read; `None` when the first one ends the run.
    skipped: Option<Arc<Skipped>>,
}

impl Images {
    /// Opens a folder with IDX files, a single IDX file of images, or a folder of classes (or one that holds `train` and `val`).
    pub fn open(path: &Path) -> Result<Images> {
        let kind = std::fs::metadata(path).map_err(Error::io(format!("read {}", path.display())))?;
        let found = if kind.is_dir() { idx_files(path)? } else { Some((path.to_owned(), None)) };
        match found {
            Some((training, held_out)) => Images::open_idx(&training, held_out.as_deref()),
            None => Images::open_folder(path),
        }
    }

    fn open_idx(training: &Path, held_out: Option<&Path>) -> Result<Images> {
        let training = IdxImages::open(training)?;
        let held_out = held_out.map(IdxImages::open).transpose()?;
        let all = [Some(&training), held_out.as_ref()];
        let labels = all.iter().flatten().flat_map(|set| &set.labels);
        let n_classes = labels.max().map_or(0, |&most| usize::from(most) + 1);
        let print = hash::bytes(&training.pixels) ^ hash::bytes(&training.labels).rotate_left(1);
        let identity = format!("idx {print:016x}, {} images", training.labels.len());
        let scale = ImageScale::of_grey(&training.pixels);
        let set = |idx| Arc::new(Set::Idx(idx, scale));
        Ok(Images {
            training: set(training),
            held_out: held_out.map(set),
            n_classes,
            identity,
            skipped: None,
        })
    }

    fn open_folder(path: &Path) -> Result<Images> {
        let part =
            |names: [&str; 2]| names.map(|name| path.join(name)).into_iter().find(|part| part.is_dir());
        let (training, held_out) = match (part(["train", "training"]), part(["val", "test"])) {
            (Some(training), held_out) => (training, held_out),
            (None, _) => (path.to_owned(), None),
        };
        let training = ImageFolder::open(&training)?;
        let held_out = held_out.as_deref().map(ImageFolder::open).transpose()?;
        if let Some(other) = held_out.as_ref().filter(|other| other.classes.len() != training.classes.len()) {
            let message = format!(
                "has {} classes for training and {} for evaluation",
                training.classes.len(),
                other.classes.len()
            );
            return Err(bad_data(path.display(), message));
        }
        let mut names = String::new();
        for (file, label) in &training.files {
            let size = std::fs::metadata(file).map_or(0, |meta| meta.len());
            names.push_str(&format!("{label}/{:?} {size}\n", file.file_name().unwrap_or_default()));
        }
        let print = hash::bytes(names.as_bytes());
        let identity = format!("folder {print:016x}, {} images", training.files.len());
        let n_classes = training.classes.len();
        let set = |folder| Arc::new(Set::Folder(folder));
        Ok(Images {
            training: set(training),
            held_out: held_out.map(set),
            n_classes,
            identity,
            skipped: None,
        })
    }

    /// Replaces every image that cannot be read by the next one that can, instead of ending the run. A batch stays a
    /// function of the seed and its number, so a run that met a bad image can be resumed this way.
    pub fn skip_bad_images(self) -> Images {
        Images { skipped: Some(Arc::default()), ..self }
    }

    /// Why images were skipped so far, each with its path.
    pub fn skipped(&self) -> Vec<String> {
        self.skipped.as_ref().map(|skipped| skipped.list()).unwrap_or_default()
    }

    /// The `classes` that a model for these images needs.
    pub fn n_classes(&self) -> usize {
        self.n_classes
    }

    /// Which images these are, by their contents, or for a folder by names and sizes.
    pub fn identity(&self) -> String {
        self.identity.clone()
    }

    /// Batches of images of this shape.
    pub fn batches(&self, part: Part, shape: ImageShape, seed: u64) -> Result<ImageBatches> {
        let (set, examples): (&Arc<Set>, Vec<u32>) = match (&self.held_out, part) {
            (Some(set), Part::HeldOut) => (set, (0..set.len() as u32).collect()),
            (Some(_), Part::Training) => (&self.training, (0..self.training.len() as u32).collect()),
            // One of ten, spread over the set: folders are sorted by class.
            (None, part) => {
                let is_held_out = |i: &u32| *i as usize % HELD_OUT_SHARE == HELD_OUT_SHARE - 1;
                let wanted = part == Part::HeldOut;
                let all = 0..self.training.len() as u32;
                (&self.training, all.filter(|i| is_held_out(i) == wanted).collect())
            }
        };
        if examples.is_empty() {
            let message = format!("has {} images, too few to hold one out of ten back", self.training.len());
            return Err(bad_data("images", message));
        }
        Ok(ImageBatches::new(Arc::clone(set), examples, part, shape, seed, self.skipped.clone()))
    }
}

impl Dataset for Images {
    fn batches(&self, model: &Graph, part: Part, seed: u64) -> Result<Box<dyn Batches>> {
        let shape = input_shape(model)?;
        let image = ImageShape::of_input(shape)
            .ok_or_else(|| bad_data(&model.name, format!("does not read images: its input is {shape:?}")))?;
        Ok(Box::new(Images::batches(self, part, image, seed)?))
    }

    fn identity(&self) -> String {
        Images::identity(self)
    }

    fn memory(&self, model: &Graph) -> Result<Bytes> {
        let shape = ImageShape::of_input(input_shape(model)?);
        let sets = std::iter::once(&self.training).chain(&self.held_out);
        // What is held adds up; images are decoded one at a time.
        let held = sets.clone().map(|set| set.held_bytes()).sum::<u64>();
        let decoded = sets.map(|set| set.decoding_bytes(shape)).max().unwrap_or(0);
        Ok(Bytes(held + decoded))
    }

    fn about(&self) -> About {
        let (classes, scale) = match &*self.training {
            Set::Idx(_, scale) => ((0..self.n_classes).map(|class| class.to_string()).collect(), *scale),
            Set::Folder(folder) => (folder.classes.clone(), ImageScale::Colour),
        };
        About::Images { classes, scale }
    }
}

/// The IDX files of a folder: images for training and, where there are two such files, for evaluation.
fn idx_files(folder: &Path) -> Result<Option<(PathBuf, Option<PathBuf>)>> {
    let action = || format!("read the folder {}", folder.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(Error::io(action()))? {
        let path = entry.map_err(Error::io(action()))?.path();
        if path.file_name().and_then(|name| name.to_str()).is_some_and(idx::is_images) {
            found.push(path);
        }
    }
    found.sort();
    let is_for_training =
        |path: &PathBuf| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("train"));
    match found.iter().position(is_for_training).or((!found.is_empty()).then_some(0)) {
        None => Ok(None),
        Some(at) => {
            let training = found.remove(at);
            Ok(Some((training, found.into_iter().next())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::batch::tests::fill_pair;
    use super::super::pixels::COLOUR;
    use super::*;
    use std::io::Write as _;

    fn idx(extents: &[u32], data: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0, 0, 8, extents.len() as u8];
        extents.iter().for_each(|e| bytes.extend(e.to_be_bytes()));
        bytes.extend(data);
        bytes
    }

    /// Twenty images of 2×3 pixels; image `i` is all `i`, its label is `i % 4`.
    fn write_idx(folder: &Path) {
        let pixels: Vec<u8> = (0..20).flat_map(|i| [i; 6]).collect();
        let labels: Vec<u8> = (0..20).map(|i| i % 4).collect();
        std::fs::write(folder.join("train-images-idx3-ubyte"), idx(&[20, 2, 3], &pixels)).unwrap();
        let file = std::fs::File::create(folder.join("train-labels-idx1-ubyte.gz")).unwrap();
        let mut packed = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
        packed.write_all(&idx(&[20], &labels)).unwrap();
        packed.finish().unwrap();
    }

    fn filled(batches: &mut ImageBatches, number: u64, n: usize) -> Result<(Vec<f32>, Vec<i32>)> {
        let ImageShape { height, width, channels } = batches.shape;
        fill_pair(batches, number, &[n, height, width, channels], &[n])
    }

    fn batch(batches: &mut ImageBatches, number: u64, n: usize) -> (Vec<f32>, Vec<i32>) {
        filled(batches, number, n).unwrap()
    }

    #[test]
    fn idx_images_are_normalised_and_each_is_seen_once_per_epoch() {
        let folder = tempfile::tempdir().unwrap();
        write_idx(folder.path());
        let images = Images::open(folder.path()).unwrap();
        assert_eq!(images.n_classes(), 4);
        let shape = ImageShape { height: 4, width: 6, channels: 3 };
        let mut training = images.batches(Part::Training, shape, 1).unwrap();
        assert_eq!(training.n_images(), 18);
        let (pictures, labels) = batch(&mut training, 1, 18);
        let (mean, deviation) = (9.5 / 255.0, (33.25f64.sqrt() / 255.0) as f32);
        let mut seen: Vec<i32> = Vec::new();
        for (image, label) in pictures.chunks(72).zip(labels) {
            let grey = ((image[0] * deviation + mean) * 255.0).round() as i32;
            assert!(image.iter().all(|&x| (x - image[0]).abs() < 1e-5) && grey % 4 == label);
            seen.push(grey);
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..20).filter(|i| i % 10 != 9).collect::<Vec<_>>());
        let mut held_out = images.batches(Part::HeldOut, shape, 1).unwrap();
        assert_eq!(batch(&mut held_out, 1, 3).1, [1, 3, 1]);
    }

    #[test]
    fn folders_of_classes_are_decoded_and_scaled() {
        let folder = tempfile::tempdir().unwrap();
        for (class, colour) in [("a", [255u8, 0, 0]), ("b", [0, 0, 255])] {
            std::fs::create_dir(folder.path().join(class)).unwrap();
            for i in 0..4 {
                let path = folder.path().join(class).join(format!("{i}.png"));
                let mut encoder = png::Encoder::new(std::fs::File::create(path).unwrap(), 8 + i, 5);
                encoder.set_color(png::ColorType::Rgb);
                let pixels = colour.repeat((8 + i as usize) * 5);
                encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
            }
        }
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        std::fs::copy(fixtures.join("red.jpg"), folder.path().join("a/4.jpg")).unwrap();
        std::fs::copy(fixtures.join("grey.jpg"), folder.path().join("b/4.jpeg")).unwrap();
        let images = Images::open(folder.path()).unwrap();
        let shape = ImageShape { height: 4, width: 4, channels: 3 };
        let mut training = images.batches(Part::Training, shape, 1).unwrap();
        assert_eq!((images.n_classes(), training.n_images()), (2, 9));
        let (pictures, labels) = batch(&mut training, 1, 9);
        for (image, label) in pictures.chunks(48).zip(labels) {
            assert_eq!(image[0] > image[2], label == 0, "red is class a");
        }
        // Held out of ten is the last: a grey picture, which has three equal channels before they are normalised.
        let mut held_out = images.batches(Part::HeldOut, shape, 1).unwrap();
        let (grey, _) = batch(&mut held_out, 1, 1);
        let back = |c: usize| (grey[c] * COLOUR[c].1 + COLOUR[c].0) * 255.0;
        assert!((0..3).all(|c| (back(c) - 200.0).abs() < 5.0), "{grey:?}");
        for broken in [&b"no picture"[..], b"\x89PNG\r\n\x1a\n", b"\xFF\xD8\xFF\xE0"] {
            std::fs::write(folder.path().join("b/4.jpeg"), broken).unwrap();
            let message = filled(&mut held_out, 1, 1).unwrap_err().to_string();
            assert!(message.contains("4.jpeg") && message.contains("cannot be decoded"), "{message}");
        }
        // What never ends, or waits for somebody to write, is not read at all.
        #[cfg(unix)]
        {
            std::fs::remove_file(folder.path().join("b/4.jpeg")).unwrap();
            std::os::unix::fs::symlink("/dev/zero", folder.path().join("b/4.jpeg")).unwrap();
            let message = filled(&mut held_out, 1, 1).unwrap_err().to_string();
            assert!(message.contains("4.jpeg: is a device; only a regular file"), "{message}");
        }
        // Skipped, the only image that is held out leaves nothing; in training its place goes to the next one.
        let images = images.skip_bad_images();
        assert!(filled(&mut images.batches(Part::HeldOut, shape, 1).unwrap(), 1, 1).is_err());
        std::fs::write(folder.path().join("a/1.png"), "no picture").unwrap();
        let mut training = images.batches(Part::Training, shape, 1).unwrap();
        let (skipping, labels) = batch(&mut training, 1, 9);
        for (image, label) in skipping.chunks(48).zip(labels) {
            assert_eq!(image[0] > image[2], label == 0, "pixels and labels skip the same images");
        }
        let differing = skipping.chunks(48).zip(pictures.chunks(48)).filter(|(a, b)| a != b).count();
        assert!(differing <= 1, "{differing} images changed");
        let skipped = images.skipped();
        assert!(skipped.len() == 2 && skipped[1].contains("a/1.png"), "{skipped:?}");
    }

    #[test]
    fn bad_files_are_refused_with_their_place() {
        let folder = tempfile::tempdir().unwrap();
        let message = || Images::open(folder.path()).unwrap_err().to_string();
        assert!(message().contains("one subfolder"), "{}", message());
        let path = folder.path().join("train-images-idx3-ubyte");
        let labels = folder.path().join("train-labels-idx1-ubyte");
        std::fs::write(&labels, idx(&[2], &[0, 1])).unwrap();
        for (bytes, part) in [
            (b"hello".to_vec(), "is not an IDX file"),
            (vec![0, 0, 13, 3], "only bytes"),
            (vec![0, 0, 8, 3, 0], "inside its header"),
            (idx(&[2, 2, 2], &[0; 7]), "7 bytes after its header"),
            (idx(&[8], &[0; 8]), "1 dimensions instead of 3"),
            (idx(&[3, 1, 1], &[0; 3]), "but there are 3 images"),
            (idx(&[0, 1, 1], &[]), "but there are 0 images"),
        ] {
            std::fs::write(&path, bytes).unwrap();
            assert!(message().contains(part) && message().contains("idx"), "{}", message());
        }
        std::fs::remove_file(labels).unwrap();
        std::fs::write(&path, idx(&[2, 1, 1], &[0; 2])).unwrap();
        assert!(message().starts_with("read ") && message().contains("labels-idx1"), "{}", message());
    }

    #[test]
    fn shapes_follow_from_the_input() {
        assert_eq!(ImageShape::of_input(&[8, 784]).unwrap().height, 28);
        assert_eq!(ImageShape::of_input(&[8, 5, 6, 3]).unwrap().width, 6);
        assert_eq!(ImageShape::of_input(&[8, 785]), None);
        assert_eq!(ImageShape::of_input(&[8, 5, 6, 4]), None);
    }
}
