//! One prerequisite of a mount: whether it is met, the cost if it is not, and the remedy.

use crate::cli::exit::Code;
use serde_json::{Value, json};

/// The result of one check.
pub struct Diagnosis {
    name: &'static str,
    found: String,
    lack: Option<Lack>,
    blocks: Option<Code>,
}

/// A missing or slow prerequisite.
struct Lack {
    state: &'static str,
    cost: String,
    mend: String,
}

impl Diagnosis {
    /// The prerequisite is met.
    pub fn ok(name: &'static str, found: impl ToString) -> Self {
        Diagnosis { name, found: found.to_string(), lack: None, blocks: None }
    }

    /// Works, but slower.
    pub fn slower(self, cost: impl ToString, mend: impl ToString) -> Self {
        self.lacking("slower", cost, mend)
    }

    /// Something does not work.
    pub fn missing(self, cost: impl ToString, mend: impl ToString) -> Self {
        self.lacking("missing", cost, mend)
    }

    fn lacking(self, state: &'static str, cost: impl ToString, mend: impl ToString) -> Self {
        Diagnosis { lack: Some(Lack { state, cost: cost.to_string(), mend: mend.to_string() }), ..self }
    }

    /// Declares that mounting fails with `code` if `needed`.
    pub fn blocks_if(self, needed: bool, code: Code) -> Self {
        Diagnosis { blocks: needed.then_some(code), ..self }
    }

    /// The exit code of a mount that fails because of this, and the finding's name.
    pub fn blocks(&self) -> Option<(Code, &'static str)> {
        Some((self.blocks?, self.name))
    }

    /// One line, followed by a second one with the remedy if there is a problem.
    pub fn text(&self) -> String {
        let Diagnosis { name, found, .. } = self;
        match &self.lack {
            None => format!("ok       {name:28} {found}\n"),
            Some(Lack { state, cost, mend }) => {
                format!("{state:8} {name:28} {found}: {cost}\n{:38}{mend}\n", "")
            }
        }
    }

    /// As an element of the list `checks`.
    pub fn json(&self) -> Value {
        let lack = self.lack.as_ref();
        json!({
            "name": self.name,
            "state": lack.map_or("ok", |lack| lack.state),
            "found": self.found,
            "cost": lack.map(|lack| &lack.cost),
            "mend": lack.map(|lack| &lack.mend),
            "blocks_mounting": self.blocks.is_some(),
        })
    }
}
