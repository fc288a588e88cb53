//! Tests of a mounted vault, driven by real programs, and of the command line.

mod acl;
mod anchor;
mod attacks;
mod attacks_names;
mod caching;
mod change_times;
mod cli;
mod come_and_go;
mod confinement;
mod conformance;
mod control;
mod crash;
mod damage;
mod durable_names;
mod filesystem;
mod freezing;
mod fsx;
mod full_store;
mod hash;
mod hostile_store;
mod locking;
mod metrics;
mod owner;
mod programs;
mod random_tree;
mod reader;
mod reverse;
mod rotation;
mod shared;
mod short_names;
#[path = "../support/mod.rs"]
mod support;
mod synced;
mod users;
