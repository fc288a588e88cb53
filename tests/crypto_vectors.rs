//! Published vectors, and answers of independent implementations, for every primitive.

#[path = "vectors/mod.rs"]
mod vectors;
