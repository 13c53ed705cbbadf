//! Tables for people: columns aligned, the last ones shortened to the terminal's width, plain text everywhere else.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::text;

/// Where the text of a column stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

const GAP: usize = 2;
/// A column that is made room in keeps at least this.
const NARROWEST: usize = 8;

#[derive(Debug)]
struct Column {
    heading: &'static str,
    side: Side,
    /// Never shortened.
    whole: bool,
}

/// Rows under headings.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Columns of text that may be shortened; the next two make some of them otherwise.
    pub(crate) fn new<const N: usize>(headings: [&'static str; N]) -> Self {
        let column = |heading| Column {
            heading,
            side: Side::Left,
            whole: false,
        };
        Self {
            columns: headings.into_iter().map(column).collect(),
            rows: Vec::new(),
        }
    }

    /// These columns hold numbers.
    pub(crate) fn right<const N: usize>(mut self, headings: [&'static str; N]) -> Self {
        for column in self
            .columns
            .iter_mut()
            .filter(|column| headings.contains(&column.heading))
        {
            (column.side, column.whole) = (Side::Right, true);
        }
        self
    }

    /// These columns are never shortened: somebody wants to paste them into the next command.
    pub(crate) fn whole<const N: usize>(mut self, headings: [&'static str; N]) -> Self {
        for column in self
            .columns
            .iter_mut()
            .filter(|column| headings.contains(&column.heading))
        {
            column.whole = true;
        }
        self
    }

    /// Cells may come from outside: they are made safe here.
    pub(crate) fn row<const N: usize>(&mut self, cells: [&str; N]) {
        debug_assert_eq!(N, self.columns.len(), "one cell a column");
        self.rows.push(cells.into_iter().map(text::line).collect());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The text, with a line end after each row.
    pub(crate) fn render(&self, width: Option<usize>) -> String {
        let widths = self.widths(width);
        let mut out = String::new();
        let headings: Vec<String> = self
            .columns
            .iter()
            .map(|column| column.heading.to_owned())
            .collect();
        for row in std::iter::once(&headings).chain(&self.rows) {
            let mut line = String::new();
            for ((cell, width), column) in row.iter().zip(&widths).zip(&self.columns) {
                let cell = shorten(cell, *width);
                let pad = " ".repeat(width.saturating_sub(cell.width()));
                match column.side {
                    Side::Left => line.extend([cell.as_str(), &pad]),
                    Side::Right => line.extend([pad.as_str(), &cell]),
                }
                line.push_str(&" ".repeat(GAP));
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }

    /// As wide as the content; if that is too much, the widest column that may gives way, again and again.
    fn widths(&self, limit: Option<usize>) -> Vec<usize> {
        let mut widths: Vec<usize> = (0..self.columns.len())
            .map(|nth| {
                let cells = self.rows.iter().map(|row| row[nth].width());
                cells
                    .max()
                    .unwrap_or(0)
                    .max(self.columns[nth].heading.width())
            })
            .collect();
        let Some(limit) = limit else { return widths };
        let gaps = GAP * widths.len().saturating_sub(1);
        while widths.iter().sum::<usize>() + gaps > limit {
            let may = widths
                .iter_mut()
                .zip(&self.columns)
                .filter(|(_, column)| !column.whole);
            match may.map(|(width, _)| width).max() {
                Some(widest) if *widest > NARROWEST => *widest -= 1,
                _ => break,
            }
        }
        widths
    }
}

fn shorten(cell: &str, width: usize) -> String {
    if cell.width() <= width {
        return cell.to_owned();
    }
    let mut room = width.saturating_sub(1);
    let mut out = String::new();
    for c in cell.chars() {
        let wide = c.width().unwrap_or(0);
        if wide > room {
            break;
        }
        room -= wide;
        out.push(c);
    }
    out.push('…');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(["NAME", "BEHIND", "REASON"]).right(["BEHIND"]);
        table.row(["ledger", "7", "a reason that goes on and on"]);
        table.row(["東京", "12000", ""]);
        table
    }

    #[test]
    fn columns_are_aligned_by_what_is_seen() {
        let expected = "\
NAME    BEHIND  REASON
ledger       7  a reason that goes on and on
東京     12000
";
        assert_eq!(table().render(None), expected);
    }

    #[test]
    fn what_is_to_be_pasted_stays_whole() {
        let table = table().whole(["REASON"]).render(Some(20));
        assert!(table.contains("a reason that goes on and on"), "{table}");
    }

    #[test]
    fn on_a_narrow_terminal_the_widest_column_gives_way() {
        let expected = "\
NAME    BEHIND  REASON
ledger       7  a reason t…
東京     12000
";
        assert_eq!(table().render(Some(27)), expected);
    }
}
