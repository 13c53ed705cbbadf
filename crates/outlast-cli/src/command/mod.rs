//! The commands, one file each: what it takes, what it does, what it prints.

pub(crate) mod accounts;
pub(crate) mod apply;
pub(crate) mod audit;
pub(crate) mod check;
pub(crate) mod commands;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod consumers;
pub(crate) mod dead;
pub(crate) mod deployment;
pub(crate) mod dev;
pub(crate) mod doctor;
pub(crate) mod emit;
pub(crate) mod events;
pub(crate) mod incidents;
pub(crate) mod jobs;
pub(crate) mod migrate;
pub(crate) mod parked;
pub(crate) mod pause;
pub(crate) mod relay;
pub(crate) mod restore;
pub(crate) mod retention;
pub(crate) mod run;
pub(crate) mod unreadable;
pub(crate) mod verify;
pub(crate) mod webhooks;
