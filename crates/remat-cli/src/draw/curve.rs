//! Line charts: loss over steps, time over memory.

use super::{COLOURS, Picture, title_within};
use anyhow::Result;
use kuva::plot::LinePlot;
use kuva::prelude::{Layout, LegendPosition, Plot};

const WIDTH: f64 = 860.0;

/// One line.
pub(crate) struct Curve {
    /// In the legend.
    pub(crate) name: String,
    /// From left to right.
    pub(crate) points: Vec<(f64, f64)>,
    /// Drawn dashed: a bound, or the second of two lines that lie on each other.
    pub(crate) dashed: bool,
}

/// Lines over one pair of axes.
pub(crate) fn curves(title: &str, x_label: &str, y_label: &str, lines: &[Curve]) -> Result<Picture> {
    Picture::of(|| {
        let plots: Vec<Plot> = lines
            .iter()
            .enumerate()
            .map(|(i, line)| {
                let plot = LinePlot::new()
                    .with_data(line.points.clone())
                    .with_color(COLOURS[i % COLOURS.len()])
                    .with_stroke_width(2.0)
                    .with_legend(line.name.as_str());
                Plot::Line(if line.dashed { plot.with_dashed() } else { plot })
            })
            .collect();
        let layout = Layout::auto_from_plots(&plots)
            .with_title(title_within(WIDTH, title))
            .with_x_label(x_label)
            .with_y_label(y_label)
            .with_width(WIDTH)
            .with_height(440.0)
            .with_legend_position(LegendPosition::OutsideRightTop)
            .with_label_size(13)
            .with_tick_size(12);
        (plots, layout)
    })
}
