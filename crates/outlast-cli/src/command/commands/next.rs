//! What can be done about a command, as it stands: sentences for people, each with the command that does it.

use uuid::Uuid;

/// How it stands, as far as that decides what comes next.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stands<'a> {
    pub(super) id: Uuid,
    pub(super) name: &'a str,
    pub(super) key: &'a str,
    pub(super) tenant: &'a str,
    pub(super) account: &'a str,
    pub(super) state: &'a str,
    /// What is done with it when it is due.
    pub(super) next: &'a str,
    pub(super) class: Option<&'a str>,
    pub(super) provider_key: &'a str,
    pub(super) due_in_seconds: Option<i64>,
    /// It waits for a person.
    pub(super) is_incident: bool,
    /// The other end that was told of it.
    pub(super) contradicted: Option<&'a str>,
    /// Who has its key of exclusion.
    pub(super) held_by: Option<Uuid>,
    pub(super) is_blocked: bool,
    /// Its name is paused.
    pub(super) is_paused: bool,
    /// Its account is; for so long, or until a person resumes it.
    pub(super) account_paused: Option<Option<i64>>,
    /// Somebody has asked to withdraw it.
    pub(super) is_cancelled: bool,
}

impl Stands<'_> {
    /// One sentence each; none: it has ended, and that is that.
    pub(super) fn next(&self) -> Vec<String> {
        let mut next = Vec::new();
        let id = self.id;
        if let Some(told) = self.contradicted {
            next.push(format!(
                "it was told to be {told}, and nothing moved: find out at the provider which is true, mend what followed from the \
                 other, then: outlast commands resolve {id} --noted --reason HOW_YOU_KNOW"
            ));
        }
        if self.is_incident {
            next.extend(self.incident());
        } else {
            next.extend(self.machines());
        }
        if matches!(self.state, "waiting" | "running" | "pending" | "unknown") {
            next.extend(self.in_its_way());
        }
        next
    }

    /// What a person decides.
    fn incident(&self) -> Vec<String> {
        let (id, key) = (self.id, self.provider_key);
        let resolve = format!("outlast commands resolve {id}");
        match (self.state, self.class) {
            ("waiting", Some("contradicted")) => vec![
                format!(
                    "two ends of it were told before it was accepted; ask the provider for {key}, then one of:"
                ),
                format!("{resolve} --settled --reference R --reason HOW_YOU_KNOW"),
                format!("{resolve} --rejected --reason HOW_YOU_KNOW"),
                format!("{resolve} --not-applied --reason HOW_YOU_KNOW     it is sent"),
            ],
            ("waiting", _) => vec![
                format!(
                    "nothing of it had an effect; when the cause is mended: outlast commands retry {id}"
                ),
                format!("or withdraw it: outlast commands cancel {id} --reason WHY"),
            ],
            ("pending", _) => vec![
                format!(
                    "the provider took it and has not settled it; ask it for {key}, then one of:"
                ),
                format!("{resolve} --settled --reference R --reason HOW_YOU_KNOW"),
                format!("{resolve} --rejected --reason HOW_YOU_KNOW"),
                format!("{resolve} --abandoned --reason WHY"),
            ],
            _ => vec![
                format!("it may have had an effect; ask the provider for {key}, then one of:"),
                format!("{resolve} --settled --reference R --reason HOW_YOU_KNOW"),
                format!("{resolve} --rejected --reason HOW_YOU_KNOW"),
                format!("{resolve} --not-applied --reason HOW_YOU_KNOW     it is sent again"),
                format!("{resolve} --abandoned --reason WHY"),
            ],
        }
    }

    /// What is done without a person.
    fn machines(&self) -> Option<String> {
        let when = match self.due_in_seconds {
            Some(seconds) if seconds > 0 => format!("in {seconds} s"),
            _ => "as soon as a worker has room".to_owned(),
        };
        let told = || {
            let tenant = match self.tenant {
                "" => String::new(),
                tenant => format!(" --tenant {tenant}"),
            };
            format!(
                "its end can be told: outlast commands settle {} {}{tenant} --settled --reference R",
                self.name, self.key
            )
        };
        match (self.state, self.next) {
            (_, _) if self.is_blocked => None,
            ("waiting", _) => Some(format!("nothing: it is sent {when}")),
            ("running", _) => Some(
                "nothing: it is on its way, and its answer or the end of its worker decides".into(),
            ),
            ("pending", "poll") if self.due_in_seconds.is_some() => Some(format!(
                "nothing: the provider is asked {when}, if it can be; {}",
                told()
            )),
            ("pending", _) => Some(format!("nothing: the provider settles it; {}", told())),
            ("unknown", "look up") => {
                Some(format!("nothing: the provider is asked {when}; {}", told()))
            }
            ("unknown", _) => Some(format!(
                "nothing: it is sent again, with the same key, {when}; {}",
                told()
            )),
            _ => None,
        }
    }

    /// What keeps it from going on.
    fn in_its_way(&self) -> Vec<String> {
        let mut ways = Vec::new();
        if self.is_blocked {
            ways.push(match self.held_by {
                Some(holder) => format!(
                    "another command has its key of exclusion, and keeps it to its end: outlast commands show {holder}"
                ),
                None => "it waits for its key of exclusion".into(),
            });
        }
        if self.is_paused {
            ways.push(format!(
                "commands of its name are paused: outlast commands resume {}",
                self.name
            ));
        }
        if let Some(until) = self.account_paused {
            let account = self.account;
            ways.push(match until {
                Some(seconds) => format!(
                    "its account {account} is left alone for {seconds} s; at once: outlast accounts resume {account}"
                ),
                None => format!("its account {account} is paused: outlast accounts resume {account}"),
            });
        }
        if self.is_cancelled {
            ways.push(
                "somebody has asked to withdraw it: it goes if it turns out to have had no effect"
                    .into(),
            );
        }
        ways
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stands(state: &'static str) -> Stands<'static> {
        Stands {
            name: "pay",
            key: "k",
            state,
            next: "send",
            provider_key: "p",
            account: "acme",
            ..Stands::default()
        }
    }

    #[test]
    fn what_may_have_had_an_effect_is_never_offered_a_retry() {
        for state in ["unknown", "pending"] {
            let next = Stands {
                is_incident: true,
                ..stands(state)
            };
            let said = next.next().join("\n");
            assert!(!said.contains(" retry "), "{said}");
            assert!(said.contains("--settled --reference R"), "{said}");
        }
        let waits = Stands {
            is_incident: true,
            class: Some("permanent"),
            ..stands("waiting")
        };
        assert!(waits.next().join("\n").contains(" retry "));
        let told_twice = Stands {
            class: Some("contradicted"),
            ..waits
        };
        assert!(!told_twice.next().join("\n").contains(" retry "));
    }

    #[test]
    fn an_end_needs_nothing_unless_another_one_was_told() {
        for state in ["settled", "rejected", "obsolete", "cancelled", "abandoned"] {
            assert_eq!(stands(state).next(), Vec::<String>::new(), "{state}");
            let told = Stands {
                contradicted: Some("rejected"),
                ..stands(state)
            };
            assert!(told.next()[0].contains("--noted"), "{state}");
        }
    }

    #[test]
    fn everything_that_keeps_one_from_going_on_is_named_with_what_ends_it() {
        let held = Stands {
            is_blocked: true,
            held_by: Some(Uuid::from_u128(7)),
            is_paused: true,
            account_paused: Some(None),
            is_cancelled: true,
            ..stands("waiting")
        };
        let said = held.next().join("\n");
        for way in [
            "outlast commands show 00000000-0000-0000-0000-000000000007",
            "outlast commands resume pay",
            "outlast accounts resume acme",
            "asked to withdraw it",
        ] {
            assert!(said.contains(way), "{way} is not in {said}");
        }
        assert!(!said.contains("it is sent"), "{said}");
    }
}
