//! Names of topics and subscriptions, short or whole.

/// What is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Topic,
    Subscription,
}

impl What {
    fn folder(self) -> &'static str {
        match self {
            Self::Topic => "topics",
            Self::Subscription => "subscriptions",
        }
    }
}

/// The whole name, `projects/P/topics/NAME`, of a short or a whole one.
pub(crate) fn whole(what: What, project: &str, name: &str) -> Result<String, String> {
    let folder = what.folder();
    let id = match name.strip_prefix("projects/") {
        None => name,
        Some(rest) => {
            let mut parts = rest.split('/');
            let parts = (parts.next(), parts.next(), parts.next(), parts.next());
            match parts {
                (Some(project), Some(kind), Some(id), None)
                    if is_project(project) && kind == folder =>
                {
                    id
                }
                _ => return Err(format!("`{name}` is not projects/PROJECT/{folder}/NAME")),
            }
        }
    };
    check(id)?;
    Ok(match name.starts_with("projects/") {
        true => name.to_owned(),
        false => format!("projects/{project}/{folder}/{name}"),
    })
}

/// The last part.
pub(crate) fn short(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

fn check(id: &str) -> Result<(), String> {
    let wrong = |why: &str| {
        let shown = outlast_core::text::clean(id, 100);
        Err(format!("`{shown}` is no name for Pub/Sub: {why}"))
    };
    if !(3..=255).contains(&id.len()) {
        return wrong("3 to 255 characters");
    }
    if !id.as_bytes()[0].is_ascii_alphabetic() {
        return wrong("it begins with a letter");
    }
    if !id.bytes().all(is_allowed) {
        return wrong("letters, digits and -_.~+% only");
    }
    if id.starts_with("goog") {
        return wrong("names that begin with goog are Google's");
    }
    Ok(())
}

pub(crate) fn is_allowed(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"-_.~+%".contains(&b)
}

/// Ids of projects, also the old ones with a domain before them (`example.com:name`).
pub(crate) fn is_project(id: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.:".contains(&b);
    !id.is_empty() && id.len() <= 100 && id.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_or_whole_and_of_its_own_kind() {
        let topic = |name: &str| whole(What::Topic, "p-1", name);
        assert_eq!(topic("events"), Ok("projects/p-1/topics/events".into()));
        assert_eq!(
            topic("projects/other/topics/a.b"),
            Ok("projects/other/topics/a.b".into())
        );
        assert_eq!(
            whole(What::Subscription, "p-1", "mail~1"),
            Ok("projects/p-1/subscriptions/mail~1".into())
        );
        let long = "a".repeat(256);
        for bad in [
            "",
            "ab",
            &long,
            "1abc",
            "a b c",
            "a/b",
            "événement",
            "google-events",
            "projects/p/subscriptions/abc",
            "projects/p/topics/abc/d",
            "projects//topics/abc",
            "projects/p/topics/1",
        ] {
            assert!(topic(bad).is_err(), "{bad}");
        }
        assert_eq!(short("projects/p/topics/abc"), "abc");
    }
}
