//! Horizontal bars: the largest of many things.

use super::{Picture, title_within};
use anyhow::Result;
use kuva::plot::BarPlot;
use kuva::prelude::{Layout, Plot};
use remat::report::palette;

/// Names and values, the largest on top, as horizontal bars. Values are already in `unit`.
pub(crate) fn top_bars(title: &str, unit: &str, rows: &[(String, f64)]) -> Result<Picture> {
    Picture::of(|| {
        // Horizontal bars grow upwards from the first.
        let bars = rows.iter().rev().map(|(name, value)| (shortened(name), *value));
        let plot = BarPlot::new()
            .with_bars(bars.collect::<Vec<_>>())
            .with_color(palette::of_series(0))
            .with_horizontal(true);
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
