//! What is made larger, in which steps, and what is measured beside it.

use super::{Size, scene::Scene, work::Work};

pub struct Axis {
    pub name: &'static str,
    /// What grows, as a table says it.
    pub what: &'static str,
    /// From the smallest value on: all others are compared with the first.
    pub values: Vec<i64>,
    pub works: Vec<Work>,
    pub scene: fn(i64) -> Scene,
}

pub fn all(size: Size) -> Vec<Axis> {
    use Work::{Drain, Emit, Trickle};
    let steps = |smoke: &[i64], usual: &[i64], full: &[i64]| match size {
        Size::Smoke => smoke.to_vec(),
        Size::Usual => usual.to_vec(),
        Size::Full => [usual, full].concat(),
    };
    vec![
        Axis {
            name: "backlog",
            what: "waiting events",
            values: steps(
                &[1_000, 5_000],
                &[10_000, 100_000, 1_000_000],
                &[10_000_000],
            ),
            works: vec![Drain],
            scene: |waiting| Scene {
                waiting,
                ..Scene::default()
            },
        },
        Axis {
            name: "consumers",
            what: "consumers",
            values: steps(&[5], &[1, 5, 20, 50], &[]),
            works: vec![Drain, Trickle],
            scene: |consumers| Scene {
                consumers,
                ..Scene::default()
            },
        },
        Axis {
            name: "keys",
            what: "keys, consumer not ordered",
            values: steps(&[1_000], &[1, 1_000, 1_000_000], &[]),
            works: vec![Drain, Emit],
            scene: |keys| Scene {
                keys,
                ..Scene::default()
            },
        },
        Axis {
            name: "ordered-keys",
            what: "keys, ordered consumer",
            values: steps(&[1_000], &[1, 16, 1_000, 1_000_000], &[]),
            works: vec![Drain, Trickle],
            scene: |keys| Scene {
                keys,
                ordered: true,
                ..Scene::default()
            },
        },
        Axis {
            name: "tenants",
            what: "tenants with a backlog, consumer not ordered",
            values: steps(&[4], &[1, 4, 16, 64, 1_000, 10_000], &[]),
            works: vec![Drain, Trickle],
            scene: |tenants| Scene {
                tenants,
                ..Scene::default()
            },
        },
        Axis {
            name: "ordered-tenants",
            what: "tenants with a backlog, ordered consumer, 1,000 keys",
            values: steps(&[4], &[1, 4, 16, 10_000], &[]),
            works: vec![Drain],
            scene: |tenants| Scene {
                tenants,
                keys: 1_000,
                ordered: true,
                ..Scene::default()
            },
        },
        Axis {
            name: "retained",
            what: "finished events kept, in the log and the inbox",
            values: steps(&[20_000], &[0, 100_000, 1_000_000], &[10_000_000]),
            works: vec![Drain, Trickle, Emit],
            scene: |history| Scene {
                history,
                ..Scene::default()
            },
        },
        Axis {
            name: "writers",
            what: "open transactions that have emitted",
            values: steps(&[5], &[0, 5, 50], &[]),
            works: vec![Drain, Trickle],
            scene: |writers| Scene {
                writers,
                ..Scene::default()
            },
        },
        Axis {
            name: "snapshot",
            what: "batches since an open snapshot was taken (0: none is open)",
            values: steps(&[50], &[0, 1, 10_000], &[100_000]),
            works: vec![Drain, Trickle],
            scene: |snapshot| Scene {
                snapshot,
                ..Scene::default()
            },
        },
    ]
}
