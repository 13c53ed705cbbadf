//! Lines over a logarithmic axis: how something changes while something else grows by powers of ten.

use super::svg::Svg;
use crate::peers::table::number;

pub struct Line {
    pub label: String,
    pub points: Vec<(f64, f64)>,
}

pub struct Lines<'a> {
    pub title: &'a str,
    pub across: &'a str,
    pub lines: Vec<Line>,
}

pub const WIDTH: f64 = 370.0;
pub const HEIGHT: f64 = 240.0;
const LEFT: f64 = 44.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 56.0;
const BOTTOM: f64 = 36.0;

impl Lines<'_> {
    /// Drawn with its corner at a place of a larger picture.
    pub fn draw(&self, svg: &mut Svg, (left, top): (f64, f64)) {
        svg.text(left + 4.0, top + 18.0, "", self.title);
        let points = || self.lines.iter().flat_map(|line| &line.points);
        // Zero is a value too: it stands where one stands.
        let log = |x: f64| x.max(1.0).log10();
        let from = points().map(|(x, _)| log(*x)).fold(f64::INFINITY, f64::min);
        let to = points().map(|(x, _)| log(*x)).fold(from + 1e-9, f64::max);
        let most = points().map(|(_, y)| *y).fold(1.2, f64::max) * 1.1;
        let x =
            |value: f64| left + LEFT + (log(value) - from) / (to - from) * (WIDTH - LEFT - RIGHT);
        let y = |value: f64| top + HEIGHT - BOTTOM - value / most * (HEIGHT - TOP - BOTTOM);
        for at in [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0]
            .into_iter()
            .filter(|at| *at <= most)
        {
            // Else they stand on each other.
            if most > 3.0 && (at == 0.5 || at == 1.5) {
                continue;
            }
            svg.rule((left + LEFT, y(at)), (left + WIDTH - RIGHT, y(at)));
            svg.text(left + LEFT - 6.0, y(at) + 4.0, "s e", &format!("{at}"));
        }
        let mut ticks: Vec<f64> = points().map(|(x, _)| *x).collect();
        ticks.sort_by(f64::total_cmp);
        ticks.dedup();
        for tick in ticks {
            svg.text(x(tick), top + HEIGHT - BOTTOM + 16.0, "s m", &short(tick));
        }
        svg.text(left + WIDTH - RIGHT, top + HEIGHT - 4.0, "s e", self.across);
        for (nth, line) in self.lines.iter().enumerate() {
            let class = format!("c{}", nth % 4);
            let placed: Vec<(f64, f64)> = line
                .points
                .iter()
                .map(|(at, value)| (x(*at), y(*value)))
                .collect();
            svg.line(&placed, &class);
            let key = left + LEFT + nth as f64 * 100.0;
            svg.bar(key, top + 30.0, 10.0, 10.0, &class);
            svg.text(key + 14.0, top + 39.0, "s", &line.label);
        }
    }
}

/// 10k, 1M.
fn short(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{}M", number(v / 1e6, 0)),
        v if v >= 1e3 => format!("{}k", number(v / 1e3, 0)),
        v => number(v, 0),
    }
}
