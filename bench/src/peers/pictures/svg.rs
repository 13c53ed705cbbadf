//! The pieces that pictures are made of.

/// Colours by class, for light and for dark pages; contrast against the page is at least 4.5 for text.
const STYLE: &str = "<style>\
text{font:13px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#1f2328}.t{font-size:16px;font-weight:600}.s{fill:#59636e;font-size:12px}.e{text-anchor:end}.m{text-anchor:middle}\
.p{fill:#8b98a9}.o{fill:#b4501e}.f{fill:#c9d1d9}.g{stroke:#d1d9e0;stroke-width:1}.l{fill:none;stroke-width:2}\
.c0{stroke:#b4501e;fill:#b4501e}.c1{stroke:#3a6ea5;fill:#3a6ea5}.c2{stroke:#4c8c4a;fill:#4c8c4a}.c3{stroke:#8250a0;fill:#8250a0}polyline{fill:none!important}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.s{fill:#9198a1}.p{fill:#6e7a89}.o{fill:#f0883e}.f{fill:#3d444d}.g{stroke:#3d444d}\
.c0{stroke:#f0883e;fill:#f0883e}.c1{stroke:#79b8ff;fill:#79b8ff}.c2{stroke:#7ee787;fill:#7ee787}.c3{stroke:#d2a8ff;fill:#d2a8ff}}</style>";

pub struct Svg {
    width: f64,
    height: f64,
    body: String,
}

impl Svg {
    /// Whoever cannot see it hears the title.
    pub fn new(width: f64, height: f64, title: &str) -> Self {
        Self {
            width,
            height,
            body: format!("<title>{}</title>{STYLE}", escape(title)),
        }
    }

    pub fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        self.body.push_str(&format!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{}</text>",
            escape(text)
        ));
    }

    pub fn bar(&mut self, x: f64, y: f64, width: f64, height: f64, class: &str) {
        self.body.push_str(&format!("<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"2\" class=\"{class}\"/>"));
    }

    pub fn rule(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        self.body.push_str(&format!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"g\"/>"
        ));
    }

    /// A line with a dot at each point.
    pub fn line(&mut self, points: &[(f64, f64)], class: &str) {
        let path: Vec<String> = points
            .iter()
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        self.body.push_str(&format!(
            "<polyline points=\"{}\" class=\"l {class}\"/>",
            path.join(" ")
        ));
        for (x, y) in points {
            self.body.push_str(&format!(
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" class=\"{class}\"/>"
            ));
        }
    }

    pub fn finish(self) -> String {
        let Self {
            width,
            height,
            body,
        } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\" role=\"img\">{body}</svg>\n"
        )
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::Svg;

    #[test]
    fn what_somebody_is_called_cannot_end_the_picture() {
        let mut svg = Svg::new(10.0, 10.0, "a < b & c");
        svg.text(0.0, 0.0, "", "</svg><script>");
        let text = svg.finish();
        assert!(
            text.contains("a &lt; b &amp; c") && !text.contains("<script>"),
            "{text}"
        );
    }
}
