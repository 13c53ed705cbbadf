//! Random walks of workers that die anywhere, against providers of three kinds whose ledger is the truth.

use std::collections::HashMap;

use fastrand::Rng;
use tokio_postgres::Client;
use uuid::Uuid;

use super::{Contract, Desk, KEYED, KEYLESS, LOOKS, Try, claim, sent};
use crate::seeds::seeds;
use crate::sql;

const COMMANDS: usize = 40;

/// What a provider did, by the key that it was given.
#[derive(Default)]
struct Ledger {
    sends: HashMap<String, u32>,
    effects: HashMap<String, u32>,
    /// Requests that take long: nobody waits for their answers any more.
    late: Vec<(Kind, Try)>,
}

/// A provider: how it is dealt with, and whether it answers a repeated key with a refusal, as some do.
#[derive(Clone, Copy)]
struct Kind {
    contract: Contract,
    keyed: bool,
    answers_duplicate: bool,
}

const KINDS: [(&str, Kind); 4] = [
    (
        "keyed",
        Kind {
            contract: KEYED,
            keyed: true,
            answers_duplicate: false,
        },
    ),
    (
        "duplicate",
        Kind {
            contract: Contract {
                looks: true,
                ..KEYED
            },
            keyed: true,
            answers_duplicate: true,
        },
    ),
    (
        "looks",
        Kind {
            contract: LOOKS,
            keyed: false,
            answers_duplicate: false,
        },
    ),
    (
        "keyless",
        Kind {
            contract: KEYLESS,
            keyed: false,
            answers_duplicate: false,
        },
    ),
];

impl Ledger {
    /// One request that arrives: what the provider answers.
    fn apply(&mut self, kind: Kind, key: &str) -> &'static str {
        *self.sends.entry(key.to_owned()).or_default() += 1;
        let effects = self.effects.entry(key.to_owned()).or_default();
        if kind.keyed && *effects > 0 {
            return if kind.answers_duplicate {
                "rejected"
            } else {
                "settled"
            };
        }
        *effects += 1;
        "settled"
    }

    fn effects(&self, key: &str) -> u32 {
        self.effects.get(key).copied().unwrap_or_default()
    }

    fn is_under_way(&self, key: &str) -> bool {
        self.late.iter().any(|(_, one)| one.provider_key == key)
    }
}

/// One walk; what is wrong at its end.
async fn walk(desk: &Desk, seed: u64) -> Result<(), String> {
    let mut rng = Rng::with_seed(seed);
    let mut ledger = Ledger::default();
    let mut clients: Vec<Client> = Vec::new();
    for _ in 0..3 {
        clients.push(desk.house.connect().await);
    }
    for n in 0..COMMANDS {
        let exclusive = if n % 5 == 0 {
            ", exclusive => 'one'"
        } else {
            ""
        };
        desk.accept_as(
            KINDS[n % 4].0,
            &n.to_string(),
            &format!(", attempts => 200{exclusive}"),
        )
        .await;
    }
    let mut idle = 0;
    for step in 0.. {
        // Later the workers live longer, so that it comes to an end.
        let dies = |rng: &mut Rng| step < 400 && rng.u32(0..8) == 0;
        let client = &clients[rng.usize(0..clients.len())];
        let (name, kind) = KINDS[rng.usize(0..4)];
        if rng.u32(0..6) == 0 {
            desk.lose().await;
        }
        if !ledger.late.is_empty() && rng.u32(0..3) == 0 {
            let (kind, one) = ledger.late.swap_remove(rng.usize(0..ledger.late.len()));
            let answer = ledger.apply(kind, &one.provider_key);
            record(client, &one, answer).await?;
        }
        desk.come().await;
        let tries = claim(client, name, 4).await.expect("claims");
        idle = match tries.is_empty() && ledger.late.is_empty() {
            true => idle + 1,
            false => 0,
        };
        // With a fault there may be one that comes and goes for ever.
        if idle > 40 || step > 1500 {
            break;
        }
        for one in tries {
            if dies(&mut rng) {
                break;
            }
            if let Err(error) = one_try(client, kind, &one, &mut ledger, &mut rng, step < 400).await
            {
                return Err(format!("{name}: {error}"));
            }
        }
    }
    desk.lose().await;
    judge(desk, &ledger).await
}

/// What a worker does with one, unless it dies on the way.
async fn one_try(
    client: &Client,
    kind: Kind,
    one: &Try,
    ledger: &mut Ledger,
    rng: &mut Rng,
    wild: bool,
) -> Result<(), String> {
    let dies = |rng: &mut Rng| wild && rng.u32(0..10) == 0;
    if one.next == 'l' {
        let found = match (ledger.effects(&one.provider_key), rng.u32(0..4)) {
            (_, 0) => "unsure",
            (0, _) if ledger.is_under_way(&one.provider_key) => "unsure",
            (0, _) => "not_applied",
            _ => "settled",
        };
        return record(client, one, found).await;
    }
    if !sent(client, one, kind.contract)
        .await
        .map_err(|error| format!("{error:?}"))?
        || dies(rng)
    {
        return Ok(());
    }
    let fail = async |class: &str| -> Result<(), String> {
        let sql = "select outlast.fail($1, $2, $3, 'because')";
        client
            .query_one(sql, &[&one.token, &one.id, &class])
            .await
            .map(drop)
            .map_err(|error| format!("{error:?}"))
    };
    match rng.u32(0..8) {
        0 => return fail("retry").await,           // never left
        1 if wild => return fail("unknown").await, // lost on the way there
        2 if wild => {
            ledger.late.push((kind, one.clone()));
            return fail("unknown").await;
        }
        _ => {}
    }
    let answer = ledger.apply(kind, &one.provider_key);
    if dies(rng) {
        return Ok(());
    }
    if wild && rng.u32(0..6) == 0 {
        return fail("unknown").await; // the reply was lost
    }
    record(client, one, answer).await
}

async fn record(client: &Client, one: &Try, result: &str) -> Result<(), String> {
    let sql = "select outlast.record($1, $2, $3, case $3 when 'settled' then '{}'::bytea end, 'ref', 'because')";
    let recorded = client.query_one(sql, &[&one.token, &one.id, &result]).await;
    recorded.map(drop).map_err(|error| format!("{error:?}"))
}

/// The tables against the ledger.
async fn judge(desk: &Desk, ledger: &Ledger) -> Result<(), String> {
    let sql = "select c.name, c.key, c.state, c.provider_key, c.sent, c.id, (select count(*) from outlast.event e where e.causation_id = c.id) from outlast.command c";
    for row in desk.client.query(sql, &[]).await.expect("looks") {
        let (name, key, state): (String, String, String) = (row.get(0), row.get(1), row.get(2));
        let (provider, was_sent, id, told): (String, bool, Uuid, i64) =
            (row.get(3), row.get(4), row.get(5), row.get(6));
        let (effects, sends) = (
            ledger.effects(&provider),
            ledger.sends.get(&provider).copied().unwrap_or_default(),
        );
        let about = format!("{name} {key} {id} is {state}: {effects} effects of {sends} sends");
        let fits = match state.as_str() {
            "settled" => effects == 1,
            "unknown" => was_sent && effects <= 1 && name == "keyless",
            // Behind one that a person has to decide about.
            "waiting" => effects == 0,
            _ => false,
        };
        if !fits || name == "keyless" && sends > 1 {
            return Err(about);
        }
        if (told == 1) != (state == "settled") {
            return Err(format!("{about}, told {told} times"));
        }
    }
    match sql::broken(&desk.client).await {
        broken if broken.is_empty() => Ok(()),
        broken => Err(broken.join("; ")),
    }
}

#[tokio::test]
async fn whatever_dies_keyed_and_asked_providers_see_one_effect_and_keyless_ones_one_send() {
    for seed in seeds(3) {
        let desk = Desk::new().await;
        if let Err(wrong) = walk(&desk, seed).await {
            panic!("seed {seed}: {wrong}");
        }
    }
}

/// Walks with these pieces exchanged; one of them must go wrong.
async fn must_be_found_out(faults: &[(&str, &str, &str)]) {
    for seed in 1..=6 {
        let desk = Desk::new().await;
        for (function, old, new) in faults {
            desk.house.plant(function, &[(old, new)]).await;
        }
        if walk(&desk, seed).await.is_err() {
            return;
        }
    }
    panic!("not found out: {faults:?}");
}

#[tokio::test]
async fn sending_again_whatever_the_provider_is_would_be_found_out() {
    must_be_found_out(&[
        (
            "_when_unknown",
            "(m).first_sent_at + make_interval(secs => (m).resend_ms / 1000.0) > at + interval '45 seconds'",
            "true",
        ),
        (
            "_sent",
            "if m.first_sent_at + make_interval(secs => coalesce(resend_ms, 0) / 1000.0) <= at + make_interval(secs => lease_ms / 1000.0) + interval '30 seconds' then",
            "if false then",
        ),
    ])
    .await;
}

#[tokio::test]
async fn believing_a_refusal_after_an_ambiguous_send_would_be_found_out() {
    must_be_found_out(&[(
        "_record",
        "and not asked and m.ambiguous then",
        "and false then",
    )])
    .await;
}

#[tokio::test]
async fn believing_a_late_refusal_of_one_of_several_sends_would_be_found_out() {
    must_be_found_out(&[("_may_be_an_echo", "count(*) > 1", "false")]).await;
}

#[tokio::test]
async fn taking_a_lost_workers_command_for_one_that_had_not_left_would_be_found_out() {
    must_be_found_out(&[(
        "_lose_command",
        "elsif m.state = 'running' then",
        "elsif false then",
    )])
    .await;
}
