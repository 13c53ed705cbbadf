//! The results: every sample, and everything that a reader needs to judge them. A run of some workloads replaces those, and
//! leaves what is known of the others.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use super::{
    adapter::{Description, Who},
    goals, pictures,
    samples::Samples,
    table,
};

#[derive(Debug, Default, Deserialize, Serialize)]
pub struct Book {
    /// The machine and the server. What was found on another one is no neighbour of what is found here.
    pub place: Vec<String>,
    pub contestants: Vec<Contestant>,
    /// Who could not be built or started, and why.
    pub absent: Vec<Absent>,
    pub chapters: Vec<Chapter>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Contestant {
    pub adapter: String,
    pub description: Description,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Absent {
    pub name: String,
    pub why: String,
}

/// A workload as it was run.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Chapter {
    pub workload: String,
    /// Command, load, date.
    pub how: String,
    pub samples: Samples,
}

impl Book {
    pub fn new(place: Vec<String>) -> Self {
        Self {
            place,
            ..Self::default()
        }
    }

    /// With what an earlier run on the same machine and server has left.
    pub fn open(folder: &Path, place: Vec<String>) -> Self {
        let earlier = fs::read_to_string(folder.join("peers.json")).ok();
        let earlier: Option<Self> = earlier.and_then(|text| serde_json::from_str(&text).ok());
        match earlier {
            Some(book) if book.place == place => book,
            _ => Self::new(place),
        }
    }

    pub fn present(&mut self, whos: &[Who], absent: Vec<Absent>) {
        for who in whos {
            let contestant = Contestant {
                adapter: who.adapter.name.clone(),
                description: who.description.as_ref().clone(),
            };
            self.absent.retain(|known| known.name != contestant.adapter);
            match self
                .contestants
                .iter_mut()
                .find(|known| known.adapter == contestant.adapter)
            {
                Some(known) => *known = contestant,
                None => self.contestants.push(contestant),
            }
        }
        for one in absent {
            self.absent.retain(|known| known.name != one.name);
            self.absent.push(one);
        }
    }

    pub fn put(&mut self, chapter: Chapter) {
        match self
            .chapters
            .iter_mut()
            .find(|known| known.workload == chapter.workload)
        {
            Some(known) => *known = chapter,
            None => self.chapters.push(chapter),
        }
    }

    pub fn samples(&self, workload: &str) -> Option<&Samples> {
        self.chapters
            .iter()
            .find(|chapter| chapter.workload == workload)
            .map(|chapter| &chapter.samples)
    }

    /// Of `awa, best` that of `awa`.
    pub fn description(&self, who: &str) -> Option<&Description> {
        let adapter = who.rsplit_once(", ").map_or(who, |(adapter, _)| adapter);
        self.contestants
            .iter()
            .find(|known| known.adapter == adapter)
            .map(|known| &known.description)
    }

    pub fn write(&self, folder: &Path) -> Result<String> {
        fs::create_dir_all(folder)?;
        let text = table::markdown(self, &goals::all(self));
        fs::write(folder.join("peers.md"), &text)?;
        fs::write(
            folder.join("peers.json"),
            serde_json::to_string(self)? + "\n",
        )?;
        pictures::write(self, folder).context("pictures")?;
        Ok(text)
    }
}
