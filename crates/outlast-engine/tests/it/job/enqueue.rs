//! Enqueuing: in the caller's transaction or not at all, once for a key, refused without harm.

use std::time::{Duration, SystemTime};

use outlast_core::{Failure, Job, job::Options, job::State};
use outlast_engine::{Attempt, Outlast};
use outlast_postgres::{
    Error,
    job::{Cancel, Stands},
    tx::{OwnedTx, Pool},
};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::{Keyed, Task, completing};
use crate::given::{Given, Told, given, next};

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_run_when_its_transaction_commits_and_never_when_it_does_not() {
    async fn note(told: Told, task: Attempt<Task>) -> Result<(), Failure> {
        let _ = told.send(task.n);
        Ok(())
    }
    let given = given().await;
    let (told, mut hears) = mpsc::unbounded_channel();
    let worker = Given::run(given.worker(told).job(note));
    let mut tx = given.pool.begin().await.unwrap();
    Outlast::new()
        .enqueue(&mut tx, &Task { n: 1 })
        .await
        .unwrap();
    tx.rollback().await.unwrap();
    let mut tx = given.pool.begin().await.unwrap();
    let accepted = Outlast::new()
        .enqueue(&mut tx, &Task { n: 2 })
        .await
        .unwrap();
    assert!(accepted.new);
    tx.commit().await.unwrap();
    assert_eq!(next(&mut hears).await, 2);
    given.jobs(1, "done").await;
    worker.stop().await.unwrap();
    assert!(hears.try_recv().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_with_the_same_content_is_the_same_job_and_with_other_content_a_conflict_that_harms_nothing()
 {
    let given = given().await;
    let outlast = Outlast::new();
    let keyed = |what: &str| Keyed {
        n: 7,
        what: what.to_owned(),
    };
    let mut tx = given.pool.begin().await.unwrap();
    let first = outlast.enqueue(&mut tx, &keyed("a")).await.unwrap();
    tx.commit().await.unwrap();
    let mut tx = given.pool.begin().await.unwrap();
    let again = outlast.enqueue(&mut tx, &keyed("a")).await.unwrap();
    assert_eq!((again.id, again.new), (first.id, false));
    let other = outlast.enqueue(&mut tx, &keyed("b")).await.unwrap_err();
    assert!(
        matches!(&other, Error::Conflict { kind: "job", key, first: id } if key == "7" && *id == first.id),
        "{other:?}"
    );
    // Another tenant's keys are its own; and the transaction is as good as before.
    let theirs = outlast.tenant("acme");
    assert!(theirs.enqueue(&mut tx, &keyed("b")).await.unwrap().new);
    tx.commit().await.unwrap();
    assert_eq!(given.count("select count(*) from outlast.job").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_whose_lifetime_is_over_is_expired_and_no_new_job() {
    #[derive(Serialize, Deserialize)]
    struct Brief;
    impl Job for Brief {
        const NAME: &'static str = "brief";
        fn key(&self) -> Option<String> {
            Some("k".to_owned())
        }
        fn options() -> Options {
            Options::new().lifetime(Duration::from_millis(1))
        }
    }
    let given = given().await;
    let mut tx = given.pool.begin().await.unwrap();
    Outlast::new().enqueue(&mut tx, &Brief).await.unwrap();
    tx.commit().await.unwrap();
    given
        .until(
            "select count(*) from outlast._job_key where lives_until < outlast.clock()",
            1,
        )
        .await;
    let mut tx = given.pool.begin().await.unwrap();
    let late = Outlast::new().enqueue(&mut tx, &Brief).await.unwrap_err();
    assert!(
        matches!(&late, Error::Expired { kind: "job", key } if key == "k"),
        "{late:?}"
    );
    tx.commit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_refused_with_nothing_written_and_a_transaction_that_goes_on() {
    #[derive(Serialize, Deserialize)]
    struct Large(String);
    impl Job for Large {
        const NAME: &'static str = "large";
    }
    let given = given().await;
    let mut tx = given.pool.begin().await.unwrap();
    let outlast = Outlast::new();
    let task = Task { n: 1 };
    let large = Large("x".repeat(300_000));
    let far = SystemTime::now() + Duration::from_secs(100 * 366 * 24 * 3600);
    let refused = [
        outlast.enqueue(&mut tx, &large).await.unwrap_err(),
        outlast
            .enqueue(&mut tx, &task)
            .priority(101)
            .await
            .unwrap_err(),
        outlast
            .enqueue(&mut tx, &task)
            .attempts(0)
            .await
            .unwrap_err(),
        outlast
            .enqueue(&mut tx, &task)
            .after(Duration::MAX)
            .await
            .unwrap_err(),
        outlast.enqueue(&mut tx, &task).at(far).await.unwrap_err(),
        outlast
            .tenant("a\nb")
            .enqueue(&mut tx, &task)
            .await
            .unwrap_err(),
    ];
    assert!(matches!(refused[0], Error::TooLarge { .. }));
    assert!(
        refused[1..]
            .iter()
            .all(|why| matches!(why, Error::BadName(_))),
        "{refused:?}"
    );
    outlast
        .enqueue(&mut tx, &task)
        .at(SystemTime::UNIX_EPOCH)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(given.count("select count(*) from outlast.job").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_a_job_enqueues_names_it_as_its_cause() {
    async fn parent(
        pool: deadpool_postgres::Pool,
        job: Attempt<Keyed>,
    ) -> Result<outlast_engine::Sealed, Failure> {
        let mut tx = pool.begin().await?;
        job.outlast().enqueue(&mut tx, &Task { n: job.n }).await?;
        job.seal(tx).await
    }
    let given = given().await;
    let mut tx = given.pool.begin().await.unwrap();
    let keyed = Keyed {
        n: 3,
        what: String::new(),
    };
    let outlast = Outlast::new().tenant("acme").actor("jane");
    let first = outlast.enqueue(&mut tx, &keyed).await.unwrap();
    tx.commit().await.unwrap();
    let worker = Given::run(given.worker(given.pool.clone()).job(parent));
    given.jobs(1, "done").await;
    let row = given
        .sql
        .query_one("select causation_id, correlation_id, tenant, actor from outlast.job where name = 'task'", &[])
        .await
        .unwrap();
    assert_eq!((row.get(0), row.get(1)), (Some(first.id), Some(first.id)));
    assert_eq!((row.get(2), row.get(3)), ("acme", Some("jane")));
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_can_be_withdrawn_and_its_status_tells() {
    let given = given().await;
    let outlast = Outlast::new();
    let accepted = &given.enqueue(0..1).await[0];
    let mut tx = given.pool.begin().await.unwrap();
    let status = outlast.status(&mut tx, accepted.id).await.unwrap().unwrap();
    assert_eq!(
        (status.state, status.name.as_str(), status.attempt),
        (Stands::Job(State::Waiting), "task", 0)
    );
    let said = outlast
        .cancel(&mut tx, accepted.id, "ordered twice")
        .await
        .unwrap();
    assert_eq!(said, Cancel::Withdrawn);
    let again = outlast
        .cancel(&mut tx, accepted.id, "ordered twice")
        .await
        .unwrap();
    assert_eq!(again, Cancel::Ended);
    let theirs = outlast.tenant("acme");
    assert_eq!(
        theirs
            .cancel(&mut tx, accepted.id, "not mine")
            .await
            .unwrap(),
        Cancel::Absent
    );
    assert!(theirs.status(&mut tx, accepted.id).await.unwrap().is_none());
    assert!(matches!(
        outlast.cancel(&mut tx, accepted.id, "").await,
        Err(Error::BadName(_))
    ));
    let status = outlast.status(&mut tx, accepted.id).await.unwrap().unwrap();
    assert_eq!(
        (status.state, status.reason.as_deref()),
        (Stands::Job(State::Cancelled), Some("ordered twice"))
    );
    assert!(status.ended_at.is_some());
    tx.commit().await.unwrap();
    // And by its key.
    let mut tx = given.pool.begin().await.unwrap();
    let keyed = Keyed {
        n: 1,
        what: String::new(),
    };
    outlast.enqueue(&mut tx, &keyed).await.unwrap();
    let said = outlast
        .cancel_key::<Keyed>(&mut tx, "1", "no more")
        .await
        .unwrap();
    assert_eq!(said, Cancel::Withdrawn);
    tx.commit().await.unwrap();
    let worker = completing(&given);
    given.enqueue(1..2).await;
    given.jobs(1, "done").await;
    given.jobs(2, "cancelled").await;
    worker.stop().await.unwrap();
}
