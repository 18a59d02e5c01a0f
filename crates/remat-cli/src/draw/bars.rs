//! Bar charts: the largest of many things, and groups side by side with a label on each bar.

use super::{COLOURS, Picture, title_within};
use anyhow::Result;
use kuva::plot::BarPlot;
use kuva::plot::annotations::{ReferenceLine, TextAnnotation};
use kuva::prelude::{Layout, LegendPosition, Plot};

/// Names and values, the largest on top, as horizontal bars. Values are already in `unit`.
pub(crate) fn top_bars(title: &str, unit: &str, rows: &[(String, f64)]) -> Result<Picture> {
    Picture::of(|| {
        // Horizontal bars grow upwards from the first.
        let bars = rows.iter().rev().map(|(name, value)| (shortened(name), *value));
        let plot =
            BarPlot::new().with_bars(bars.collect::<Vec<_>>()).with_color(COLOURS[0]).with_horizontal(true);
        let plots = vec![Plot::Bar(plot)];
        let layout = Layout::auto_from_plots(&plots)
            .with_title(title_within(900.0, title))
            .with_x_label(unit)
            .with_width(900.0)
            .with_height(110.0 + 24.0 * rows.len().max(3) as f64)
            .with_label_size(13)
            .with_tick_size(11);
        (plots, layout)
    })
}

/// Long module paths keep their end, which says more than their beginning.
fn shortened(name: &str) -> String {
    const LONGEST: usize = 44;
    let n_chars = name.chars().count();
    if n_chars <= LONGEST {
        return name.to_owned();
    }
    let tail: String = name.chars().skip(n_chars - LONGEST + 1).collect();
    format!("…{tail}")
}

/// One group of bars: its name and, per series, a value and the text above it. A series without a value (it did not
/// fit) leaves its place empty.
pub(crate) struct Group {
    /// Below the group.
    pub(crate) name: String,
    /// One per series.
    pub(crate) bars: Vec<Option<(f64, String)>>,
}

/// Groups side by side, a line at `limit` when there is one.
pub(crate) fn grouped_bars(
    title: &str,
    x_label: &str,
    y_label: &str,
    series: &[String],
    groups: &[Group],
    limit: Option<(f64, &str)>,
) -> Result<Picture> {
    Picture::of(|| {
        let mut plot = BarPlot::new();
        for group in groups {
            let bars =
                group.bars.iter().enumerate().map(|(i, bar)| {
                    (bar.as_ref().map_or(0.0, |b| b.0), COLOURS[i % COLOURS.len()].to_owned())
                });
            plot = plot.with_group(group.name.clone(), bars.collect::<Vec<_>>());
        }
        plot = plot.with_legend(series.iter().map(String::as_str).collect());
        let highest = groups.iter().flat_map(|g| &g.bars).flatten().map(|b| b.0).fold(0.0, f64::max);
        let plots = vec![Plot::Bar(plot)];
        let mut layout = Layout::auto_from_plots(&plots)
            .with_title(title)
            .with_x_label(x_label)
            .with_y_label(y_label)
            .with_width((260.0 + 38.0 * (groups.len() * (series.len() + 1)) as f64).max(720.0))
            .with_height(460.0)
            .with_legend_position(LegendPosition::OutsideRightTop)
            .with_y_axis_min(0.0)
            .with_y_axis_max((1.12 * highest.max(limit.map_or(0.0, |l| l.0))).max(1e-9))
            .with_label_size(13)
            .with_tick_size(12);
        for (g, group) in groups.iter().enumerate() {
            for (i, bar) in group.bars.iter().enumerate() {
                let Some((value, label)) = bar else { continue };
                if label.is_empty() {
                    continue;
                }
                // Groups stand at 1, 2, 3, ...; bars share four fifths of the place.
                let width = 0.8 / group.bars.len() as f64;
                let x = (g + 1) as f64 - 0.4 + width * (i as f64 + 0.5);
                let text = TextAnnotation::new(label.clone(), x, value + 0.02 * highest);
                layout = layout.with_annotation(text.with_font_size(9).with_color("#333333"));
            }
        }
        if let Some((y, name)) = limit {
            let line = ReferenceLine::horizontal(y).with_color("#D55E00").with_label(name);
            layout = layout.with_reference_line(line);
        }
        (plots, layout)
    })
}
