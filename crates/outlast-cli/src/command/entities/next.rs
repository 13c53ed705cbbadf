//! What can be done about an entity, as it stands: sentences for people, each with the command that does it.

use uuid::Uuid;

use super::Standing;

/// What stands in its way besides.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hindered<'a> {
    /// Its name is paused.
    pub(super) is_paused: bool,
    /// Who has its key of exclusion, and of what kind that is.
    pub(super) held_by: Option<Uuid>,
    pub(super) held_by_kind: Option<&'a str>,
}

impl Standing<'_> {
    /// One sentence each; none: it is converged, and that is that.
    pub(super) fn next(&self, hindered: &Hindered<'_>) -> Vec<String> {
        let mut next = Vec::new();
        let Some(id) = self.id else {
            next.push(
                "nobody has taken its marks yet: start a worker that reconciles entities of its name"
                    .to_owned(),
            );
            return next;
        };
        if self.late_refs > 0 {
            next.push(format!(
                "a runner that had lost its lease had made the late ones: look whether they are still needed, remove them there if not, \
                 then: outlast entities note {id} --reason WHAT_YOU_FOUND"
            ));
        }
        if self.incident_at.is_some() {
            next.push(format!(
                "when its cause is mended: outlast entities retry {id}"
            ));
            next.push(format!(
                "or give up what was wanted: outlast entities abandon {id} --reason WHY"
            ));
        } else if self.state == "waiting" && !self.blocked && !hindered.is_paused {
            next.push(match self.due_in_seconds {
                Some(seconds) if seconds > 0 => {
                    format!("nothing: it runs in {seconds} s; at once: outlast entities retry {id}")
                }
                _ => "nothing: it runs as soon as a worker has room".to_owned(),
            });
        }
        if self.blocked {
            next.push(match (hindered.held_by, hindered.held_by_kind) {
                (Some(holder), Some(kind)) => {
                    let many = if kind == "e" { "entities" } else { "commands" };
                    format!(
                        "another one has its key of exclusion, and keeps it to its end: outlast {many} show {holder}"
                    )
                }
                (Some(holder), None) => format!(
                    "an old runner has its key of exclusion, until it lets it go or its lease {holder} lapses"
                ),
                (None, _) => "it waits for its key of exclusion".to_owned(),
            });
        }
        if hindered.is_paused && self.state == "waiting" {
            next.push(format!(
                "entities of its name are paused: outlast entities resume {}",
                self.name
            ));
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stands(state: &'static str) -> Standing<'static> {
        Standing {
            id: Some(Uuid::from_u128(7)),
            name: "crm",
            tenant: "",
            key: "a",
            state,
            class: None,
            reason: None,
            attempt: 0,
            accepted_at: "",
            marked_at: "",
            due_in_seconds: None,
            converged_at: None,
            incident_at: None,
            gone: false,
            again: false,
            has_refs: false,
            unfolded: 0,
            tombstones: 0,
            late_refs: 0,
            blocked: false,
        }
    }

    #[test]
    fn what_is_converged_or_runs_needs_nothing_but_what_lies_with_a_person() {
        for state in ["converged", "running"] {
            let mut entity = stands(state);
            assert_eq!(entity.next(&Hindered::default()), Vec::<String>::new());
            entity.late_refs = 1;
            let said = entity.next(&Hindered::default()).join("\n");
            assert!(said.contains("outlast entities note 00000000"), "{said}");
        }
    }

    #[test]
    fn everything_that_keeps_one_from_going_on_is_named_with_what_ends_it() {
        let stopped = Standing {
            incident_at: Some("t"),
            ..stands("waiting")
        };
        let said = stopped.next(&Hindered::default()).join("\n");
        assert!(said.contains("entities retry") && said.contains("entities abandon"));
        let blocked = Standing {
            blocked: true,
            ..stands("waiting")
        };
        for (kind, show) in [
            (Some("e"), "entities show"),
            (Some("c"), "commands show"),
            (None, "old runner"),
        ] {
            let hindered = Hindered {
                is_paused: true,
                held_by: Some(Uuid::from_u128(9)),
                held_by_kind: kind,
            };
            let said = blocked.next(&hindered).join("\n");
            assert!(
                said.contains(show) && said.contains("outlast entities resume crm"),
                "{said}"
            );
            assert!(!said.contains("it runs"), "{said}");
        }
        let unseen = Standing {
            id: None,
            ..stands("waiting")
        };
        assert!(unseen.next(&Hindered::default())[0].contains("start a worker"));
    }
}
