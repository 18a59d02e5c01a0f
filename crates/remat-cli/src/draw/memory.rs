//! Memory over execution rank, stacked by kind, with the phases and the budget marked.

use super::{COLOURS, Picture, byte_unit, title_within};
use anyhow::Result;
use kuva::plot::StackedAreaPlot;
use kuva::plot::annotations::ReferenceLine;
use kuva::prelude::{Layout, LegendPosition, Plot};
use remat::graph::Kind;
use remat::report::Timeline;
use remat_plan::{Bytes, Phase};

const WIDTH: f64 = 1000.0;

/// More points than this cannot be told apart on a screen; a column shows the largest of its ranks.
const COLUMNS: usize = 600;

/// Draws a timeline. Series that are empty everywhere are left out.
pub(crate) fn memory_over_ranks(title: &str, timeline: &Timeline, budget: Option<Bytes>) -> Result<Picture> {
    let n = timeline.runs.len();
    let n_columns = n.clamp(1, COLUMNS);
    let totals = timeline.total_bytes();
    // One rank stands for each column: the one with the most memory, so that no peak is lost and stacks add up.
    let ranks: Vec<usize> = (0..n_columns.min(n))
        .filter_map(|c| {
            (c * n / n_columns..(c + 1) * n / n_columns).max_by_key(|&i| (totals[i], usize::MAX - i))
        })
        .collect();
    let largest = totals.iter().copied().max().unwrap_or(Bytes(0)).max(budget.unwrap_or(Bytes(0)));
    let (unit, scale) = byte_unit(largest);
    let mut series: Vec<(&str, Vec<f64>)> = Vec::new();
    for kind in Kind::ALL {
        let bytes = timeline.bytes_where(|life| life.kind == kind);
        series.push((kind.name(), ranks.iter().map(|&i| bytes[i].0 as f64 / scale).collect()));
    }
    let workspace = ranks.iter().map(|&i| timeline.runs[i].workspace_bytes.0 as f64 / scale).collect();
    series.push(("workspace", workspace));
    series.retain(|(_, values)| values.iter().any(|&v| v > 0.0));
    Picture::of(|| {
        let mut plot = StackedAreaPlot::new()
            .with_x(ranks.iter().map(|&i| i as f64).collect::<Vec<_>>())
            .with_strokes(false)
            .with_fill_opacity(0.9);
        for (i, (name, values)) in series.iter().enumerate() {
            plot = plot
                .with_series(values.clone())
                .with_color(COLOURS[i % COLOURS.len()])
                .with_legend(name.replace('_', " "));
        }
        let plots = vec![Plot::StackedArea(plot)];
        let mut layout = Layout::auto_from_plots(&plots)
            .with_title(title_within(WIDTH, title))
            .with_x_label("execution rank")
            .with_y_label(format!("memory ({unit})"))
            .with_width(WIDTH)
            .with_height(460.0)
            .with_legend_position(LegendPosition::OutsideRightTop)
            .with_y_axis_min(0.0)
            .with_y_axis_max(1.1 * largest.0 as f64 / scale)
            .with_label_size(13)
            .with_tick_size(12);
        let mut last_label = 0;
        for (phase, start) in timeline.phase_starts().into_iter().filter(|&(_, start)| start > 0) {
            let name = match phase {
                Phase::Forward => "forward",
                Phase::Backward => "backward",
                Phase::Optimizer => "first update",
            };
            let mut line = ReferenceLine::vertical(start as f64).with_color("#555555");
            // The first update follows the first gradients closely; two labels would lie on each other.
            if last_label == 0 || start > last_label + n / 8 {
                line = line.with_label(name);
                last_label = start;
            }
            layout = layout.with_reference_line(line);
        }
        if let Some(budget) = budget {
            let line = ReferenceLine::horizontal(budget.0 as f64 / scale)
                .with_color("#D55E00")
                .with_label(format!("budget {budget}"));
            layout = layout.with_reference_line(line);
        }
        (plots, layout)
    })
}
