//! Bar charts: the largest of many things, and groups side by side with a label on each bar.

use super::{COLOURS, Picture, title_within};
use anyhow::Result;
use kuva::plot::annotations::TextAnnotation;
use kuva::plot::legend::{LegendEntry, LegendShape};
use kuva::plot::{BarPlot, LinePlot};
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

/// One group of bars: its name and, per series, a value and the text above it. In the place of a series without a value
/// (it did not fit) stands a cross.
pub(crate) struct Group {
    /// Below the group.
    pub(crate) name: String,
    /// One per series.
    pub(crate) bars: Vec<Option<(f64, String)>>,
    /// Dashed lines across the first bar, which keeps everything.
    pub(crate) budgets: Vec<f64>,
}

/// The part of its place that a group fills; groups stand at 1, 2, 3, ...
const GROUP_WIDTH: f64 = 0.8;
/// Colours of budgets, and of series without bars.
const BUDGET: &str = "#222222";
const ABSENT: &str = "#EEEEEE";

/// A budget across the first bar of the group that stands at `place`: the others have labels in its way.
fn budget_line(place: usize, n_bars: usize, budget: f64) -> LinePlot {
    let left = (place + 1) as f64 - 0.5 * GROUP_WIDTH;
    let ends = [(left - 0.06, budget), (left + GROUP_WIDTH / n_bars as f64, budget)];
    LinePlot::new().with_data(ends).with_color(BUDGET).with_stroke_width(1.5).with_dashed()
}

/// Groups side by side. A series without any bar has no place in the groups, only in the legend, unless none has one.
pub(crate) fn grouped_bars(
    title: &str,
    y_label: &str,
    series: &[String],
    groups: &[Group],
) -> Result<Picture> {
    let is_drawn = |&i: &usize| groups.iter().any(|group| group.bars[i].is_some());
    let mut drawn: Vec<usize> = (0..series.len()).filter(is_drawn).collect();
    if drawn.is_empty() {
        drawn.extend(0..series.len());
    }
    let colour = |i: usize| COLOURS[i % COLOURS.len()];
    let highest = groups.iter().flat_map(|g| &g.bars).flatten().map(|b| b.0).fold(0.0, f64::max);
    let top = groups.iter().flat_map(|g| &g.budgets).copied().fold(highest, f64::max);
    let has_gap = groups.iter().any(|group| drawn.iter().any(|&i| group.bars[i].is_none()));
    let mut legend: Vec<LegendEntry> =
        drawn.iter().map(|&i| entry(&series[i], colour(i), LegendShape::Rect)).collect();
    let absent = (0..series.len()).filter(|i| !drawn.contains(i));
    legend.extend(absent.map(|i| entry(&format!("{}: nowhere", series[i]), ABSENT, LegendShape::Rect)));
    if groups.iter().any(|group| !group.budgets.is_empty()) {
        let dasharray = Some("4 3".to_owned());
        legend.push(LegendEntry { dasharray, ..entry("budget", BUDGET, LegendShape::Line) });
    }
    Picture::of(|| {
        let mut bars = BarPlot::new();
        for group in groups {
            let height = |i: usize| group.bars[i].as_ref().map_or(0.0, |bar| bar.0);
            let bars_of_group = drawn.iter().map(|&i| (height(i), colour(i).to_owned()));
            bars = bars.with_group(group.name.clone(), bars_of_group.collect::<Vec<_>>());
        }
        let mut plots = vec![Plot::Bar(bars)];
        for (place, group) in groups.iter().enumerate() {
            let line = |&budget: &f64| Plot::Line(budget_line(place, drawn.len(), budget));
            plots.extend(group.budgets.iter().map(line));
        }
        let mut layout = Layout::auto_from_plots(&plots)
            .with_title(title)
            .with_x_label(if has_gap { "× does not fit" } else { "" })
            .with_y_label(y_label)
            .with_width((260.0 + 38.0 * (groups.len() * (drawn.len() + 1)) as f64).max(720.0))
            .with_height(460.0)
            .with_legend_entries(legend.clone())
            .with_legend_position(LegendPosition::OutsideRightTop)
            .with_x_axis_min(0.5)
            .with_x_axis_max(groups.len() as f64 + 0.5)
            .with_y_axis_min(0.0)
            .with_y_axis_max((1.12 * top).max(1e-9))
            .with_label_size(13)
            .with_tick_size(12);
        for (place, group) in groups.iter().enumerate() {
            for (nth, &i) in drawn.iter().enumerate() {
                let x = (place + 1) as f64 + GROUP_WIDTH * ((nth as f64 + 0.5) / drawn.len() as f64 - 0.5);
                let (height, text, size) = match &group.bars[i] {
                    Some((value, label)) => (value + 0.02 * top, label.as_str(), 9),
                    None => (0.0, "×", 14),
                };
                let text = TextAnnotation::new(text, x, height).with_font_size(size).with_color("#333333");
                layout = layout.with_annotation(text);
            }
        }
        (plots, layout)
    })
}

fn entry(label: &str, colour: &str, shape: LegendShape) -> LegendEntry {
    LegendEntry { label: label.to_owned(), color: colour.to_owned(), shape, dasharray: None }
}
