//! Enums that list their variants: one that is added cannot be left out of the list.

/// Declares an enum and its constant `ALL`. Wherever what is done depends on a variant, a `match` names every
/// one; the rest goes over `ALL`.
macro_rules! listed {
    ($(#[$about:meta])* pub enum $name:ident { $($(#[$doc:meta])* $variant:ident,)+ }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$doc])* $variant,)+
        }

        impl $name {
            /// Every one: `ALL[one as usize]` is `one`.
            pub const ALL: [$name; [$($name::$variant),+].len()] = [$($name::$variant),+];
        }
    };
}

pub(crate) use listed;
