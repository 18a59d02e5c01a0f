//! `remat predict`: classes of images from a trained classifier.

use crate::answer::Answer;
use crate::format::{Align, table};
use crate::output::{Output, Paint, Report};
use crate::progress::Progress;
use anyhow::Result;
use clap::Args;
use remat::inference::Image;
use remat_plan::Bytes;
use serde::Serialize;
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// Classifies images with a model that `remat train --checkpoint` trained.
#[derive(Debug, Args)]
pub(crate) struct Flags {
    /// The folder of the run, with its checkpoints.
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// PNG or JPEG files.
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<PathBuf>,
    /// How many of the likeliest classes to show.
    #[arg(long, value_name = "N", default_value = "3")]
    top: NonZeroUsize,
}

#[derive(Serialize)]
struct Predicted {
    /// All memory that the model used: weights, inputs and everything in between.
    peak_bytes: Bytes,
    images: Vec<Classified>,
}

#[derive(Serialize)]
struct Classified {
    image: PathBuf,
    /// The likeliest first.
    classes: Vec<Class>,
}

#[derive(Serialize)]
struct Class {
    class: String,
    probability: f32,
}

impl Flags {
    pub(super) fn run(&self, out: &mut Output) -> Result<Answer> {
        let mut model = super::generate::load(&self.run)?;
        let progress = Progress::with_end("classifying", self.images.len());
        let mut images = Vec::with_capacity(self.images.len());
        for (i, path) in self.images.iter().enumerate() {
            progress.set(i, self.images.len());
            let prediction = model.predict_image(&Image::open(path)?)?;
            let class = |(class, probability): (String, f32)| Class { class, probability };
            let classes = prediction.top(self.top.get()).into_iter().map(class).collect();
            images.push(Classified { image: path.clone(), classes });
        }
        drop(progress);
        out.report(&Predicted { peak_bytes: model.peak(), images })?;
        Ok(Answer::Yes)
    }
}

impl Report for Predicted {
    const SCHEMA: &'static str = "remat.predict/1";

    fn text(&self, _: Paint) -> String {
        let rows = self.images.iter().map(|classified| {
            let classes = classified.classes.iter();
            let shown = classes.map(|c| format!("{} {:.1} %", c.class, 100.0 * c.probability));
            vec![classified.image.display().to_string(), shown.collect::<Vec<_>>().join(", ")]
        });
        table(&[("image", Align::Left), ("likeliest classes", Align::Left)], rows)
    }
}
