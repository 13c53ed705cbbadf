//! Bad input: each its own error, nothing written.

use super::Office;
use crate::sql;

#[tokio::test]
async fn what_cannot_be_marked_is_refused_with_a_code_and_nothing_is_written() {
    let office = Office::new().await;
    let long = "x".repeat(501);
    let large = "x".repeat(65_536);
    let refs = "x".repeat(16_384);
    let bad = [
        ("changed(null, 'a')".to_owned(), "OL005"),
        ("changed('Crm', 'a')".to_owned(), "OL005"),
        ("changed('crm', null)".to_owned(), "OL005"),
        ("changed('crm', '')".to_owned(), "OL005"),
        (format!("changed('crm', '{long}')"), "OL005"),
        ("changed('crm', 'a', tenant => null)".to_owned(), "OL005"),
        ("changed('crm', 'a', tenant => e'a\\nb')".to_owned(), "OL005"),
        ("changed('crm', 'a', exclusive => '')".to_owned(), "OL005"),
        (format!("changed('crm', 'a', exclusive => '{long}')"), "OL005"),
        ("changed('crm', 'a', version => 0)".to_owned(), "OL005"),
        ("changed('crm', 'a', payload => '{')".to_owned(), "OL007"),
        ("changed('crm', 'a', payload => '1', bytes => '1')".to_owned(), "OL005"),
        (format!("changed('crm', 'a', payload => '\"{large}\"')"), "OL006"),
        ("changed('crm', 'a', bytes => '1', content_type => 'x')".to_owned(), "OL005"),
        (format!("changed('crm', 'a', actor => '{long}')"), "OL005"),
        ("deleted('crm', 'a', null)".to_owned(), "OL005"),
        ("deleted('crm', 'a', '1', refs_bytes => '1')".to_owned(), "OL005"),
        ("deleted('crm', 'a', '{')".to_owned(), "OL007"),
        (format!("deleted('crm', 'a', '\"{refs}\"')"), "OL006"),
        ("deleted('crm', '', '1')".to_owned(), "OL005"),
        ("deleted('crm', 'a', null, refs_bytes => '1', refs_codec_key => 'k', refs_digest => '1')".to_owned(), "OL005"),
    ];
    for (call, code) in bad {
        let call = format!("select outlast.{call}");
        let answer = office.client.execute(&call, &[]).await;
        assert_eq!(sql::state(answer), code, "{call:.80}");
    }
    assert_eq!(
        office
            .count("select count(*) from outlast._entity_mark")
            .await,
        0
    );
    let good = [
        "changed('crm', 'a', traceparent => 'nonsense')",
        "changed('crm', 'a', bytes => '\\xff', codec_key => 'k1')",
        "deleted('crm', 'a', null, refs_bytes => '\\xff', refs_codec_key => 'k1')",
        "deleted('crm', 'a', null, refs_bytes => '\\xff', refs_codec_key => 'k1', refs_digest => '\\x00112233445566778899aabbccddeeff')",
    ];
    for call in good {
        office
            .count(&format!("select 1::bigint from outlast.{call}"))
            .await;
    }
    assert_eq!(office.count("select count(*) from outlast._claim_jobs('{entity:crm}', '{1}', '{5}', 4194304, 60000)").await, 1);
    assert_eq!(
        office
            .count("select count(*) from outlast._tombstone")
            .await,
        2
    );
    office.must_be_sound().await;
}
