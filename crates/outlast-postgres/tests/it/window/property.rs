//! The property of windows, under a crowd and with gaps between the steps of a tick; and that the same account finds
//! every fault that an earlier draft or a hurried reader would have had.

use super::crowd::Crowd;
use crate::house::House;
use crate::seeds;
use crate::sql;

/// Random milliseconds between snapshot and `hi`, and between `hi` and `h`.
const GAPS: [(&str, &str); 2] = [
    (
        "t.hi := coalesce(pg_sequence_last_value",
        "perform pg_sleep(random() * 0.004);\n  t.hi := coalesce(pg_sequence_last_value",
    ),
    (
        "t.h := pg_current_xact_id()",
        "perform pg_sleep(random() * 0.004);\n  t.h := pg_current_xact_id()",
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_committed_event_is_claimed_once_and_after_what_it_followed() {
    for seed in seeds::seeds(2) {
        let house = House::new().await;
        house.plant("_tick", &GAPS).await;
        let huge = match (seed, seeds::long()) {
            (1, true) => 200_000,
            (1, false) => 20_000,
            _ => 0,
        };
        let account = Crowd {
            huge,
            ..Crowd::of(seed)
        }
        .run(&house)
        .await;
        println!("seed {seed}: {account}");
        assert!(
            account.committed > 300,
            "seed {seed}: the crowd wrote too little to prove anything"
        );
        assert!(account.is_clean(), "seed {seed}: {account}");
        assert_eq!(
            sql::broken(&house.connect().await).await,
            Vec::<String>::new(),
            "seed {seed}"
        );
    }
}

/// The crowd finds what every order of one writer and one tick finds, too (see `orders`). On a machine that is busy it
/// may need several, so these run on request only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_crowd_finds_each_form_of_the_tick_that_an_earlier_draft_had() {
    if !seeds::long() {
        return;
    }
    let hi = "t.hi := coalesce(pg_sequence_last_value('outlast._event_id'), 0);\n";
    let h = "  t.h := pg_current_xact_id();\n";
    let h_first = format!(
        "{}  perform pg_sleep(random() * 0.02);\n  {hi}",
        h.trim_start()
    );
    let stragglers = "here.hi := case when exists (select from outlast._stragglers(here.a, here.b)) then 0 else (here.a).hi end;";
    let young = "t.young := pg_snapshot_xmax(t.snap);";
    type Pieces<'a> = Vec<(&'a str, &'a str)>;
    let faults: [(&str, &str, Pieces<'_>); 4] = [
        (
            "no stragglers",
            "_go_on",
            vec![(stragglers, "here.hi := (here.a).hi;")],
        ),
        (
            "no stragglers above xmax",
            "_tick",
            vec![(young, "t.young := null;")],
        ),
        ("h before hi", "_tick", vec![(h, ""), (hi, &h_first)]),
        (
            "an own transaction id before the tick",
            "_tick",
            vec![(
                "if pg_current_xact_id_if_assigned()",
                "perform pg_current_xact_id(), pg_sleep(random() * 0.02);\n  if false and pg_current_xact_id_if_assigned()",
            )],
        ),
    ];
    for (what, function, pieces) in faults {
        let mut found = false;
        for seed in 1..=10 {
            let house = House::new().await;
            if function == "_tick" {
                house.plant("_tick", &[&pieces[..], &GAPS].concat()).await;
            } else {
                house.plant(function, &pieces).await;
                house.plant("_tick", &GAPS).await;
            }
            let account = Crowd::of(seed).run(&house).await;
            println!("{what}, seed {seed}: {account}");
            found = !account.is_clean();
            if found {
                break;
            }
        }
        assert!(found, "{what}: not found");
    }
}
