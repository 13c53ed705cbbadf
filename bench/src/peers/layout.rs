//! How each workload is shown: what it is, what decides, and what else is told.

pub struct Layout {
    pub workload: &'static str,
    pub title: &'static str,
    pub lead: &'static str,
    /// Decides; shown with its least and greatest, and against `outlast, best` in the same round.
    pub main: Column,
    pub more_is_better: bool,
    pub columns: &'static [Column],
}

#[derive(Clone, Copy)]
pub struct Column {
    pub head: &'static str,
    pub number: &'static str,
    pub digits: usize,
}

const fn column(head: &'static str, number: &'static str, digits: usize) -> Column {
    Column {
        head,
        number,
        digits,
    }
}

const RATE: Column = column("units/s", "rate", 0);
const COST: &[Column] = &[
    column("WAL B", "wal", 0),
    column("server µs", "server", 1),
    column("client µs", "client", 1),
    column("transactions", "transactions", 3),
    column("connections", "connections", 0),
    column("dead rows", "dead", 2),
    column("twice", "duplicates", 0),
    column("lost", "losses", 0),
];

pub const LAYOUTS: &[Layout] = &[
    Layout {
        workload: "drain",
        title: "Drain of no-ops",
        lead: "A backlog is there, the worker starts, the database says when nothing is left. Each contestant gets as many units as it does in about 1.5 s. Costs are per unit.",
        main: RATE,
        more_is_better: true,
        columns: &[
            column("WAL B", "wal", 0),
            column("server µs", "server", 1),
            column("client µs", "client", 1),
            column("transactions", "transactions", 3),
            column("statements", "statements", 3),
            column("connections", "connections", 0),
            column("dead rows", "dead", 2),
            column("twice", "duplicates", 0),
            column("lost", "losses", 0),
        ],
    },
    Layout {
        workload: "enqueue",
        title: "Units in a business transaction",
        lead: "BEGIN, one row, the units, COMMIT, against the same without the units, by the same driver in the same database. `with ÷ without` decides. Joined: in the same statement as the row, or pipelined with it. Added costs are per unit.",
        main: column("with ÷ without", "ratio", 2),
        more_is_better: true,
        columns: &[
            column("transactions/s", "rate", 0),
            column("without/s", "without", 0),
            column("units/s", "units_per_second", 0),
            column("server µs added", "server_added", 1),
            column("WAL B added", "wal_added", 0),
        ],
    },
    Layout {
        workload: "trickle",
        title: "Latency under steady traffic",
        lead: "One connection commits at a steady rate; milliseconds from the answer to COMMIT to the start of the handler, and from the commit of the business row to the commit of the completion, both by the database's commit timestamps. The own peak is what one connection writes or one worker does, whichever is less.",
        main: column("start p99 ms", "p99", 2),
        more_is_better: false,
        columns: &[
            column("start p50 ms", "p50", 2),
            column("start max ms", "max", 1),
            column("done p50 ms", "done_p50", 2),
            column("done p99 ms", "done_p99", 2),
            column("rate/s", "asked", 0),
            column("server µs", "server", 0),
            column("transactions", "transactions", 1),
            column("twice", "duplicates", 0),
            column("lost", "losses", 0),
        ],
    },
    Layout {
        workload: "handlers",
        title: "Handlers of 1 ms, 50 at once",
        lead: "As the drain, with handlers that sleep a millisecond. Nobody can do more than 50,000/s.",
        main: RATE,
        more_is_better: true,
        columns: COST,
    },
    Layout {
        workload: "fan-out",
        title: "Fan-out to five consumers",
        lead: "Units are completions. Where a fact has no consumers of its own it is enqueued once for each.",
        main: RATE,
        more_is_better: true,
        columns: COST,
    },
    Layout {
        workload: "payload",
        title: "Payloads",
        lead: "The drain with payloads of another size.",
        main: RATE,
        more_is_better: true,
        columns: COST,
    },
    Layout {
        workload: "two-workers",
        title: "Two processes",
        lead: "The drain by one and by two worker processes.",
        main: RATE,
        more_is_better: true,
        columns: COST,
    },
    Layout {
        workload: "snapshot",
        title: "Under an open snapshot",
        lead: "One database is filled and drained again and again while somebody holds a REPEATABLE READ snapshot; `ratio` is the last drain against the first one, which was without.",
        main: RATE,
        more_is_better: true,
        columns: &[
            column("ratio", "ratio", 2),
            column("drains", "cycles", 0),
            column("WAL B", "wal", 0),
            column("server µs", "server", 1),
            column("dead rows", "dead", 2),
        ],
    },
    Layout {
        workload: "retained",
        title: "With finished units kept",
        lead: "Before and after the contestant itself has finished and kept many: a million, or what it does in 150 s. `ratio` is after against before.",
        main: RATE,
        more_is_better: true,
        columns: &[
            column("ratio", "ratio", 2),
            column("kept", "kept", 0),
            column("WAL B", "wal", 0),
            column("server µs", "server", 1),
            column("dead rows", "dead", 2),
        ],
    },
    Layout {
        workload: "kill",
        title: "SIGKILL of one of two workers at half",
        lead: "Until everything is done by the other one, at a lease of 2 s or the nearest that can be set; twice: units whose handler was started again.",
        main: column("seconds", "seconds", 1),
        more_is_better: false,
        columns: &[
            column("units", "units", 0),
            column("twice", "duplicates", 0),
            column("never started", "never", 0),
            column("not done", "losses", 0),
        ],
    },
    Layout {
        workload: "stop",
        title: "SIGSTOP past the lease, and wake-up",
        lead: "A worker is frozen in its handler; another one gets the unit; the first wakes up and says that it is done while the other is still at work, at a lease of 2 s or the nearest that can be set. Stale 1: it was believed.",
        main: column("stale", "stale", 0),
        more_is_better: false,
        columns: &[
            column("taken over after s", "taken_after", 1),
            column("handled", "handled", 0),
            column("not done", "losses", 0),
        ],
    },
    Layout {
        workload: "restart",
        title: "PostgreSQL dies at half and comes back",
        lead: "`pg_ctl stop -m immediate` and a start while a worker is busy; seconds until everything is done.",
        main: column("seconds", "seconds", 1),
        more_is_better: false,
        columns: &[
            column("units", "units", 0),
            column("twice", "duplicates", 0),
            column("never started", "never", 0),
            column("not done", "losses", 0),
        ],
    },
    Layout {
        workload: "idle",
        title: "A worker with nothing to do",
        lead: "After a minute of quiet, over 20 s; per second.",
        main: column("server % of a core", "server_percent", 2),
        more_is_better: false,
        columns: &[
            column("client % of a core", "client_percent", 2),
            column("statements/s", "statements", 1),
            column("WAL B/s", "wal", 0),
            column("connections", "connections", 0),
        ],
    },
];
