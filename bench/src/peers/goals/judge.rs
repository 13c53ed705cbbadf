//! Who is compared with whom.

use super::Goal;
use crate::{
    peers::{
        book::Book,
        stage::{OUR_JOBS, OURS},
        table::{BASE, number},
    },
    report::spread,
};

/// In the names of `adapters.toml`: what is no peer.
const NO_PEERS: [&str; 3] = [OURS, OUR_JOBS, "by-hand"];

pub struct Judge<'a> {
    pub book: &'a Book,
}

impl Judge<'_> {
    pub fn median(&self, workload: &str, who: &str, case: &str, number: &str) -> Option<f64> {
        self.book.samples(workload)?.median(who, case, number)
    }

    pub fn ratio(
        &self,
        workload: &str,
        number: &str,
        mine: (&str, &str),
        base: (&str, &str),
    ) -> Option<f64> {
        let ratios = self.book.samples(workload)?.ratios(number, mine, base);
        (!ratios.is_empty()).then(|| spread(ratios).0)
    }

    pub fn peers(&self, workload: &str) -> Vec<String> {
        let whos = self
            .book
            .samples(workload)
            .map(|samples| samples.whos())
            .unwrap_or_default();
        let peer = |who: &String| {
            let adapter = who.rsplit_once(", ").map_or("", |(adapter, _)| adapter);
            !NO_PEERS.contains(&adapter)
        };
        whos.into_iter().filter(peer).collect()
    }

    pub fn fastest(&self, workload: &str, fits: impl Fn(&str) -> bool) -> Option<String> {
        let rated = self.peers(workload).into_iter().filter(|who| fits(who));
        let rated = rated.filter_map(|who| Some((self.median(workload, &who, "", "rate")?, who)));
        rated.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, who)| who)
    }

    pub fn plain(&self, workload: &'static str, aim: &str, found: String, reached: bool) -> Goal {
        Goal {
            workload,
            aim: aim.to_owned(),
            found,
            reached,
        }
    }

    pub fn times(
        &self,
        workload: &'static str,
        what: &str,
        name: &str,
        peer: Option<&str>,
        least: f64,
    ) -> Option<Goal> {
        self.times_of(BASE, workload, what, name, peer, least)
    }

    /// As [`Judge::times`], of another one than `outlast, best`.
    pub fn times_of(
        &self,
        who: &str,
        workload: &'static str,
        what: &str,
        name: &str,
        peer: Option<&str>,
        least: f64,
    ) -> Option<Goal> {
        let ratio = self.ratio(workload, name, (who, ""), (peer?, ""))?;
        let aim = format!("at least {least} × {what}");
        Some(self.plain(
            workload,
            &aim,
            format!("{} × {}", number(ratio, 2), peer?),
            ratio >= least,
        ))
    }

    pub fn most(
        &self,
        workload: &'static str,
        what: &str,
        name: &str,
        peer: Option<&str>,
        most: f64,
    ) -> Option<Goal> {
        let ratio = self.ratio(workload, name, (BASE, ""), (peer?, ""))?;
        let aim = format!("at most {most} of {what}");
        Some(self.plain(
            workload,
            &aim,
            format!("{} of {}", number(ratio, 2), peer?),
            ratio <= most,
        ))
    }

    /// Against every peer, in every profile.
    pub fn first(
        &self,
        workload: &'static str,
        case: &str,
        name: &str,
        aim: &str,
        more: bool,
    ) -> Option<Goal> {
        let mine = self.median(workload, BASE, case, name)?;
        let others = self
            .peers(workload)
            .into_iter()
            .filter_map(|who| Some((self.median(workload, &who, case, name)?, who)));
        let (best, who) = if more {
            others.max_by(|a, b| a.0.total_cmp(&b.0))
        } else {
            others.min_by(|a, b| a.0.total_cmp(&b.0))
        }?;
        let reached = if more { mine >= best } else { mine <= best };
        Some(self.plain(
            workload,
            aim,
            format!("{} against {} of {who}", number(mine, 2), number(best, 2)),
            reached,
        ))
    }

    pub fn least_with_history(&self, what: &str, name: &str) -> Option<Goal> {
        let mine = self.median("drain", BASE, "", name)?;
        let keeps = |who: &String| self.book.description(who).is_some_and(|d| d.history);
        let others = self.peers("drain").into_iter().filter(keeps);
        let others = others.filter_map(|who| Some((self.median("drain", &who, "", name)?, who)));
        let (best, who) = others.min_by(|a, b| a.0.total_cmp(&b.0))?;
        let aim = format!("the lowest {what} of all that keep history");
        Some(self.plain(
            "drain",
            &aim,
            format!("{} against {} of {who}", number(mine, 1), number(best, 1)),
            mine <= best,
        ))
    }
}
