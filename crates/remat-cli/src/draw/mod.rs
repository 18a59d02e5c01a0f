//! Plots as pictures: each function returns a [`Picture`], which is written as SVG and as PNG.
//!
//! Colours come from the palette, as on the report page. Axes always show their unit; bytes are plotted in MiB
//! or GiB, whichever keeps the numbers short.

mod bars;
mod curve;
mod frontier;
mod groups;
mod memory;

pub(crate) use bars::top_bars;
pub(crate) use curve::{Curve, curves};
pub(crate) use frontier::{FrontierCurve, frontier};
pub(crate) use groups::{Bar, Group, grouped_bars};
pub(crate) use memory::memory_over_ranks;

use anyhow::{Result, anyhow, bail};
use kuva::plot::legend::{LegendEntry, LegendShape};
use kuva::prelude::{Layout, Plot};
use remat_plan::{Bytes, Shown};
use std::path::Path;

/// Of a title, on average, in the units of a picture's width.
const WIDTH_OF_A_LETTER: f64 = 11.5;

/// A drawing in both forms.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Picture {
    /// For pages and for editing.
    pub(crate) svg: String,
    /// For everything else, at twice the logical size.
    pub(crate) png: Vec<u8>,
}

impl Picture {
    fn of(make: impl Fn() -> (Vec<Plot>, Layout)) -> Result<Picture> {
        let (plots, layout) = make();
        let svg = Shown::lines(&kuva::render_to_svg(plots, layout)).into_owned();
        let (plots, layout) = make();
        let png = kuva::render_to_raster(plots, layout, 2.0).map_err(|e| anyhow!("drawing: {e}"))?;
        Ok(Picture { svg, png })
    }

    /// The drawing as a file of this kind.
    pub(crate) fn bytes(&self, format: Format) -> &[u8] {
        match format {
            Format::Svg => self.svg.as_bytes(),
            Format::Png => &self.png,
        }
    }
}

/// The kind of file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Format {
    /// Vectors.
    Svg,
    /// Pixels.
    Png,
}

impl Format {
    /// The format that the ending of the name asks for.
    pub(crate) fn of(path: &Path) -> Result<Format> {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        match ending.to_ascii_lowercase().as_str() {
            "svg" => Ok(Format::Svg),
            "png" => Ok(Format::Png),
            _ => bail!("{}: the name of a plot must end in .svg or .png", path.display()),
        }
    }
}

/// A title that fits above a picture of this width: of a long one the middle is left out, since the name is at the
/// beginning and what is shown at the end.
fn title_within(width: f64, title: &str) -> String {
    let most = (width / WIDTH_OF_A_LETTER) as usize;
    let letters: Vec<char> = title.chars().collect();
    if letters.len() <= most {
        return title.to_owned();
    }
    let (head, tail) = (most / 3, most - most / 3 - 1);
    let [head, tail] = [&letters[..head], &letters[letters.len() - tail..]];
    head.iter().chain(&['…']).chain(tail).collect()
}

fn entry(label: &str, colour: &str, shape: LegendShape) -> LegendEntry {
    LegendEntry { label: label.to_owned(), color: colour.to_owned(), shape, dasharray: None }
}

/// Two dashes, whatever the dashes of the line are: long ones would reach into the text.
fn dashed(entry: LegendEntry) -> LegendEntry {
    LegendEntry { dasharray: Some("4 7".to_owned()), ..entry }
}

/// The unit in which a set of sizes reads best, as its name and how many bytes it has.
pub(crate) fn byte_unit(largest: Bytes) -> (&'static str, f64) {
    match largest.0 {
        b if b >= 4 << 30 => ("GiB", (1u64 << 30) as f64),
        b if b >= 4 << 20 => ("MiB", (1u64 << 20) as f64),
        b if b >= 4 << 10 => ("KiB", 1024.0),
        _ => ("B", 1.0),
    }
}

/// The unit in which a set of times reads best.
pub(crate) fn time_unit(largest: f64) -> (&'static str, f64) {
    match largest {
        t if t >= 2.0 => ("s", 1.0),
        t if t >= 2e-3 => ("ms", 1e-3),
        _ => ("µs", 1e-6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_endings_are_refused() {
        assert_eq!(Format::of(Path::new("a/b.PNG")).unwrap(), Format::Png);
        assert!(Format::of(Path::new("curve.pdf")).unwrap_err().to_string().contains(".svg or .png"));
        assert!(Format::of(Path::new("curve")).is_err());
    }

    #[test]
    fn the_middle_of_a_long_title_is_left_out() {
        assert_eq!(title_within(860.0, "resnet18: memory"), "resnet18: memory");
        let long = title_within(230.0, "transformer(batch=16,layers=6): what memory costs");
        assert_eq!(long, "transf… memory costs");
        assert_eq!(long.chars().count(), 20);
    }

    #[test]
    fn sizes_and_times_take_the_unit_that_suits_them() {
        assert_eq!([0, 5, 5000, 5 << 30].map(|bytes| byte_unit(Bytes(bytes)).0), ["B", "B", "KiB", "GiB"]);
        assert_eq!([1e-5, 0.01, 3.0].map(|time| time_unit(time).0), ["µs", "ms", "s"]);
    }
}
