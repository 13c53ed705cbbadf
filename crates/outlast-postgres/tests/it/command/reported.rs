//! What users of similar systems reported, tried on commands: the name of each test says what must hold instead.

use futures_util::future::join_all;
use tokio_postgres::Client;
use uuid::Uuid;

use super::{Desk, KEYED, KEYLESS, LOOKS, claim, record, sent};
use crate::sql;

async fn limited(desk: &Desk, concurrency: i32, n: usize) {
    let sql = format!("select outlast.limit_account('acme', concurrency => {concurrency})");
    sql::run(&desk.client, &sql).await;
    for n in 0..n {
        desk.accept_as("pay", &n.to_string(), ", account => 'acme'")
            .await;
    }
}

// Solid Queue #761: a worker that was taken for dead let go twice, and eleven ran at a limit of one.
#[tokio::test]
async fn what_ends_late_lets_go_of_nobody_elses_place_in_an_account() {
    let desk = Desk::new().await;
    limited(&desk, 1, 3).await;
    let late = desk.claim(5).await.remove(0);
    assert!(desk.sent(&late, KEYLESS).await);
    desk.lose().await;
    let next = desk.claim(5).await;
    assert_eq!(next.len(), 1);
    for _ in 0..2 {
        assert_eq!(desk.record(&late, "settled").await, "late");
        assert!(
            desk.claim(5).await.is_empty(),
            "the place is the next one's"
        );
    }
    assert!(desk.sent(&next[0], KEYLESS).await);
    assert_eq!(desk.record(&next[0], "settled").await, "settled");
    assert_eq!(desk.claim(5).await.len(), 1);
    desk.must_be_sound().await;
}

// PgQueuer #630: after a SIGTERM, what had been picked kept its place in the limit.
#[tokio::test]
async fn what_a_process_that_stops_gives_back_keeps_no_place_in_an_account() {
    let desk = Desk::new().await;
    limited(&desk, 2, 4).await;
    let mine = desk.claim(5).await;
    assert_eq!((mine.len(), desk.claim(5).await.len()), (2, 0));
    let ids = [mine[1].id];
    desk.client
        .execute(
            "select outlast._let_go_jobs($1, $2)",
            &[&mine[1].token, &&ids[..]],
        )
        .await
        .expect("gives back what has not started");
    assert_eq!(desk.claim(5).await.len(), 1);
    sql::run(
        &desk.client,
        &format!("select outlast._finish_jobs('{}')", mine[0].token),
    )
    .await;
    assert_eq!(desk.claim(5).await.len(), 1);
    desk.must_be_sound().await;
}

// pg-boss #535: two of the same key in one batch, and nothing was fetched any more.
#[tokio::test]
async fn many_of_one_key_of_exclusion_in_front_hide_nothing_behind_them() {
    let desk = Desk::new().await;
    for n in 0..60 {
        desk.accept_as("pay", &n.to_string(), ", exclusive => 'one'")
            .await;
    }
    let free = desk.accept("free").await;
    assert_eq!(desk.claim(2).await.len(), 1, "of one key there is one");
    let drawn = "select last_value from outlast._event_id";
    for look in 1.. {
        let before: i64 = sql::one(&desk.client, drawn, &[]).await;
        let got = desk.claim(2).await;
        if !got.is_empty() {
            assert_eq!(got[0].id, free);
            break;
        }
        let after: i64 = sql::one(&desk.client, drawn, &[]).await;
        assert!(
            after > before && look < 60,
            "whoever finds nothing so far is told to look again"
        );
    }
    desk.must_be_sound().await;
}

// graphile #254: a named queue stayed locked for four hours after a crash.
#[tokio::test]
async fn a_key_of_exclusion_whose_worker_was_lost_goes_on_when_the_lease_has_lapsed() {
    let desk = Desk::new().await;
    let first = desk.accept_as("pay", "1", ", exclusive => 'one'").await;
    let second = desk.accept_as("pay", "2", ", exclusive => 'one'").await;
    assert_eq!(desk.take().await.id, first);
    desk.lose().await;
    let again = desk.take().await;
    assert_eq!(
        again.id, first,
        "it has the key, and comes before the other"
    );
    assert!(desk.sent(&again, KEYED).await);
    desk.lose().await;
    let third = desk.take_later().await;
    assert_eq!(third.id, first);
    assert!(desk.sent(&third, KEYED).await);
    desk.record(&third, "settled").await;
    assert_eq!(desk.take().await.id, second);
    desk.must_be_sound().await;
}

// CL-04: the second of two recoverers ran what was on its list.
#[tokio::test]
async fn two_who_reclaim_at_once_lose_a_command_once() {
    const GATE: i64 = 4405;
    let desk = Desk::new().await;
    let [one, other] = [desk.house.connect().await, desk.house.connect().await];
    let id = desk.accept("k").await;
    let taken = desk.take().await;
    assert!(desk.sent(&taken, KEYED).await);
    let locks = "continue when not pg_try_advisory_xact_lock(outlast._lease_lock(t));";
    let gated = format!("perform pg_advisory_xact_lock_shared({GATE});\n    {locks}");
    desk.house.plant("_reclaim_jobs", &[(locks, &gated)]).await;
    let lapse = "update outlast._lease set expires_at = outlast.clock() - interval '1 second'";
    sql::run(&desk.client, lapse).await;
    sql::run(&desk.client, &format!("select pg_advisory_lock({GATE})")).await;
    let pids = [sql::pid(&one).await, sql::pid(&other).await];
    let open = async {
        for pid in pids {
            sql::until_blocked(&desk.client, pid).await;
        }
        sql::run(&desk.client, &format!("select pg_advisory_unlock({GATE})")).await;
    };
    let reclaim = "select outlast._reclaim_jobs(10)";
    let (a, b, ()) = tokio::join!(
        sql::one::<i32>(&one, reclaim, &[]),
        sql::one::<i32>(&other, reclaim, &[]),
        open
    );
    assert_eq!(a + b, 1);
    let lost = "select count(*) from outlast.evidence where command = $1 and what = 'lost'";
    assert_eq!(sql::one::<i64>(&desk.client, lost, &[&id]).await, 1);
    desk.must_be_sound().await;
}

// CL-10: who lost the race for a key believed that the winner's row was there, and the winner rolled back.
#[tokio::test]
async fn of_those_who_give_the_same_command_one_is_new_whatever_becomes_of_the_first() {
    let desk = Desk::new().await;
    let first = desk.house.connect().await;
    let accept = "select new from outlast.command('pay', '{}', 'k')";
    sql::run(&first, "begin").await;
    assert!(sql::one::<bool>(&first, accept, &[]).await);
    let mut others = Vec::new();
    for _ in 0..3 {
        let client = desk.house.connect().await;
        let pid = sql::pid(&client).await;
        others.push(tokio::spawn(async move {
            sql::one::<bool>(&client, accept, &[]).await
        }));
        sql::until_blocked(&desk.client, pid).await;
    }
    sql::run(&first, "rollback").await;
    let new = join_all(others).await.into_iter();
    let new = new.filter(|new| *new.as_ref().expect("answers")).count();
    assert_eq!(new, 1);
    assert_eq!(desk.claim(9).await.len(), 1);
    desk.must_be_sound().await;
}

// CL-14: what had never run was removed because it was old.
#[tokio::test]
async fn retention_removes_nothing_of_a_command_that_has_not_ended() {
    let desk = Desk::new().await;
    desk.house.movable_clock().await;
    for (key, result) in [
        ("waits", None),
        ("unknown", Some("unknown")),
        ("pending", Some("pending")),
        ("settled", Some("settled")),
    ] {
        desk.accept_as(key, key, "").await;
        let Some(result) = result else { continue };
        let one = claim(&desk.client, key, 1).await.expect("claims").remove(0);
        assert!(sent(&desk.client, &one, KEYLESS).await.expect("sends"));
        match result {
            "unknown" => drop(desk.fail(&one, result).await),
            result => drop(record(&desk.client, &one, result).await.expect("records")),
        }
    }
    assert_eq!(desk.settle("never", "settled").await, "early");
    desk.lose().await;
    crate::house::forward(&desk.client, 3650 * 86_400).await;
    sql::run(&desk.client, "select outlast._forget_jobs(100)").await;
    let left = "select string_agg(key || ' ' || state, ', ' order by key) from outlast.command";
    assert_eq!(
        sql::one::<String>(&desk.client, left, &[]).await,
        "pending pending, unknown unknown, waits waiting"
    );
    let evidence = "select count(distinct command) from outlast.evidence";
    assert_eq!(sql::one::<i64>(&desk.client, evidence, &[]).await, 2);
    let again = "select new from outlast.command('settled', '{\"amount\": \"1.00\"}', 'settled')";
    assert!(
        !sql::one::<bool>(&desk.client, again, &[]).await,
        "its identity is for ever"
    );
    let early = "select count(*) from outlast._settlement";
    assert_eq!(sql::one::<i64>(&desk.client, early, &[]).await, 1);
    desk.must_be_sound().await;
}

// CL-27: what no worker survived was taken up again for 22 hours.
#[tokio::test]
async fn a_question_that_no_worker_survives_is_asked_alone_and_then_a_persons() {
    for (first, next) in [("unknown", 'l'), ("pending", 'p')] {
        let desk = Desk::new().await;
        let id = desk.accept("k").await;
        let one = desk.take().await;
        assert!(desk.sent(&one, LOOKS).await);
        match first {
            "unknown" => drop(desk.fail(&one, first).await),
            _ => drop(desk.record(&one, first).await),
        }
        for death in 0..4 {
            let asked = desk.take_later().await;
            assert_eq!((asked.id, asked.next), (id, next));
            if death > 0 {
                // As a worker does with what somebody was lost with.
                let start = "select outlast._start_jobs($1, $2)";
                let ids = [id];
                desk.client
                    .execute(start, &[&asked.token, &&ids[..]])
                    .await
                    .expect("marks");
            }
            desk.lose().await;
            let alone = "select count(*) from outlast._job_later where alone";
            let expected = i64::from((1..3).contains(&death));
            assert_eq!(sql::one::<i64>(&desk.client, alone, &[]).await, expected);
        }
        desk.come().await;
        assert!(desk.claim(9).await.is_empty(), "{first}");
        assert_eq!(desk.state(id).await, first);
        assert_eq!(desk.incidents().await.len(), 1);
        assert_eq!(desk.settle("k", "settled").await, "settled");
        assert!(desk.incidents().await.is_empty());
        desk.must_be_sound().await;
    }
}

// CL-35: numbers went through floating point.
#[tokio::test]
async fn the_end_of_a_command_tells_its_content_byte_for_byte() {
    let desk = Desk::new().await;
    let content = r#"{"b":9007199254740993, "a":3889108265204450030,"c":[0.10,1e400,-0.0],"b":1}"#;
    let accept = "select id from outlast.command('pay', $1, 'k')";
    let _: Uuid = sql::one(&desk.client, accept, &[&content]).await;
    let one = desk.take().await;
    assert!(desk.sent(&one, KEYLESS).await);
    let answer = r#"{"id":18446744073709551615,"fee":0.30}"#;
    let record = "select outlast.record($1, $2, 'settled', $3)";
    let args: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
        [&one.token, &one.id, &answer.as_bytes()];
    desk.client.query_one(record, &args).await.expect("records");
    let told =
        "select convert_from(payload, 'UTF8') from outlast.event where type = 'pay.resolved'";
    assert_eq!(
        sql::one::<String>(&desk.client, told, &[]).await,
        format!(r#"{{"command":{content},"how":{{"settled":{answer}}}}}"#)
    );
}

// CL-52: the same webhook fifty times, and credits twice.
#[tokio::test]
async fn fifty_settlements_at_once_are_one_end() {
    for early in [false, true] {
        let desk = Desk::new().await;
        if !early {
            desk.accept("k").await;
        }
        let clients: Vec<Client> = join_all((0..10).map(|_| desk.house.connect())).await;
        let settle = "select outlast.settle('pay', 'k', 'settled', '{\"id\": 1}')";
        let tell = async |client: &Client| {
            let mut moved = 0;
            for _ in 0..5 {
                let answer: String = sql::one(client, settle, &[]).await;
                moved += i32::from(answer == "settled");
                assert!(["settled", "same", "early"].contains(&answer.as_str()));
            }
            moved
        };
        let moved: i32 = join_all(clients.iter().map(tell)).await.into_iter().sum();
        assert_eq!(moved, i32::from(!early));
        desk.accept("k").await;
        assert_eq!(desk.told().await.len(), 1);
        desk.must_be_sound().await;
    }
}

// "LIMIT overshoot": a plan with a loop around the locking part took more than was asked for.
#[tokio::test]
async fn a_claim_takes_no_more_than_its_room_whatever_the_statistics_say() {
    let desk = Desk::new().await;
    // What the planner knows from now on: all is empty.
    sql::run(&desk.client, "analyze").await;
    for n in 0..120 {
        let more = match n % 4 {
            0 => format!(", account => 'a{}'", n % 3),
            1 => format!(", exclusive => '{}'", n % 5),
            2 => format!(", tenant => 't{}'", n % 7),
            _ => ", account => 'acme', priority => -1".to_owned(),
        };
        desk.accept_as("pay", &n.to_string(), &more).await;
    }
    sql::run(
        &desk.client,
        "select outlast.limit_account('acme', concurrency => 4), outlast.limit_account('a1', rate => 100, burst => 3)",
    )
    .await;
    let clients = join_all((0..3).map(|_| desk.house.connect())).await;
    let mut taken = std::collections::HashSet::new();
    while taken.len() < 90 {
        let all = join_all(clients.iter().map(|client| claim(client, "pay", 7))).await;
        let all: Vec<_> = all
            .into_iter()
            .map(|tries| tries.expect("claims"))
            .collect();
        assert!(all.iter().all(|tries| tries.len() <= 7));
        for one in all.into_iter().flatten() {
            assert!(taken.insert(one.id), "nobody else has it");
            assert!(desk.sent(&one, KEYLESS).await);
            desk.record(&one, "settled").await;
        }
    }
    desk.must_be_sound().await;
}

// Solid Queue #162, #531: batches of deletions in different orders locked each other out.
#[tokio::test]
async fn who_removes_what_is_old_at_once_with_others_waits_for_no_circle() {
    let desk = Desk::new().await;
    desk.house.movable_clock().await;
    for n in 0..200 {
        desk.accept(&n.to_string()).await;
        desk.settle(&n.to_string(), "settled").await;
    }
    crate::house::forward(&desk.client, 3650 * 86_400).await;
    let clients = join_all((0..3).map(|_| desk.house.connect())).await;
    let forget = async |client: &Client| {
        for _ in 0..12 {
            sql::run(client, "select outlast._forget_jobs(20)").await;
        }
    };
    join_all(clients.iter().map(forget)).await;
    let left = "select count(*) from outlast.command";
    assert_eq!(sql::one::<i64>(&desk.client, left, &[]).await, 0);
    desk.must_be_sound().await;
}
