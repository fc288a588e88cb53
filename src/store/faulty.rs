//! A file in memory that loses power, runs full and fails on command.
