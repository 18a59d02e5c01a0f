//! The frontier: extra cost over memory, with the lower bound as a second line, and with stores the curve without them.
//!
//! The area between the two lines is what is not known: no plan lies below the lower one.

use super::{Picture, byte_unit, title_within};
use anyhow::Result;
use kuva::plot::LinePlot;
use kuva::plot::line::LineStyle;
use kuva::prelude::{Layout, LegendPosition, Plot, ReferenceLine};
use remat::report::palette::{self, of_series};
use remat_plan::Bytes;

const WIDTH: f64 = 860.0;

/// What is drawn; costs are percent above no recomputation, at ascending budgets.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct FrontierCurve {
    pub(crate) title: String,
    pub(crate) floor: Bytes,
    pub(crate) keep_all: Bytes,
    pub(crate) plans: Vec<(Bytes, f64)>,
    pub(crate) bounds: Vec<(Bytes, f64)>,
    /// The plans without stores, where the others may use them.
    pub(crate) without_stores: Option<Vec<(Bytes, f64)>>,
}

/// Draws the frontier.
pub(crate) fn frontier(curve: &FrontierCurve) -> Result<Picture> {
    let (unit_name, unit) = byte_unit(curve.keep_all);
    // Straight lines join the budgets that were planned; what lies between two of them was not looked at.
    let line = |points: &[(Bytes, f64)], colour: &str, name: &str| {
        let scaled: Vec<(f64, f64)> =
            points.iter().map(|&(b, percent)| (b.0 as f64 / unit, percent)).collect();
        LinePlot::new().with_data(scaled).with_color(colour).with_stroke_width(2.0).with_legend(name)
    };
    let (floor, keep_all) = (curve.floor.0 as f64 / unit, curve.keep_all.0 as f64 / unit);
    let without = curve.without_stores.iter().flatten();
    let highest =
        curve.plans.iter().chain(&curve.bounds).chain(without).map(|point| point.1).fold(1.0, f64::max);
    // Labels of the marks are to their right; the wider margin holds the last one.
    let range = (keep_all - floor).max(0.01 * keep_all).max(1e-9);
    let mark = |at: f64| ReferenceLine::vertical(at).with_color(palette::FAINT).with_stroke_width(1.0);
    Picture::of(|| {
        let mut plots: Vec<Plot> = Vec::new();
        if !curve.bounds.is_empty() {
            let bound = line(&curve.bounds, of_series(1), "lower bound: no plan is below");
            plots.push(Plot::Line(bound.with_line_style(LineStyle::Custom("9 8".to_owned()))));
        }
        if !curve.plans.is_empty() {
            let name = match &curve.without_stores {
                Some(_) => "cheapest plan found, with stores",
                None => "cheapest plan found",
            };
            plots.push(Plot::Line(line(&curve.plans, of_series(0), name)));
        }
        if let Some(without) = curve.without_stores.as_ref().filter(|points| !points.is_empty()) {
            plots.push(Plot::Line(line(without, of_series(2), "without stores")));
        }
        // The curve falls steeply at the left and the marks are at both ends, so the legend is in the middle.
        let layout = Layout::auto_from_plots(&plots)
            .with_width(WIDTH)
            .with_height(480.0)
            .with_title(title_within(WIDTH, &curve.title))
            .with_x_label(format!("memory budget for the whole step ({unit_name})"))
            .with_y_label("cost above no recomputation (%)")
            .with_x_axis_min(floor - 0.04 * range)
            .with_x_axis_max(keep_all + 0.14 * range)
            .with_y_axis_min(0.0)
            .with_y_axis_max(1.1 * highest)
            .with_reference_line(mark(floor).with_label("floor"))
            .with_reference_line(mark(keep_all).with_label("keep all"))
            // Lines of a grid would cross the labels of the marks.
            .with_show_grid(false)
            .with_legend_position(LegendPosition::InsideTopCenter);
        (plots, layout)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve() -> FrontierCurve {
        let mib = |n: u64| Bytes(n << 20);
        FrontierCurve {
            title: "a model".to_owned(),
            floor: mib(2),
            keep_all: mib(9),
            plans: vec![(mib(3), 20.0), (mib(6), 4.0), (mib(9), 0.0)],
            bounds: vec![(mib(2), 15.0), (mib(6), 3.5), (mib(9), 0.0)],
            without_stores: None,
        }
    }

    #[test]
    fn a_picture_has_both_lines_their_units_and_the_marks() {
        let Picture { svg, png } = frontier(&curve()).unwrap();
        let words = ["a model", "MiB", "%", "floor", "keep all", "cheapest plan found", "lower bound"];
        for word in words {
            assert!(svg.contains(word), "{word}");
        }
        let svg = svg.to_lowercase();
        assert!([0, 1].map(of_series).iter().all(|colour| svg.contains(&colour.to_lowercase())));
        assert_eq!(png[..8], *b"\x89PNG\r\n\x1a\n");
    }

    #[test]
    fn with_stores_there_is_a_curve_without_them() {
        let without = vec![(Bytes(4 << 20), 40.0), (Bytes(9 << 20), 0.0)];
        let svg = frontier(&FrontierCurve { without_stores: Some(without), ..curve() }).unwrap().svg;
        assert!(svg.contains("with stores") && svg.contains("without stores"));
        assert!(svg.to_lowercase().contains(&of_series(2).to_lowercase()));
    }

    #[test]
    fn a_curve_without_plans_is_drawn_without_a_panic() {
        let empty =
            FrontierCurve { plans: vec![], bounds: vec![], keep_all: Bytes(0), floor: Bytes(0), ..curve() };
        assert!(!frontier(&empty).unwrap().svg.is_empty());
    }
}
