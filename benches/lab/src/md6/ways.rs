//! How threads share the nodes of MD6's trees: what is launched for a level.

use warpcrypt::crypto::hash::md6::forest::are_few;

/// How threads share nodes.
pub(super) struct Way {
    pub name: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    /// The publication's: three kernels a level, with a thread a block, 16, and one.
    Three,
    /// 16 threads a node, so many a block.
    Shared(u32),
    /// A thread a node, so many a block.
    Alone(u32),
    /// A thread a node, and 16 where there are few nodes; so many a block.
    Chosen(u32),
}

/// The paper's first, what `hash` uses last.
pub(super) const WAYS: [Way; 5] = [
    Way { name: "three kernels, 16 threads a node", kind: Kind::Three },
    Way { name: "16 threads, a node a block", kind: Kind::Shared(16) },
    Way { name: "16 threads, 16 nodes a block", kind: Kind::Shared(256) },
    Way { name: "a thread a node", kind: Kind::Alone(64) },
    Way { name: "a thread a node, 16 where few", kind: Kind::Chosen(64) },
];
/// What goes with transfers unless others are named.
pub(super) const TRAVELS: &Way = &WAYS[4];
/// The kernels of `Kind::Three` in their order, with threads of a block and nodes of a thread.
const THREE: [(&str, u32, f64); 3] = [("pack", 1, 1.0), ("rounds", 16, 1.0 / 16.0), ("rewrite", 1, 4.0)];
/// Bytes of `work` for each node.
pub(super) const WORK: usize = 896;
/// A kernel of a level.
pub(super) struct Step {
    pub name: String,
    /// Threads of a block.
    pub threads: u32,
    /// Nodes of a thread.
    pub nodes: f64,
    /// Bytes of dynamic shared memory.
    pub shared: usize,
}

impl Way {
    /// The kernels of a level of so many nodes, of so many words each.
    pub fn steps(&self, nodes: u32, processors: usize, words: usize) -> Vec<Step> {
        let alone = |threads| Step { name: format!("md6_alone_{words}"), threads, nodes: 1.0, shared: 0 };
        let shared = |threads: u32| Step {
            name: format!("md6_shared_{words}"),
            threads,
            nodes: 1.0 / 16.0,
            shared: (words + 48) * threads as usize,
        };
        match self.kind {
            Kind::Three => THREE
                .map(|(name, threads, nodes)| Step { name: format!("md6_{name}"), threads, nodes, shared: 0 })
                .into(),
            Kind::Shared(threads) => vec![shared(threads)],
            Kind::Chosen(threads) if are_few(nodes, processors) => vec![shared(threads)],
            Kind::Alone(threads) | Kind::Chosen(threads) => vec![alone(threads)],
        }
    }

    /// Whether it is the publication's, which has `work` as one parameter more.
    pub fn has_three(&self) -> bool {
        matches!(self.kind, Kind::Three)
    }
}
