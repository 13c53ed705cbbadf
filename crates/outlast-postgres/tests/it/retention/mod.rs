//! The life of what is finished: what may be removed, when, and what is remembered of it.

mod settings;
