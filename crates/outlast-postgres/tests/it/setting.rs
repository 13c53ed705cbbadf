//! Cluster settings: one list, one way in, and nothing that no reader could use.

use outlast_postgres::{
    Error,
    schema::Schema,
    setting::{self, Kind, Values},
};
use outlast_testkit::pg;

#[tokio::test]
async fn the_database_and_the_program_know_the_same_settings() {
    let database = pg::outlast().await;
    let sql = database.connect().await;
    let rows = sql
        .query(
            "select name, kind, standard, what from outlast._settings()",
            &[],
        )
        .await
        .unwrap();
    let theirs: Vec<[String; 4]> = rows
        .iter()
        .map(|row| [row.get(0), row.get(1), row.get(2), row.get(3)])
        .collect();
    let ours: Vec<[String; 4]> = setting::all()
        .iter()
        .map(|s| {
            let kind = match &s.kind {
                Kind::Duration => "duration".to_owned(),
                Kind::OneOf(words) => words.join("|"),
            };
            [s.name.into(), kind, s.standard.into(), s.what.into()]
        })
        .collect();
    assert_eq!(theirs, ours);
}

#[tokio::test]
async fn a_time_is_read_by_the_database_as_it_was_meant() {
    let database = pg::outlast().await;
    let mut sql = database.connect().await;
    for (text, seconds) in [
        ("90s", 90.0),
        ("36h", 129_600.0),
        ("1d 12h 5m", 129_900.0),
        ("1500ms", 1.5),
    ] {
        let mut wanted = Values::default();
        wanted.set("retention.log", text).unwrap();
        let shown = setting::plan(&sql, Schema::DEFAULT, &wanted).await.unwrap();
        setting::apply(&mut sql, Schema::DEFAULT, &wanted, &shown)
            .await
            .unwrap();
        let read: f64 = sql
            .query_one(
                "select extract(epoch from outlast._setting_interval('retention.log'))::float8",
                &[],
            )
            .await
            .unwrap()
            .get(0);
        assert_eq!(read, seconds, "{text}");
    }
}

#[tokio::test]
async fn what_no_reader_could_use_is_refused_and_nothing_of_it_is_kept() {
    let database = pg::outlast().await;
    let sql = database.connect().await;
    for (names, values) in [
        ("{wake,colour}", "{notify,red}"),
        ("{wake,retention.log}", "{notify,soon}"),
        ("{retention.inbox,wake}", "{2d,loud}"),
        ("{retention.inbox,retention.log}", "{2d,0s}"),
        ("{retention.inbox,retention.log}", "{2d,NULL}"),
    ] {
        let refused = sql
            .execute(
                "select outlast._apply($1::text::text[], $2::text::text[])",
                &[&names, &values],
            )
            .await
            .unwrap_err();
        assert_eq!(
            refused.code().map(|code| code.code()),
            Some("OL005"),
            "{names} {values}"
        );
    }
    let left: i64 = sql
        .query_one("select (select count(*) from outlast._setting) + (select count(*) from outlast._audit)", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(left, 0);
}

#[tokio::test]
async fn what_was_shown_is_what_is_applied() {
    let database = pg::outlast().await;
    let (mut mine, other) = (database.connect().await, database.connect().await);
    let mut wanted = Values::default();
    wanted.set("retention.log", "2d").unwrap();
    let shown = setting::plan(&mine, Schema::DEFAULT, &wanted)
        .await
        .unwrap();
    other
        .execute("select outlast._apply('{retention.inbox}', '{60d}')", &[])
        .await
        .unwrap();
    let refused = setting::apply(&mut mine, Schema::DEFAULT, &wanted, &shown)
        .await
        .unwrap_err();
    assert!(matches!(refused, Error::Config(_)), "{refused}");
    let now = setting::in_force(&mine, Schema::DEFAULT).await.unwrap();
    let of = |name: &str| {
        now.iter()
            .find(|one| one.name == name)
            .unwrap()
            .value
            .clone()
    };
    assert_eq!(
        (of("retention.log").as_str(), of("retention.inbox").as_str()),
        ("3d", "60d")
    );
}
