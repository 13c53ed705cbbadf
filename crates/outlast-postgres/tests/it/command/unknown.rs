//! What nobody knows: asked after, sent again only where that is safe, else a person's.

use super::{Contract, Desk, KEYED, KEYLESS, LOOKS};
use crate::sql;

#[tokio::test]
async fn a_keyless_one_is_never_sent_again_by_itself() {
    for class in ["unknown", "unclassified"] {
        let desk = Desk::new().await;
        let id = desk.accept("k").await;
        let one = desk.take().await;
        assert!(desk.sent(&one, KEYLESS).await);
        assert_eq!(desk.fail(&one, class).await, "unknown");
        assert_eq!(desk.state(id).await, "unknown");
        desk.come().await;
        assert!(desk.claim(10).await.is_empty(), "{class}");
        assert_eq!(desk.incidents().await, ["unknown command"]);
        let retried: String = sql::one(&desk.client, "select outlast.retry_job($1)", &[&id]).await;
        assert_eq!(retried, "unknown", "a retry is no way around it");
        desk.must_be_sound().await;
    }
}

#[tokio::test]
async fn a_keyed_one_goes_again_with_the_same_key_inside_the_window_and_not_in_its_last_part() {
    let desk = Desk::new().await;
    let id = desk.accept("k").await;
    let one = desk.take().await;
    assert!(desk.sent(&one, KEYED).await);
    assert_eq!(desk.fail(&one, "unknown").await, "unknown");
    let two = desk.take_later().await;
    assert_eq!((two.next, &two.provider_key), ('s', &one.provider_key));
    assert_eq!(desk.state(id).await, "unknown", "until it has left again");
    assert!(desk.sent(&two, KEYED).await);
    assert_eq!(desk.fail(&two, "unknown").await, "unknown");

    // It was claimed in time; when it would leave, the provider may forget the key before it arrives.
    let three = desk.take_later().await;
    sql::run(&desk.client, "update outlast._command set first_sent_at = outlast.clock() - interval '1 day' + interval '44 seconds'").await;
    assert!(!desk.sent(&three, KEYED).await);
    assert_eq!(desk.state(id).await, "unknown");
    assert_eq!(desk.incidents().await, ["unknown command"]);
    desk.must_be_sound().await;
}

#[tokio::test]
async fn a_look_up_settles_it_and_only_proof_lets_it_go_again() {
    let desk = Desk::new().await;
    let id = desk.accept("k").await;
    let one = desk.take().await;
    assert!(desk.sent(&one, LOOKS).await);
    assert_eq!(desk.fail(&one, "unknown").await, "unknown");
    let look = desk.take_later().await;
    assert_eq!(look.next, 'l');
    assert!(
        !desk.sent(&look, LOOKS).await,
        "it is to be asked, not sent"
    );
    assert_eq!(desk.record(&look, "unsure").await, "unknown");
    let look = desk.take_later().await;
    assert_eq!(look.next, 'l');
    assert_eq!(desk.record(&look, "not_applied").await, "waiting");
    let again = desk.take().await;
    assert_eq!(again.next, 's');
    assert!(desk.sent(&again, LOOKS).await);
    assert_eq!(desk.fail(&again, "unknown").await, "unknown");
    let look = desk.take_later().await;
    assert_eq!(desk.record(&look, "settled").await, "settled");
    assert_eq!(
        (desk.state(id).await.as_str(), desk.told().await.len()),
        ("settled", 1)
    );
    desk.must_be_sound().await;
}

#[tokio::test]
async fn after_a_day_of_looking_a_person_is_asked() {
    let desk = Desk::new().await;
    desk.accept("k").await;
    let one = desk.take().await;
    assert!(desk.sent(&one, LOOKS).await);
    desk.fail(&one, "unknown").await;
    let look = desk.take_later().await;
    sql::run(
        &desk.client,
        "update outlast._command set unknown_at = unknown_at - interval '1 day'",
    )
    .await;
    assert_eq!(desk.record(&look, "unsure").await, "unknown");
    assert_eq!(desk.incidents().await, ["unknown command"]);
    desk.must_be_sound().await;
}

#[tokio::test]
async fn a_refusal_after_an_ambiguous_send_is_believed_only_of_a_provider_that_replays() {
    for replays in [false, true] {
        let desk = Desk::new().await;
        let contract = Contract { replays, ..KEYED };
        let id = desk.accept("k").await;
        let one = desk.take().await;
        assert!(desk.sent(&one, contract).await);
        desk.fail(&one, "unknown").await;
        let two = desk.take_later().await;
        assert!(desk.sent(&two, contract).await);
        let expected = if replays { "rejected" } else { "unknown" };
        assert_eq!(desk.record(&two, "rejected").await, expected);
        assert_eq!(desk.state(id).await, expected);
        assert_eq!(desk.incidents().await.len(), usize::from(!replays));
        desk.must_be_sound().await;
    }
}

#[tokio::test]
async fn a_clean_failure_does_not_make_an_earlier_send_known() {
    let desk = Desk::new().await;
    let id = desk.accept("k").await;
    let one = desk.take().await;
    assert!(desk.sent(&one, KEYED).await);
    desk.fail(&one, "unknown").await;
    let two = desk.take_later().await;
    assert!(desk.sent(&two, KEYED).await);
    assert_eq!(
        desk.fail(&two, "retry").await,
        "unknown",
        "connection refused says nothing about the first"
    );
    assert_eq!(desk.state(id).await, "unknown");
    desk.must_be_sound().await;
}

#[tokio::test]
async fn one_that_no_worker_survives_is_not_sent_for_ever() {
    let desk = Desk::new().await;
    desk.accept_as("pay", "k", ", attempts => 3").await;
    for _ in 0..3 {
        let one = desk.take_later().await;
        assert!(desk.sent(&one, KEYED).await);
        desk.lose().await;
    }
    desk.come().await;
    assert!(desk.claim(10).await.is_empty());
    assert_eq!(desk.incidents().await, ["unknown command"]);
    desk.must_be_sound().await;
}

#[tokio::test]
async fn a_refusal_that_comes_late_is_the_end_of_a_single_send_and_may_be_the_echo_of_another() {
    for (replays, sends, expected) in [
        (false, 1, "rejected"),
        (false, 2, "unknown"),
        // It may have forgotten the key between the two.
        (true, 2, "unknown"),
    ] {
        let desk = Desk::new().await;
        let contract = Contract { replays, ..KEYED };
        let id = desk.accept("k").await;
        let mut one = desk.take().await;
        for nth in 1..=sends {
            if nth > 1 {
                one = desk.take_later().await;
            }
            assert!(desk.sent(&one, contract).await);
            desk.lose().await;
        }
        assert_eq!(desk.record(&one, "rejected").await, "late");
        assert_eq!(desk.state(id).await, expected, "{replays} {sends}");
        desk.must_be_sound().await;
    }
}

#[tokio::test]
async fn a_duplicate_that_a_sleeper_hears_of_contradicts_nobody() {
    let desk = Desk::new().await;
    let id = desk.accept("k").await;
    let sleeper = desk.take().await;
    assert!(desk.sent(&sleeper, KEYED).await);
    desk.lose().await;
    let other = desk.take_later().await;
    assert!(desk.sent(&other, KEYED).await);
    assert_eq!(desk.record(&other, "settled").await, "settled");
    assert_eq!(desk.record(&sleeper, "rejected").await, "late");
    assert_eq!(desk.state(id).await, "settled");
    assert!(desk.incidents().await.is_empty());
    let heard = "select count(*) from outlast.evidence where what = 'late' and result = 'rejected' and not moved";
    assert_eq!(sql::one::<i64>(&desk.client, heard, &[]).await, 1);
    desk.must_be_sound().await;
}

/// An earlier try that nobody waits for any more hears "key in use", or "duplicate": of the later one.
#[tokio::test]
async fn a_refusal_that_comes_late_is_believed_only_if_nothing_else_was_sent() {
    for (result, replays, planted, expected) in [
        ("rejected", false, false, "running"),
        ("obsolete", false, false, "running"),
        // It may have forgotten the key between the two.
        ("rejected", true, false, "running"),
        // What would happen without the guard.
        ("rejected", false, true, "rejected"),
    ] {
        let desk = Desk::new().await;
        if planted {
            let guard = "select count(*) > 1";
            desk.house
                .plant("_may_be_an_echo", &[(guard, "select count(*) > 9")])
                .await;
        }
        let contract = Contract { replays, ..KEYED };
        let id = desk.accept("k").await;
        let one = desk.take().await;
        assert!(desk.sent(&one, contract).await);
        desk.fail(&one, "unknown").await;
        let two = desk.take_later().await;
        assert!(desk.sent(&two, contract).await);
        assert_eq!(desk.record(&one, result).await, "late");
        assert_eq!(desk.state(id).await, expected, "{result} {replays}");
        if expected == "running" {
            assert_eq!(desk.record(&two, "settled").await, "settled");
            assert_eq!(desk.record(&one, result).await, "late");
            assert!(
                desk.incidents().await.is_empty(),
                "an echo contradicts nothing"
            );
        }
        desk.must_be_sound().await;
    }
}

#[tokio::test]
async fn that_there_is_nothing_to_do_says_nothing_about_what_was_sent_before() {
    let desk = Desk::new().await;
    let contract = Contract {
        replays: true,
        looks: true,
        ..KEYED
    };
    let id = desk.accept("k").await;
    let one = desk.take().await;
    assert!(desk.sent(&one, contract).await);
    desk.fail(&one, "unknown").await;
    let two = desk.take_later().await;
    assert!(desk.sent(&two, contract).await);
    assert_eq!(desk.record(&two, "obsolete").await, "unknown");
    let look = desk.take_later().await;
    assert_eq!(look.next, 'l', "the provider is asked");
    assert_eq!(desk.record(&look, "settled").await, "settled");
    assert_eq!(desk.state(id).await, "settled");
    desk.must_be_sound().await;
}

/// The provider counts from when it first saw the key, whatever became of that send.
#[tokio::test]
async fn a_proof_lets_it_go_once_more_and_does_not_begin_its_window_anew() {
    for planted in [false, true] {
        let desk = Desk::new().await;
        if planted {
            let old = "first_sent_at = coalesce(x.first_sent_at, at),";
            let anew = "first_sent_at = case when x.not_applied then at else coalesce(x.first_sent_at, at) end,";
            desk.house.plant("_sent", &[(old, anew)]).await;
        }
        let contract = Contract {
            looks: true,
            ..KEYED
        };
        desk.accept("k").await;
        let one = desk.take().await;
        assert!(desk.sent(&one, contract).await);
        let day = "update outlast._command set first_sent_at = first_sent_at - interval '1 day'";
        sql::run(&desk.client, day).await;
        desk.fail(&one, "unknown").await;
        let look = desk.take_later().await;
        assert_eq!(look.next, 'l', "its window is over");
        assert_eq!(desk.record(&look, "not_applied").await, "waiting");
        let again = desk.take().await;
        assert!(desk.sent(&again, contract).await, "after the window, too");
        desk.fail(&again, "unknown").await;
        let next = desk.take_later().await.next;
        assert_eq!(next, if planted { 's' } else { 'l' });
        desk.must_be_sound().await;
    }
}
