//! The results as Markdown.

use super::{
    book::{Book, Chapter},
    goals::Goal,
    layout::{Column, LAYOUTS, Layout},
    samples::Samples,
};
use crate::report::spread;

/// What all ratios are against.
pub const BASE: &str = "outlast, best";

pub fn markdown(book: &Book, goals: &[Goal]) -> String {
    let mut out = String::from(
        "# Outlast beside others\n\nWritten by `./run bench peers`; what is measured, and how, is in [bench/README.md](../README.md). Medians [least–greatest] of the rounds. `× outlast` is the median of the ratios to `outlast, best` of the same round: above 1 is more than outlast. What outlast does not win, and what it aimed at and did not reach, is said like the rest.\n",
    );
    if book
        .chapters
        .iter()
        .any(|chapter| chapter.workload == "drain")
    {
        out.push_str("\n![Drain of no-ops](drain.svg)\n\n![A business transaction with a unit against one without](enqueue.svg)\n\n![Commit to start](latency.svg)\n");
    }
    for fact in &book.place {
        out.push_str(&format!("\n- {fact}"));
    }
    out.push('\n');
    out.push_str(&aims(goals));
    for layout in LAYOUTS {
        if let Some(chapter) = book
            .chapters
            .iter()
            .find(|chapter| chapter.workload == layout.workload)
        {
            out.push_str(&one(layout, chapter, goals));
        }
    }
    out.push_str(&contestants(book));
    out
}

fn aims(goals: &[Goal]) -> String {
    let mut out =
        String::from("\n## What was aimed at\n\n| workload | aim | found | |\n|---|---|---|---|\n");
    for goal in goals {
        let reached = if goal.reached {
            "reached"
        } else {
            "**missed**"
        };
        out.push_str(&format!(
            "| {} | {} | {} | {reached} |\n",
            goal.workload, goal.aim, goal.found
        ));
    }
    out
}

fn one(layout: &Layout, chapter: &Chapter, goals: &[Goal]) -> String {
    let mut out = format!("\n## {}\n\n{}\n\n", layout.title, layout.lead);
    out.push_str(&format!("{}\n", chapter.how));
    let samples = &chapter.samples;
    let mut silent: Vec<(String, String)> = Vec::new();
    for case in samples.cases() {
        let mut rows = Vec::new();
        for who in samples.whos() {
            match samples.median(&who, &case, layout.main.number) {
                Some(value) => rows.push((value, who)),
                None if samples.has(&who, &case) => {
                    let about = if case.is_empty() {
                        who.clone()
                    } else {
                        format!("{who} ({case})")
                    };
                    // What there is of it stands in the row all the same, such as a unit that nobody took over.
                    if layout
                        .columns
                        .iter()
                        .any(|column| samples.median(&who, &case, column.number).is_some())
                    {
                        rows.push((f64::NAN, who));
                    } else {
                        silent.push((about, samples.words(&who, &case)));
                    }
                }
                None => {}
            }
        }
        if rows.is_empty() {
            continue;
        }
        rows.sort_by(|a, b| {
            if layout.more_is_better {
                b.0.total_cmp(&a.0)
            } else {
                a.0.total_cmp(&b.0)
            }
        });
        if !case.is_empty() {
            out.push_str(&format!("\n**{case}**\n"));
        }
        out.push_str(&rows_of(layout, samples, &case, &rows));
    }
    for (who, words) in silent {
        out.push_str(&format!("\n- {who}: {words}"));
    }
    let missed = goals
        .iter()
        .filter(|goal| goal.workload == layout.workload && !goal.reached);
    for goal in missed {
        out.push_str(&format!(
            "\nNot reached here: {}; found: {}.\n",
            goal.aim, goal.found
        ));
    }
    out.trim_end().to_owned() + "\n"
}

fn rows_of(layout: &Layout, samples: &Samples, case: &str, rows: &[(f64, String)]) -> String {
    let told = |column: &&Column| {
        rows.iter()
            .any(|(_, who)| samples.median(who, case, column.number).is_some())
    };
    let columns: Vec<&Column> = layout.columns.iter().filter(told).collect();
    let words = rows
        .iter()
        .any(|(_, who)| !samples.words(who, case).is_empty());
    let mut out = format!("\n| contestant | {} | × outlast |", layout.main.head);
    for column in &columns {
        out.push_str(&format!(" {} |", column.head));
    }
    out.push_str(if words {
        " |\n|---|--:|--:|"
    } else {
        "\n|---|--:|--:|"
    });
    out.push_str(&"--:|".repeat(columns.len()));
    out.push_str(if words { "---|\n" } else { "\n" });
    for (_, who) in rows {
        let mine = if who.starts_with("outlast") {
            format!("**{who}**")
        } else {
            who.clone()
        };
        let main = range(
            samples.values(who, case, layout.main.number),
            layout.main.digits,
        );
        let ratios = samples.ratios(layout.main.number, (who, case), (BASE, case));
        let against = if who == BASE {
            "1".to_owned()
        } else {
            range(ratios, 2)
        };
        out.push_str(&format!("| {mine} | {main} | {against} |"));
        for column in &columns {
            let value = samples.median(who, case, column.number);
            out.push_str(&format!(
                " {} |",
                value.map_or("–".to_owned(), |value| number(value, column.digits))
            ));
        }
        if words {
            out.push_str(&format!(" {} |", samples.words(who, case)));
        }
        out.push('\n');
    }
    out
}

fn range(values: Vec<f64>, digits: usize) -> String {
    match values[..] {
        [] => "–".to_owned(),
        [one] => number(one, digits),
        _ => {
            let (median, least, greatest) = spread(values);
            format!(
                "{} [{}–{}]",
                number(median, digits),
                number(least, digits),
                number(greatest, digits)
            )
        }
    }
}

/// With commas between thousands.
pub fn number(value: f64, digits: usize) -> String {
    let text = format!("{:.digits$}", value.abs());
    let (whole, rest) = text
        .split_once('.')
        .map_or((text.as_str(), String::new()), |(whole, rest)| {
            (whole, format!(".{rest}"))
        });
    let mut out = String::new();
    for (nth, digit) in whole.chars().enumerate() {
        if nth > 0 && (whole.len() - nth).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    let zero = text.chars().all(|c| matches!(c, '0' | '.'));
    let sign = if value < 0.0 && !zero { "−" } else { "" };
    format!("{sign}{out}{rest}")
}

fn contestants(book: &Book) -> String {
    let mut out = String::from(
        "\n## The contestants\n\nFenced: a worker that lost its lease cannot complete. History: finished units stay to be seen. Transactional: a unit can be part of the caller's transaction.\n\n| contestant | version | language | fenced | history | transactional | a stale completion |\n|---|---|---|---|---|---|---|\n",
    );
    let yes = |is: bool| if is { "yes" } else { "no" };
    for one in &book.contestants {
        let d = &one.description;
        out.push_str(&format!(
            "| {} | {} | {} | {} | {} | {} | {} |\n",
            one.adapter,
            d.version,
            d.language,
            yes(d.fenced),
            yes(d.history),
            yes(d.transactional),
            d.stale
        ));
    }
    out.push_str("\nWhat is set in each profile:\n\n");
    for one in &book.contestants {
        let d = &one.description;
        out.push_str(&format!(
            "- {}, default: {}\n- {}, best: {}\n",
            one.adapter, d.default, one.adapter, d.best
        ));
        for (profile, set) in &d.further {
            out.push_str(&format!("- {}, {profile}: {set}\n", one.adapter));
        }
    }
    for absent in &book.absent {
        out.push_str(&format!(
            "- {} did not take part: {}\n",
            absent.name, absent.why
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(number(1_234_567.4, 0), "1,234,567");
        assert_eq!(number(999.96, 1), "1,000.0");
        assert_eq!(number(-0.001, 2), "0.00");
        assert_eq!(number(-12.5, 1), "−12.5");
    }
}
