use super::*;

/// Two bookings and a webhook, all handled; one refused, one given up, one cut off without a trace.
fn fair() -> Facts {
    let book = |name: &str| Entry::Sent {
        request: name.into(),
        intent: Intent::Book {
            guest: "Zoë \"Z\"".into(),
            total: "1.50".into(),
        },
    };
    let answered = |name: &str, status| Entry::Answered {
        request: name.into(),
        status,
    };
    let deliver = Entry::Sent {
        request: "hook".into(),
        intent: Intent::Deliver {
            sha256: "ab".into(),
        },
    };
    let archived = |event: &str, key: &str, sha256: &str| Archived {
        event: event.into(),
        key: key.into(),
        sha256: sha256.into(),
    };
    let mail = |booking, event: &str, repeat| Mail {
        booking,
        event: event.into(),
        repeat,
    };
    Facts {
        journal: vec![
            book("a"),
            answered("a", Some(201)),
            book("b"),
            answered("b", None),
            deliver,
            answered("hook", Some(201)),
            book("refused"),
            answered("refused", Some(422)),
            book("given up"),
            answered("given up", None),
            book("cut off"),
        ],
        bookings: vec![
            Booked {
                id: 1,
                request: "a".into(),
            },
            Booked {
                id: 2,
                request: "b".into(),
            },
        ],
        deliveries: vec!["hook".into()],
        ledger: vec![
            Posted {
                booking: 1,
                event: "e1".into(),
            },
            Posted {
                booking: 2,
                event: "e2".into(),
            },
        ],
        mails: vec![
            mail(1, "e1", false),
            mail(2, "e2", false),
            mail(1, "e1", true),
        ],
        archive: vec![
            archived("e1", "booking/1", &booking_digest(1, "Zoë \"Z\"", "1.50")),
            archived("e2", "booking/2", &booking_digest(2, "Zoë \"Z\"", "1.50")),
            archived("e3", "delivery/hook", "ab"),
        ],
    }
}

/// The account after `tamper`, as (lost, phantom, completed twice, digests equal). It must be off.
fn off(tamper: impl FnOnce(&mut Facts)) -> (usize, usize, usize, bool) {
    let mut facts = fair();
    tamper(&mut facts);
    let account = Account::of(&facts);
    assert!(!account.is_right(), "nobody noticed: {account:?}");
    assert!(
        account.text(&facts, 1.0).contains("  ! "),
        "it says what is wrong"
    );
    (
        account.lost,
        account.phantom,
        account.completed_twice,
        account.digests_equal,
    )
}

#[test]
fn a_fair_account_is_right_and_doubtful_requests_are_what_their_rows_say() {
    let account = Account::of(&fair());
    assert!(account.is_right(), "{account:?}");
    assert_eq!(
        account.json(None, 2.04).unwrap(),
        r#"{"committed":3,"rolled_back":3,"handled":{"ledger":2,"mailer":2,"archive":3},"redelivered":1,"lost":0,"phantom":0,"completed_twice":0,"digests_equal":true,"seconds":2.0}"#
    );
}

#[test]
fn what_is_missing_is_lost() {
    assert_eq!(off(|facts| drop(facts.ledger.pop())), (1, 0, 0, true));
    assert_eq!(off(|facts| drop(facts.archive.pop())), (1, 0, 0, true));
    // The repeat does not stand for the mail.
    assert_eq!(off(|facts| drop(facts.mails.remove(0))), (1, 0, 0, true));
}

#[test]
fn an_answered_request_that_left_no_trace_is_lost() {
    let lost = off(|facts| {
        facts.deliveries.clear();
        facts.archive.pop();
    });
    assert_eq!(lost, (1, 0, 0, true));
}

#[test]
fn what_was_never_committed_is_a_phantom() {
    let posted = Posted {
        booking: 9,
        event: "e9".into(),
    };
    assert_eq!(off(|facts| facts.ledger.push(posted)), (0, 1, 0, true));
    // Its row was rolled back, but its event was seen by all three.
    assert_eq!(off(|facts| drop(facts.bookings.pop())), (0, 3, 0, true));
    // Refused, yet it is there.
    let refused = off(|facts| facts.bookings[1].request = "refused".into());
    assert_eq!(refused, (0, 1, 0, true));
    let unasked = off(|facts| facts.deliveries.push("other".into()));
    assert_eq!(unasked, (0, 1, 0, true));
}

#[test]
fn what_is_there_twice_was_completed_twice() {
    assert_eq!(
        off(|facts| facts.ledger.push(facts.ledger[0].clone())),
        (0, 0, 1, true)
    );
    assert_eq!(
        off(|facts| facts.archive.push(facts.archive[2].clone())),
        (0, 0, 1, true)
    );
    // A second mail, not a second knock at the provider's door.
    assert_eq!(off(|facts| facts.mails[2].repeat = false), (0, 0, 1, true));
}

#[test]
fn other_bytes_and_other_ids_are_noticed() {
    assert_eq!(
        off(|facts| facts.archive[2].sha256 = "cd".into()),
        (0, 0, 0, false)
    );
    assert_eq!(
        off(|facts| facts.archive[0].sha256 = "cd".into()),
        (0, 0, 0, false)
    );
    assert_eq!(
        off(|facts| facts.mails[2].event = "e7".into()),
        (0, 1, 0, true)
    );
}

#[test]
fn nothing_at_all_is_not_right() {
    assert!(!Account::of(&Facts::default()).is_right());
}
