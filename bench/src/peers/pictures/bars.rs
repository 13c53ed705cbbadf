//! Horizontal bars, one for each contestant.

use super::svg::Svg;
use crate::peers::table::number;

pub struct Bar {
    pub label: String,
    pub value: f64,
    pub ours: bool,
    pub floor: bool,
}

pub struct Bars<'a> {
    pub title: &'a str,
    pub unit: &'a str,
    pub digits: usize,
    pub bars: Vec<Bar>,
}

const WIDTH: f64 = 760.0;
const LABELS: f64 = 220.0;
const VALUES: f64 = 80.0;
const STEP: f64 = 26.0;
const TOP: f64 = 60.0;

impl Bars<'_> {
    pub fn svg(&self) -> String {
        let mut svg = Svg::new(
            WIDTH,
            TOP + STEP * self.bars.len() as f64 + 10.0,
            self.title,
        );
        svg.text(0.0, 18.0, "t", self.title);
        svg.text(0.0, 38.0, "s", self.unit);
        let most = self
            .bars
            .iter()
            .map(|bar| bar.value)
            .fold(f64::MIN_POSITIVE, f64::max);
        for (nth, bar) in self.bars.iter().enumerate() {
            let y = TOP + STEP * nth as f64;
            let class = match (bar.ours, bar.floor) {
                (true, _) => "o",
                (_, true) => "f",
                _ => "p",
            };
            let width = (bar.value / most * (WIDTH - LABELS - VALUES)).max(1.0);
            svg.text(LABELS - 10.0, y + 14.0, "e", &bar.label);
            svg.bar(LABELS, y, width, STEP - 8.0, class);
            svg.text(
                LABELS + width + 6.0,
                y + 14.0,
                "",
                &number(bar.value, self.digits),
            );
        }
        svg.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::{Bar, Bars};

    #[test]
    fn the_longest_bar_is_the_greatest_value_and_none_leaves_the_picture() {
        let bar = |value| Bar {
            label: "x".into(),
            value,
            ours: false,
            floor: false,
        };
        let svg = Bars {
            title: "t",
            unit: "u",
            digits: 0,
            bars: vec![bar(0.0), bar(50.0), bar(100.0)],
        }
        .svg();
        for width in ["width=\"1.0\"", "width=\"230.0\"", "width=\"460.0\""] {
            assert!(svg.contains(width), "{width} is not in {svg}");
        }
    }
}
