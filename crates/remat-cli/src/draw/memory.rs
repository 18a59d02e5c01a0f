//! Memory over execution rank, stacked by kind, with the phases and the budget marked.

use super::{Picture, byte_unit, title_within};
use anyhow::Result;
use kuva::plot::StackedAreaPlot;
use kuva::plot::annotations::ReferenceLine;
use kuva::prelude::{Layout, LegendPosition, Plot};
use remat::graph::Kind;
use remat::report::Timeline;
use remat::report::palette;
use remat_plan::{Bytes, Phase};

const WIDTH: f64 = 1000.0;

/// More points than this cannot be told apart on a screen; a column shows the largest of its ranks.
const COLUMNS: usize = 600;

/// Draws a timeline. Series that are empty everywhere are left out.
pub(crate) fn memory_over_ranks(title: &str, timeline: &Timeline, budget: Option<Bytes>) -> Result<Picture> {
    let n = timeline.runs.len();
    let n_columns = n.clamp(1, COLUMNS);
    let totals = timeline.total_bytes();
    // One rank is drawn for each column: the one with the most memory, so that no peak is lost and stacks add up.
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
            .with_fill_opacity(1.0);
        for (name, values) in &series {
            plot = plot
                .with_series(values.clone())
                .with_color(palette::of_kind(name))
                .with_legend(name.replace('_', " "));
        }
        let plots = vec![Plot::StackedArea(plot)];
        let mut layout = Layout::auto_from_plots(&plots)
            .with_title(title_within(WIDTH, title))
            .with_x_label("execution rank")
            .with_y_label(format!("memory ({unit})"))
            .with_width(WIDTH)
            .with_height(460.0)
            // Lines of a grid would cross the labels of phases.
            .with_show_grid(false)
            .with_legend_position(LegendPosition::OutsideRightTop)
            .with_x_axis_min(0.0)
            .with_x_axis_max(n.saturating_sub(1).max(1) as f64)
            .with_y_axis_min(0.0)
            .with_y_axis_max(1.1 * largest.0 as f64 / scale)
            .with_label_size(13)
            .with_tick_size(12);
        for (start, label) in phase_marks(timeline) {
            let line = ReferenceLine::vertical(start as f64).with_color(palette::INK);
            layout = layout.with_reference_line(match label {
                Some(label) => line.with_label(label),
                None => line,
            });
        }
        if let Some(budget) = budget {
            let line = ReferenceLine::horizontal(budget.0 as f64 / scale)
                .with_color(palette::INK)
                .with_dasharray("8 4")
                .with_label(format!("budget {budget}"));
            layout = layout.with_reference_line(line);
        }
        (plots, layout)
    })
}

/// Where phases begin, from left to right, with the labels beside the lines. The first update follows the first gradients
/// closely and labels would lie on each other, so the last of several lines close together has the names of all.
fn phase_marks(timeline: &Timeline) -> Vec<(usize, Option<String>)> {
    let name = |phase| match phase {
        Phase::Forward => "forward",
        Phase::Backward => "backward",
        Phase::Optimizer => "first update",
    };
    let starts: Vec<_> = timeline.phase_starts().into_iter().filter(|&(_, start)| start > 0).collect();
    let close = timeline.runs.len() / 8;
    let mut marks = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    for (i, &(phase, start)) in starts.iter().enumerate() {
        names.push(name(phase));
        let is_last = starts.get(i + 1).is_none_or(|&(_, next)| next > start + close);
        marks.push((start, is_last.then(|| std::mem::take(&mut names).join(", "))));
    }
    marks
}

#[cfg(test)]
mod tests {
    use super::*;
    use remat::report::{Life, TimelineRun};

    /// A step of 80 nodes, 40 of them forward, with an update at the given rank.
    fn timeline(first_update: usize) -> Timeline {
        let run = |rank: usize| TimelineRun {
            node: format!("node_{rank}"),
            op: "relu".to_owned(),
            module: String::new(),
            phase: match rank {
                0..40 => Phase::Forward,
                _ if rank == first_update => Phase::Optimizer,
                _ => Phase::Backward,
            },
            recompute: false,
            seconds: 1.0,
            workspace_bytes: Bytes(1 << 20),
        };
        let life = |kind: Kind| Life {
            value: kind.name().to_owned(),
            module: String::new(),
            kind,
            bytes: Bytes(4 << 20),
            offset: 0,
            start: 0,
            end: 79,
            recompute: false,
        };
        Timeline {
            runs: (0..80).map(run).collect(),
            lives: vec![life(Kind::Parameter), life(Kind::Activation)],
            ..Timeline::default()
        }
    }

    #[test]
    fn every_phase_has_a_label_and_close_ones_share_theirs() {
        let labels = |first_update| phase_marks(&timeline(first_update));
        let named = |start, name: &str| (start, Some(name.to_owned()));
        assert_eq!(labels(70), [named(40, "backward"), named(70, "first update")]);
        assert_eq!(labels(42), [(40, None), named(42, "backward, first update")]);
    }

    #[test]
    fn kinds_have_the_colours_of_the_palette() {
        let svg =
            memory_over_ranks("a model", &timeline(70), Some(Bytes(12 << 20))).unwrap().svg.to_lowercase();
        for kind in ["parameter", "activation", "workspace"] {
            assert!(svg.contains(&palette::of_kind(kind).to_lowercase()), "{kind}");
        }
        assert!(
            svg.contains("budget 12.00 mib") && !svg.contains(&palette::of_kind("gradient").to_lowercase())
        );
    }
}
