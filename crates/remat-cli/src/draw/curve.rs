//! Line charts: losses over steps.

use super::{Picture, dashed, entry, title_within};
use anyhow::Result;
use kuva::plot::LinePlot;
use kuva::plot::legend::LegendShape;
use kuva::plot::line::LineStyle;
use kuva::prelude::{Layout, LegendPosition, Plot};
use remat::report::palette;

const WIDTH: f64 = 960.0;

/// One line.
pub(crate) struct Curve {
    /// In the legend.
    pub(crate) name: String,
    /// From left to right.
    pub(crate) points: Vec<(f64, f64)>,
}

/// Lines over one pair of axes. Curves may lie on each other: the first is drawn wide, those after it are narrow and
/// dashed, so that each of them shows.
pub(crate) fn curves(title: &str, x_label: &str, y_label: &str, lines: &[Curve]) -> Result<Picture> {
    Picture::of(|| {
        let plots: Vec<Plot> = lines
            .iter()
            .enumerate()
            .map(|(i, line)| {
                let plot = LinePlot::new().with_data(line.points.clone()).with_color(palette::of_series(i));
                let style = || LineStyle::Custom(format!("10 {}", 8 + 6 * i));
                Plot::Line(match i {
                    0 if lines.len() > 1 => plot.with_stroke_width(4.5),
                    0 => plot.with_stroke_width(2.0),
                    _ => plot.with_stroke_width(2.0).with_line_style(style()),
                })
            })
            .collect();
        let keys = lines.iter().enumerate().map(|(i, line)| {
            let key = entry(&line.name, palette::of_series(i), LegendShape::Line);
            if i == 0 { key } else { dashed(key) }
        });
        let layout = Layout::auto_from_plots(&plots)
            .with_title(title_within(WIDTH, title))
            .with_x_label(x_label)
            .with_y_label(y_label)
            .with_width(WIDTH)
            .with_height(440.0)
            .with_legend_entries(keys.collect())
            .with_legend_position(LegendPosition::OutsideRightTop)
            .with_label_size(13)
            .with_tick_size(12);
        (plots, layout)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_curves_are_drawn_differently() {
        let curve = |name: &str| Curve { name: name.to_owned(), points: vec![(1.0, 2.0), (2.0, 1.0)] };
        let svg = curves("loss", "step", "loss", &[curve("a"), curve("b"), curve("c")]).unwrap().svg;
        assert!(svg.contains("stroke-dasharray=\"10 14\"") && svg.contains("stroke-dasharray=\"10 20\""));
        assert!(svg.contains("stroke-width=\"4.5\""));
    }
}
