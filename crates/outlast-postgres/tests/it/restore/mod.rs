//! Restore: transaction ids that restarted, rewound history, and what a person's word lets go on.

mod chance;
mod hold;
mod rebase;
mod scene;
