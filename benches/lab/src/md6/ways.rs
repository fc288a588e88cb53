//! How threads share the nodes of MD6's trees: the launches for a level.

use crypto::hash::md6::forest::are_few;

/// How threads share nodes.
pub(super) struct Way {
    pub name: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    /// The publication's: three kernels per level, with blocks of one, 16 and one thread.
    Three,
    /// 16 threads per node; this many threads per block.
    Shared(u32),
    /// One thread per node; this many threads per block.
    Alone(u32),
    /// One thread per node, but 16 if there are few nodes; this many threads per block.
    Chosen(u32),
}

/// The paper's way first, and the one that `hash` uses last.
pub(super) const WAYS: [Way; 5] = [
    Way { name: "three kernels, 16 threads a node", kind: Kind::Three },
    Way { name: "16 threads, a node a block", kind: Kind::Shared(16) },
    Way { name: "16 threads, 16 nodes a block", kind: Kind::Shared(256) },
    Way { name: "a thread a node", kind: Kind::Alone(64) },
    Way { name: "a thread a node, 16 where few", kind: Kind::Chosen(64) },
];
/// The way measured with transfers, unless others are named.
pub(super) const TRAVELS: &Way = &WAYS[4];
/// The kernels of `Kind::Three`, in order, with threads per block and nodes per thread.
const THREE: [(&str, u32, f64); 3] = [("pack", 1, 1.0), ("rounds", 16, 1.0 / 16.0), ("rewrite", 1, 4.0)];
/// Bytes of `work` per node.
pub(super) const WORK: usize = 896;
/// A kernel of a level.
pub(super) struct Step {
    pub name: String,
    /// Threads per block.
    pub threads: u32,
    /// Nodes per thread.
    pub nodes: f64,
    /// Bytes of dynamic shared memory.
    pub shared: usize,
}

impl Way {
    /// The kernels for a level of `nodes` nodes, with `words` words each.
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

    /// Whether it is the publication's way, which takes `work` as an additional parameter.
    pub fn has_three(&self) -> bool {
        matches!(self.kind, Kind::Three)
    }
}
