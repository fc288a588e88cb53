//! Rules that a test can break by name, to see that what they prevent is then found. In every other build all of them hold.

/// Makes `holds` for the `Rule` of the module where it stands, and for tests `break_rule`.
macro_rules! breakable {
    () => {
        /// Whether a rule holds.
        #[cfg(not(test))]
        pub(super) const fn holds(_: Rule) -> bool {
            true
        }

        #[cfg(test)]
        thread_local! {
            static BROKEN: std::cell::Cell<Option<Rule>> = const { std::cell::Cell::new(None) };
        }

        /// Whether a rule holds on this thread.
        #[cfg(test)]
        pub(super) fn holds(rule: Rule) -> bool {
            BROKEN.get() != Some(rule)
        }

        /// Breaks one rule on this thread, or none.
        #[cfg(test)]
        pub(super) fn break_rule(rule: Option<Rule>) {
            BROKEN.set(rule);
        }
    };
}
pub(super) use breakable;
