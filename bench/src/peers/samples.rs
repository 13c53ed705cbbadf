//! What was found: a sample for each contestant, case and round, kept whole in the results.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::report::spread;

pub type Numbers = BTreeMap<String, f64>;

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Sample {
    pub who: String,
    /// Which variant of the workload; empty where there is one.
    pub case: String,
    pub round: usize,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub numbers: Numbers,
    /// What numbers cannot say, such as why there are none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub words: String,
}

/// Everything about one workload.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Samples(pub Vec<Sample>);

impl Samples {
    /// Contestants in the order in which they appear.
    pub fn whos(&self) -> Vec<String> {
        distinct(self.0.iter().map(|sample| &sample.who))
    }

    pub fn cases(&self) -> Vec<String> {
        distinct(self.0.iter().map(|sample| &sample.case))
    }

    fn of<'a>(&'a self, who: &'a str, case: &'a str) -> impl Iterator<Item = &'a Sample> {
        self.0
            .iter()
            .filter(move |sample| sample.who == who && sample.case == case)
    }

    pub fn has(&self, who: &str, case: &str) -> bool {
        self.of(who, case).next().is_some()
    }

    pub fn values(&self, who: &str, case: &str, number: &str) -> Vec<f64> {
        self.of(who, case)
            .filter_map(|sample| sample.numbers.get(number).copied())
            .collect()
    }

    pub fn median(&self, who: &str, case: &str, number: &str) -> Option<f64> {
        let values = self.values(who, case, number);
        (!values.is_empty()).then(|| spread(values).0)
    }

    pub fn words(&self, who: &str, case: &str) -> String {
        let words = self.of(who, case).map(|sample| &sample.words);
        distinct(words.filter(|words| !words.is_empty())).join("; ")
    }

    /// The same number of both in the same round, one divided by the other.
    pub fn ratios(
        &self,
        number: &str,
        (who, case): (&str, &str),
        (base, base_case): (&str, &str),
    ) -> Vec<f64> {
        let base: BTreeMap<usize, f64> = self
            .of(base, base_case)
            .filter_map(|sample| Some((sample.round, *sample.numbers.get(number)?)))
            .collect();
        self.of(who, case)
            .filter_map(|sample| Some(sample.numbers.get(number)? / base.get(&sample.round)?))
            .filter(|ratio| ratio.is_finite())
            .collect()
    }
}

fn distinct<'a>(all: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut seen: Vec<String> = Vec::new();
    for one in all {
        if !seen.contains(one) {
            seen.push(one.clone());
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::{Numbers, Sample, Samples};

    fn sample(who: &str, round: usize, rate: Option<f64>) -> Sample {
        Sample {
            who: who.to_owned(),
            case: String::new(),
            round,
            numbers: rate
                .map(|rate| ("rate".to_owned(), rate))
                .into_iter()
                .collect::<Numbers>(),
            words: if rate.is_none() {
                "failed: x".to_owned()
            } else {
                String::new()
            },
        }
    }

    #[test]
    fn a_ratio_is_of_one_round_and_a_failed_round_has_none() {
        let samples = Samples(vec![
            sample("a", 0, Some(10.0)),
            sample("b", 0, Some(5.0)),
            sample("a", 1, Some(100.0)),
            sample("b", 1, None),
            sample("a", 2, Some(20.0)),
            sample("b", 2, Some(4.0)),
        ]);
        assert_eq!(samples.ratios("rate", ("a", ""), ("b", "")), [2.0, 5.0]);
        assert_eq!(samples.words("b", ""), "failed: x");
        assert_eq!(samples.median("b", "", "rate"), Some(5.0));
    }
}
