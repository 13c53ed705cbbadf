//! What is written in the caller's transaction, and what is not.

use outlast_core::Entity;
use outlast_engine::Outlast;
use outlast_postgres::{
    Error,
    tx::{OwnedTx, Pool},
};
use serde::{Deserialize, Serialize};

use super::{Ref, Thing, sync};
use crate::given::{Given, given};

const MARKS: &str = "select count(*) from outlast._entity_mark";

#[derive(Serialize, Deserialize)]
struct Odd {
    key: String,
    filling: String,
}

impl Entity for Odd {
    const NAME: &'static str = "odd";
    type Refs = String;

    fn key(&self) -> String {
        self.key.clone()
    }

    fn exclusive(&self) -> Option<String> {
        self.key.strip_prefix("in ").map(str::to_owned)
    }
}

fn odd(key: &str) -> Odd {
    Odd {
        key: key.into(),
        filling: String::new(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_committed_mark_is_converged_and_of_a_rolled_back_one_nothing_is_left() {
    let given = given().await;
    let app = given.app().await;
    given.change(1, "red").await;
    given.put(2, "red").await.rollback().await.unwrap();
    assert_eq!(given.count(MARKS).await, 1);
    let worker = Given::run(given.worker(app.clone()).reconcile(sync));
    given.converged().await;
    assert_eq!(app.ledger.shows(), [(1, "red".to_owned())]);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_leaves_the_transaction_usable_with_nothing_written() {
    struct Badly;
    impl Serialize for Badly {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("no"))
        }
    }
    impl<'de> Deserialize<'de> for Badly {
        fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
            Ok(Self)
        }
    }
    impl Entity for Badly {
        const NAME: &'static str = "badly";
        type Refs = ();
        fn key(&self) -> String {
            "k".into()
        }
    }
    #[derive(Serialize, Deserialize)]
    struct Named;
    impl Entity for Named {
        const NAME: &'static str = "Badly named";
        type Refs = ();
        fn key(&self) -> String {
            "k".into()
        }
    }
    let given = given().await;
    let outlast = Outlast::new();
    let mut tx = given.pool.begin().await.unwrap();
    for bad in [
        odd(""),
        odd(&"k".repeat(501)),
        odd("a\0b"),
        odd("in "),
        odd("in a\0"),
    ] {
        let refused = outlast.changed(&mut tx, &bad).await.unwrap_err();
        assert!(matches!(refused, Error::BadName(_)), "{refused}");
    }
    let refused = outlast.changed(&mut tx, &Named).await.unwrap_err();
    assert!(refused.to_string().contains("`Badly named`"), "{refused}");
    let refused = outlast.changed(&mut tx, &Badly).await.unwrap_err();
    assert!(matches!(refused, Error::BadPayload(_)), "{refused}");
    let large = Odd {
        filling: "x".repeat(70_000),
        ..odd("k")
    };
    let refused = outlast.changed(&mut tx, &large).await.unwrap_err();
    assert!(matches!(refused, Error::TooLarge { .. }), "{refused}");
    let refused = outlast
        .deleted(&mut tx, &odd("k"), &"x".repeat(20_000))
        .await;
    assert!(
        matches!(refused, Err(Error::TooLarge { .. })),
        "{refused:?}"
    );
    let refused = outlast
        .deleted(&mut tx, &odd("k"), &"a\0b".to_owned())
        .await;
    assert!(matches!(refused, Err(Error::BadPayload(_))), "{refused:?}");
    let elsewhere = outlast.tenant("a\nb");
    let refused = elsewhere.changed(&mut tx, &odd("k")).await.unwrap_err();
    assert!(matches!(refused, Error::BadName(_)), "{refused}");
    outlast.changed(&mut tx, &odd("k")).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(given.count(MARKS).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_that_mark_the_same_entities_in_any_order_do_not_wait_for_each_other() {
    let given = given().await;
    let app = given.app().await;
    let outlast = Outlast::new();
    let (mut one, mut two) = (
        given.pool.begin().await.unwrap(),
        given.pool.begin().await.unwrap(),
    );
    // Both are open: whoever waited for the other would wait for ever.
    outlast.changed(&mut one, &Thing { n: 1 }).await.unwrap();
    outlast.changed(&mut two, &Thing { n: 2 }).await.unwrap();
    outlast.changed(&mut one, &Thing { n: 2 }).await.unwrap();
    let gone = Ref("r".into());
    outlast
        .deleted(&mut two, &Thing { n: 1 }, &gone)
        .await
        .unwrap();
    two.commit().await.unwrap();
    one.commit().await.unwrap();
    let worker = Given::run(given.worker(app).reconcile(sync));
    given.converged().await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_never_share_an_entity_and_who_asked_is_told() {
    use outlast_core::Failure;
    use outlast_engine::Attempt;
    use tokio::sync::mpsc;

    type Heard = mpsc::UnboundedSender<(String, Option<String>, Option<String>)>;
    async fn heard(told: Heard, thing: Attempt<Thing>) -> Result<(), Failure> {
        let of = |text: Option<&str>| text.map(str::to_owned);
        let _ = told.send((
            thing.tenant().to_owned(),
            of(thing.actor()),
            of(thing.key()),
        ));
        Ok(())
    }
    let given = given().await;
    let mut tx = given.pool.begin().await.unwrap();
    for tenant in ["acme", "bolt"] {
        let outlast = Outlast::new().tenant(tenant).actor("jane");
        outlast.changed(&mut tx, &Thing { n: 7 }).await.unwrap();
    }
    tx.commit().await.unwrap();
    let (told, mut hears) = mpsc::unbounded_channel();
    let worker = Given::run(given.worker(told).reconcile(heard));
    given.converged().await;
    let mut all = vec![hears.recv().await.unwrap(), hears.recv().await.unwrap()];
    all.sort();
    let of = |tenant: &str| {
        (
            tenant.to_owned(),
            Some("jane".to_owned()),
            Some("7".to_owned()),
        )
    };
    assert_eq!(all, [of("acme"), of("bolt")]);
    assert!(hears.try_recv().is_err());
    worker.stop().await.unwrap();
}
