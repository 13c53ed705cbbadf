//! Parker against releaser, on two connections, each held at the place where it hurts; and that without the lock in
//! question somebody waits behind nobody.

use super::Yard;
use crate::sql::{self, Claim, Event};

const LEVELS: [&str; 3] = ["read committed", "repeatable read", "serializable"];

/// A leader whose try is complete and not ended yet, with nobody behind it.
async fn complete_leader(yard: &Yard) -> Event {
    yard.emit("k").await;
    let batch = yard.claim().await;
    yard.fail(&batch[0], "retry").await;
    yard.finish(&batch[0]).await;
    let due = yard.due().await.remove(0);
    yard.complete(&due).await;
    due
}

/// The releaser is first and has not committed; the parker comes, at its lock or at its count. How many it hands out.
async fn parker_second(yard: &Yard) -> usize {
    let (releaser, parker) = (yard.house.connect().await, yard.house.connect().await);
    let leader = complete_leader(yard).await;
    yard.emit("k").await;
    sql::run(&releaser, "begin").await;
    sql::finish(&releaser, &[leader.token])
        .await
        .expect("finishes");
    let pid = sql::pid(&parker).await;
    let (claimed, ()) = tokio::join!(Claim::of(yard.consumer).run(&parker), async {
        sql::until_blocked(&yard.client, pid).await;
        sql::run(&releaser, "commit").await;
    });
    claimed.expect("claims").events.len()
}

/// The parker is first and has not committed; the releaser comes.
async fn releaser_second(yard: &Yard) {
    let (releaser, parker) = (yard.house.connect().await, yard.house.connect().await);
    let leader = complete_leader(yard).await;
    yard.emit("k").await;
    sql::run(&parker, "begin").await;
    let claimed = Claim::of(yard.consumer).run(&parker).await.expect("claims");
    assert_eq!(claimed.events.len(), 0);
    let pid = sql::pid(&releaser).await;
    let tokens = [leader.token];
    let (finished, ()) = tokio::join!(sql::finish(&releaser, &tokens), async {
        sql::until_blocked(&yard.client, pid).await;
        sql::run(&parker, "commit").await;
    });
    finished.expect("finishes");
}

#[tokio::test]
async fn a_parker_waits_for_the_releaser_and_then_handles_the_event_itself() {
    let yard = Yard::new(1).await;
    assert_eq!(parker_second(&yard).await, 1);
    yard.must_be_sound().await;

    // With a plain read it goes behind a key that is let go at that moment.
    let yard = Yard::new(1).await;
    let lock = ("    order by k.tenant, k.key\n    for update;", ";");
    yard.house.plant("_hold_keys", &[lock]).await;
    assert_eq!(parker_second(&yard).await, 0);
    let broken = sql::broken(&yard.client).await;
    assert!(broken[0].starts_with("nobody is behind"), "{broken:?}");
}

#[tokio::test]
async fn a_releaser_waits_for_the_parker_and_then_lets_his_event_go() {
    let yard = Yard::new(1).await;
    releaser_second(&yard).await;
    yard.must_be_sound().await;
    assert_eq!(yard.due().await.len(), 1);

    let yard = Yard::new(1).await;
    let lock = (
        "x.leader = _release.leader for update;",
        "x.leader = _release.leader;",
    );
    yard.house.plant("_release", &[lock]).await;
    releaser_second(&yard).await;
    let broken = sql::broken(&yard.client).await;
    assert!(broken[0].starts_with("nobody is behind"), "{broken:?}");
}

/// A person skips the leader; something was put behind it after the snapshot of that transaction was taken. The error, if
/// there was one, and how often it took until it went through.
async fn skip_after_a_parker(yard: &Yard, level: &str) -> Option<String> {
    let operator = yard.house.connect().await;
    let key = format!("k-{}", level.replace(' ', "-"));
    yard.emit(&key).await;
    let leader = yard.claim().await.remove(0);
    yard.fail(&leader, "permanent").await;
    yard.finish(&leader).await;
    let begin = format!("begin isolation level {level}; select 1");
    sql::run(&operator, &begin).await;
    yard.emit(&key).await;
    assert!(yard.claim().await.is_empty());
    let skip = "select outlast.skip('c', $1, 'x')";
    let skipped = operator.execute(skip, &[&leader.id]).await;
    let error = skipped
        .err()
        .map(|error| sql::short(&error)[..5].to_owned());
    if error.is_some() {
        sql::run(&operator, "rollback").await;
        operator.execute(skip, &[&leader.id]).await.expect("skips");
    } else {
        sql::run(&operator, "commit").await;
    }
    error
}

#[tokio::test]
async fn a_releaser_with_an_old_snapshot_is_refused_and_not_blind() {
    for level in LEVELS {
        let yard = Yard::new(1).await;
        let refused = skip_after_a_parker(&yard, level).await;
        let expected = (level != "read committed").then(|| "40001".to_owned());
        assert_eq!(refused, expected, "{level}");
        yard.must_be_sound().await;
        assert_eq!(yard.due().await.len(), 1, "{level}");

        // A parker that only locks the key leaves no trace for him.
        if level != "read committed" {
            let yard = Yard::new(1).await;
            let count = "c.id = _count_behind.consumer";
            let planted = [(count, "c.id = _count_behind.consumer and false")];
            yard.house.plant("_count_behind", &planted).await;
            assert_eq!(skip_after_a_parker(&yard, level).await, None, "{level}");
            let broken = sql::broken(&yard.client).await;
            assert!(
                broken.iter().any(|one| one.starts_with("nobody is behind")),
                "{level}: {broken:?}"
            );
        }
    }
}

/// The handler of a leader takes its snapshot; then something is put behind; then it seals and commits.
async fn seal_after_a_parker(yard: &Yard, level: &str) -> Result<(), String> {
    let handler = yard.house.connect().await;
    yard.emit("k").await;
    let batch = yard.claim().await;
    yard.fail(&batch[0], "retry").await;
    yard.finish(&batch[0]).await;
    let due = yard.due().await.remove(0);
    let begin = format!("begin isolation level {level}; select count(*) from pg_class");
    sql::run(&handler, &begin).await;
    yard.emit("k").await;
    assert!(yard.claim().await.is_empty());
    let sealed = sql::complete(&handler, due.token, due.id).await;
    sealed.map_err(|error| sql::short(&error)[..5].to_owned())?;
    // Between its seal and its COMMIT it holds up no claim, of its own key or of another.
    yard.emit("k j").await;
    sql::run(&yard.client, "set statement_timeout = '10s'").await;
    let claimed = Claim::of(yard.consumer).next(&yard.client).await;
    let claimed = claimed.map_err(|error| format!("claim: {}", sql::short(&error)))?;
    assert_eq!(claimed.len(), 1);
    yard.done(&claimed[0]).await;
    sql::run(&handler, "commit").await;
    yard.finish(&due).await;
    Ok(())
}

#[tokio::test]
async fn a_handler_in_any_isolation_level_completes_while_events_go_behind_it() {
    for level in LEVELS {
        let yard = Yard::new(1).await;
        assert_eq!(seal_after_a_parker(&yard, level).await, Ok(()), "{level}");
        yard.must_be_sound().await;
        assert_eq!(yard.keys().await, ["k 1"], "the first behind leads");
    }
}

/// Why the key is handed on by the end of the lease: a seal that touched the key would be refused above READ COMMITTED as
/// often as something was put behind, and would hold up every claim until its COMMIT.
#[tokio::test]
async fn a_seal_that_touched_the_key_would_be_refused_or_in_the_way() {
    for level in LEVELS {
        let yard = Yard::new(1).await;
        let delete = "    delete from outlast._parked p\n";
        let touch = "    update outlast._parked_key k set behind = k.behind where k.leader = complete.id;\n    delete from outlast._parked p\n";
        yard.house.plant("complete", &[(delete, touch)]).await;
        let expected = match level {
            "read committed" => "claim: 55P03",
            _ => "40001",
        };
        let refused = seal_after_a_parker(&yard, level).await;
        assert!(
            refused
                .as_ref()
                .is_err_and(|error| error.starts_with(expected)),
            "{level}: {refused:?}"
        );
    }
}

/// Two that fail events of one key of one batch at the same time, as only a caller in SQL can.
#[tokio::test]
async fn two_failures_of_one_key_at_once_count_what_is_behind_once() {
    let yard = Yard::new(1).await;
    let other = yard.house.connect().await;
    yard.emit("k k k").await;
    let batch = yard.claim().await;
    sql::run(&yard.client, "begin").await;
    yard.fail(&batch[0], "retry").await;
    let observer = yard.house.connect().await;
    let pid = sql::pid(&other).await;
    let (failed, ()) = tokio::join!(
        sql::fail(&other, batch[1].token, batch[1].id, "retry"),
        async {
            sql::until_blocked(&observer, pid).await;
            sql::run(&yard.client, "commit").await;
        }
    );
    assert_eq!(sql::state(failed), "OL003");
    assert_eq!(yard.keys().await, ["k 2"]);
    assert_eq!(yard.finish(&batch[0]).await, 0);
    yard.must_be_sound().await;
}
