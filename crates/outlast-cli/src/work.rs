//! What jobs, commands and entities have in common here: nobody of this id, a decision that is answered in one word, a name that is paused.

mod pause;

pub(crate) use pause::{Pause, Resume};

use serde::Serialize;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::{
    args::Global,
    database::{Database, Given},
    exit::Exit,
    out::text,
    problem::{Answer, Problem},
};

/// Which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Job,
    Command,
    Entity,
}

#[derive(Serialize)]
struct Decided<'a> {
    id: Uuid,
    outcome: &'a str,
}

#[derive(Serialize)]
struct Paused<'a> {
    name: &'a str,
    state: &'static str,
    reason: Option<&'a str>,
    changed: bool,
}

impl Work {
    /// One of them.
    pub(crate) fn one(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::Command => "command",
            Self::Entity => "entity",
        }
    }

    /// Several, and the command that lists them.
    pub(crate) fn many(self) -> &'static str {
        match self {
            Self::Job => "jobs",
            Self::Command => "commands",
            Self::Entity => "entities",
        }
    }

    /// There is none of this id.
    pub(crate) fn absent(self, what: String) -> Problem {
        let (one, many) = (self.one(), self.many());
        let none = Problem::new(Exit::Found, what, format!("there is no such {one}"));
        let kept = match self {
            Self::Entity => "those that nobody marks are forgotten after retention.job",
            _ => "those that ended are kept as long as retention.job says",
        };
        none.next(format!("`outlast {many} ls` lists them; {kept}"))
    }

    /// Asks by a statement that answers in one word, and says what that means: done, or why not.
    pub(crate) async fn decide(
        self,
        global: &Global,
        (id, what): (Uuid, String),
        (sql, given): (&str, &[Given<'_>]),
        means: impl FnOnce(&str) -> Result<String, String>,
    ) -> Answer {
        let out = global.out();
        let database = Database::to_write(global).await?;
        let rows = database.rows(&what, sql, given).await?;
        let said = rows.first().map_or("absent", |row| row.get("said"));
        if said == "absent" {
            return Err(self.absent(what));
        }
        let sentence = match means(said) {
            Ok(sentence) => sentence,
            Err(why) => {
                let not = Problem::new(Exit::Found, what, why);
                let many = self.many();
                return Err(not.next(format!("`outlast {many} show {id}` says where it stands")));
            }
        };
        if out.json {
            out.object(&Decided { id, outcome: said })?;
        } else {
            out.say(&sentence)?;
        }
        Ok(Exit::Done)
    }

    /// Pauses a name for a reason; without one it goes on.
    pub(crate) async fn set_paused(
        self,
        global: &Global,
        name: &str,
        reason: Option<&str>,
        actor: Option<&str>,
    ) -> Answer {
        let out = global.out();
        let (shown, many) = (text::line(name), self.many());
        let (verb, state) = match reason {
            Some(_) => ("pause", "paused"),
            None => ("resume", "active"),
        };
        // Where they are claimed, commands and entities have names of their own.
        let claimed_as = match self {
            Self::Job => name.to_owned(),
            Self::Command => outlast_postgres::store::command_queue(name),
            Self::Entity => outlast_postgres::store::entity_queue(name),
        };
        let database = Database::to_write(global).await?;
        let rows = database
            .rows(
                format!("{verb} {many} {shown}"),
                include_str!("../sql/job/pause.sql"),
                &[
                    (&claimed_as, Type::TEXT),
                    (&reason, Type::TEXT),
                    (&actor, Type::TEXT),
                ],
            )
            .await?;
        let changed = rows.first().is_some_and(|row| row.get("changed"));
        if out.json {
            out.object(&Paused {
                name,
                state,
                reason,
                changed,
            })?;
        } else if changed {
            out.say(&format!("{many} {shown} are {state}"))?;
        } else {
            out.say(&format!("{many} {shown} were {state} already"))?;
        }
        Ok(Exit::Done)
    }
}
