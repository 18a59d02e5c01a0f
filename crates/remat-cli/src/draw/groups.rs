//! Groups of bars side by side: the programs of a sweep, case by case, with their spread and their budgets.

use super::{Picture, dashed, entry, title_within};
use anyhow::Result;
use kuva::plot::annotations::TextAnnotation;
use kuva::plot::legend::{LegendEntry, LegendShape};
use kuva::plot::line::LineStyle;
use kuva::plot::{BarPlot, LinePlot};
use kuva::prelude::{Layout, LegendPosition, Plot};
use remat::report::palette;

/// One group: its name, and what each series has there.
pub(crate) struct Group {
    /// Below the group, unless it is the only one.
    pub(crate) name: String,
    /// One per series.
    pub(crate) bars: Vec<Bar>,
}

/// The place of a series in a group.
#[derive(Clone, Default)]
pub(crate) struct Bar {
    /// Its height; a cross is drawn without one (it did not fit).
    pub(crate) value: Option<f64>,
    /// Above the bar.
    pub(crate) label: String,
    /// Half the length of the line through its top that shows how far measurements lie apart.
    pub(crate) spread: Option<f64>,
    /// A dashed line across the bar.
    pub(crate) budget: Option<f64>,
}

impl Bar {
    /// The highest point of what is drawn.
    fn top(&self) -> f64 {
        self.value.map_or(0.0, |v| v + self.spread.unwrap_or(0.0)).max(self.budget.unwrap_or(0.0))
    }
}

/// The part of its place that a group fills; groups are at 1, 2, 3, ...
const GROUP_WIDTH: f64 = 0.8;
/// Dashes and gaps of budgets; ends are round, so gaps look shorter than they are.
const DASHES: &str = "6 7";
/// The colour of series without bars.
const ABSENT: &str = "#EEEEEE";

/// Where the bars of the groups are.
#[derive(Clone, Copy)]
struct Places {
    n_bars: usize,
}

impl Places {
    fn width(self) -> f64 {
        GROUP_WIDTH / self.n_bars as f64
    }

    /// The middle of a bar.
    fn middle(self, group: usize, bar: usize) -> f64 {
        (group + 1) as f64 - 0.5 * GROUP_WIDTH + self.width() * (bar as f64 + 0.5)
    }

    fn line(self, points: [(f64, f64); 2]) -> Plot {
        Plot::Line(LinePlot::new().with_data(points).with_color(palette::INK).with_stroke_width(1.5))
    }

    /// A budget across a bar, a little wider than the bar.
    fn budget(self, middle: f64, budget: f64) -> Plot {
        let reach = 0.5 * self.width() + 0.015;
        let line = LinePlot::new().with_data([(middle - reach, budget), (middle + reach, budget)]);
        let style = LineStyle::Custom(DASHES.to_owned());
        Plot::Line(line.with_color(palette::INK).with_stroke_width(1.8).with_line_style(style))
    }

    /// The spread around the top of a bar: a vertical line with two ends.
    fn spread(self, middle: f64, value: f64, spread: f64) -> [Plot; 3] {
        let (low, high, reach) = ((value - spread).max(0.0), value + spread, 0.15 * self.width());
        let end = |at: f64| self.line([(middle - reach, at), (middle + reach, at)]);
        [self.line([(middle, low), (middle, high)]), end(low), end(high)]
    }
}

/// Groups side by side. A series without any bar has no place in the groups, only in the legend, unless none has one.
/// `detail` is what all groups have in common, below the title.
pub(crate) fn grouped_bars(
    title: &str,
    detail: &str,
    y_label: &str,
    series: &[String],
    groups: &[Group],
) -> Result<Picture> {
    let is_drawn = |&i: &usize| groups.iter().any(|group| group.bars[i].value.is_some());
    let mut drawn: Vec<usize> = (0..series.len()).filter(is_drawn).collect();
    if drawn.is_empty() {
        drawn.extend(0..series.len());
    }
    let places = Places { n_bars: drawn.len() };
    let shown = || groups.iter().flat_map(|group| drawn.iter().map(|&i| &group.bars[i]));
    let top = shown().map(Bar::top).fold(0.0, f64::max);
    let has_gap = shown().any(|bar| bar.value.is_none());
    let has_spread = shown().any(|bar| bar.spread.is_some());
    let legend = legend(series, &drawn, shown().any(|bar| bar.budget.is_some()), has_spread);
    // Wide enough for the bars and for the names of the groups.
    let longest_name = groups.iter().map(|group| group.name.chars().count()).max().unwrap_or(0);
    let group_width = (38.0 * (drawn.len() + 1) as f64).max(7.5 * longest_name as f64 + 16.0);
    let width = (280.0 + group_width * groups.len() as f64).max(720.0);
    Picture::of(|| {
        let mut bars = BarPlot::new();
        for group in groups {
            let height = |i: usize| group.bars[i].value.unwrap_or(0.0);
            let bars_of_group = drawn.iter().map(|&i| (height(i), palette::of_series(i).to_owned()));
            bars = bars.with_group(group.name.clone(), bars_of_group.collect::<Vec<_>>());
        }
        let mut plots = vec![Plot::Bar(bars)];
        for (place, group) in groups.iter().enumerate() {
            for (nth, &i) in drawn.iter().enumerate() {
                let (bar, middle) = (&group.bars[i], places.middle(place, nth));
                if let (Some(value), Some(spread)) = (bar.value, bar.spread) {
                    plots.extend(places.spread(middle, value, spread));
                }
                plots.extend(bar.budget.map(|budget| places.budget(middle, budget)));
            }
        }
        let mut layout = Layout::auto_from_plots(&plots)
            .with_title(title_within(width, title))
            .with_x_label(if has_gap { "× does not fit" } else { "" })
            .with_y_label(y_label)
            .with_width(width)
            .with_height(460.0)
            .with_legend_entries(legend.clone())
            .with_legend_position(LegendPosition::OutsideRightTop)
            .with_x_axis_min(0.5)
            .with_x_axis_max(groups.len() as f64 + 0.5)
            .with_y_axis_min(0.0)
            .with_y_axis_max((1.12 * top).max(1e-9))
            .with_label_size(13)
            .with_tick_size(12);
        if !detail.is_empty() {
            layout = layout.with_subtitle(detail).with_subtitle_size(13);
        }
        for (place, group) in groups.iter().enumerate() {
            for (nth, &i) in drawn.iter().enumerate() {
                let bar = &group.bars[i];
                let (height, text, size) = match bar.value {
                    Some(_) => (bar.top() + 0.01 * top, bar.label.as_str(), 10),
                    None => (0.0, "×", 16),
                };
                let text = TextAnnotation::new(text, places.middle(place, nth), height);
                layout = layout.with_annotation(text.with_font_size(size).with_color(palette::INK));
            }
        }
        (plots, layout)
    })
}

fn legend(series: &[String], drawn: &[usize], has_budget: bool, has_spread: bool) -> Vec<LegendEntry> {
    let mut entries: Vec<LegendEntry> =
        drawn.iter().map(|&i| entry(&series[i], palette::of_series(i), LegendShape::Rect)).collect();
    let absent = (0..series.len()).filter(|i| !drawn.contains(i));
    entries.extend(absent.map(|i| entry(&format!("{}: does not fit", series[i]), ABSENT, LegendShape::Rect)));
    if has_budget {
        entries.push(dashed(entry("budget", palette::INK, LegendShape::Line)));
    }
    if has_spread {
        entries.push(entry("spread of steps", palette::INK, LegendShape::Line));
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bar_has_its_budget_its_spread_and_its_colour() {
        let bar = |value: Option<f64>, budget: Option<f64>| Bar {
            value,
            label: "-20 %".to_owned(),
            spread: value.map(|_| 0.5),
            budget,
        };
        let groups = ["small", "large"].map(|name| Group {
            name: name.to_owned(),
            bars: vec![
                bar(Some(9.0), None),
                bar(Some(7.0), Some(7.5)),
                bar((name == "small").then_some(5.0), Some(5.5)),
                bar(None, Some(1.0)),
            ],
        });
        let series = ["keep all", "best 80%", "best 60%", "best 10%"].map(str::to_owned);
        let svg = grouped_bars("a sweep", "layers 12", "memory (MiB)", &series, &groups).unwrap().svg;
        for words in ["a sweep", "layers 12", "×", "best 10%: does not fit", "budget", "spread of steps"] {
            assert!(svg.contains(words), "{words}");
        }
        // A budget for both planned series of both groups.
        assert_eq!(svg.matches(&format!("stroke-dasharray=\"{DASHES}\"")).count(), 4);
        let svg = svg.to_lowercase();
        assert!((0..3).all(|i| svg.contains(&palette::of_series(i).to_lowercase())));
    }
}
