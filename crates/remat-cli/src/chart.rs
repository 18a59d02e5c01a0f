//! A memory curve in text: filled columns over the nodes in order of execution, with the peak and the phases marked.

use remat::graph::Phase;
use remat::report::Timeline;
use remat_plan::Bytes;

const WIDTH: usize = 72;
const HEIGHT: usize = 6;
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Draws memory over the step against a common scale: the full height is `top`.
pub(crate) fn memory(name: &str, timeline: &Timeline, top: Bytes) -> String {
    let phases = timeline.runs.iter().map(|run| run.phase);
    let points: Vec<(Phase, Bytes)> = phases.zip(timeline.total_bytes()).collect();
    columns(name, &points, top)
}

fn columns(name: &str, points: &[(Phase, Bytes)], top: Bytes) -> String {
    let n_columns = WIDTH.min(points.len());
    // A column stands for a run of nodes and shows the largest of them, so that no peak is lost.
    let nodes_of = |column: usize| column * points.len() / n_columns..(column + 1) * points.len() / n_columns;
    let heights: Vec<usize> = (0..n_columns)
        .map(|column| {
            let most = points[nodes_of(column)].iter().map(|point| point.1.0).max().unwrap_or(0);
            let full = (HEIGHT * 8) as u64;
            (u128::from(most) * u128::from(full)).div_ceil(u128::from(top.0.max(1))) as usize
        })
        .collect();
    let peak = points.iter().map(|point| point.1).max().unwrap_or(Bytes(0));
    let mut text = format!("  {name}, peak {peak}\n");
    for row in (0..HEIGHT).rev() {
        let line: String = heights.iter().map(|h| EIGHTHS[h.saturating_sub(8 * row).min(8)]).collect();
        text += &format!("  │{}\n", line.trim_end());
    }
    let first_after_forward =
        points.iter().position(|point| point.0 != Phase::Forward).unwrap_or(points.len());
    let is_boundary = |column: &usize| nodes_of(*column).contains(&first_after_forward);
    let boundary = (0..n_columns).find(is_boundary).unwrap_or(n_columns);
    let axis: String = (0..n_columns).map(|column| if column == boundary { '┴' } else { '─' }).collect();
    text + &format!("  └{axis}\n   {:<boundary$}backward and optimizer\n", "forward")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_column_reaches_the_top_and_the_phases_are_marked() {
        let mut points: Vec<_> = (0..12).map(|i| (Phase::Forward, Bytes(4 * i))).collect();
        points.extend((12..24).map(|i| (Phase::Backward, Bytes(96 - 4 * i))));
        let text = columns("keep all", &points, Bytes(48));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "  keep all, peak 48 B");
        assert_eq!(lines[1].chars().filter(|&c| c == '█').count(), 1);
        assert_eq!(lines[HEIGHT + 1], "  └────────────┴───────────");
        assert_eq!(lines[HEIGHT + 2], "   forward     backward and optimizer");
    }

    #[test]
    fn a_curve_without_points_is_empty_but_no_panic() {
        assert!(columns("nothing", &[], Bytes(0)).contains("peak 0 B"));
    }
}
