//! The tables of one service.

use crate::table::AnyTable;

pub trait ServiceTables {
    fn tables(&self) -> Vec<&dyn AnyTable>;
    fn tables_mut(&mut self) -> Vec<&mut dyn AnyTable>;
}

/// Declares `pub struct Tables` with a table for each type of object of a service.
macro_rules! tables {
    ($($field:ident: $object:ty),+ $(,)?) => {
        #[derive(Default)]
        pub struct Tables {
            $(pub $field: crate::table::Table<$object>,)+
        }

        impl crate::aws::tables::ServiceTables for Tables {
            fn tables(&self) -> Vec<&dyn crate::table::AnyTable> {
                vec![$(&self.$field),+]
            }

            fn tables_mut(&mut self) -> Vec<&mut dyn crate::table::AnyTable> {
                vec![$(&mut self.$field),+]
            }
        }
    };
}
pub(super) use tables;

/// Makes a type an object that is kept until it is deleted, and then gone at once: its name, the field that is its id, its keys,
/// and its row in the ledger. Without a row, the ledger does not show it.
macro_rules! object {
    ($type:ty, $name:literal, $id:ident, |$this:ident| $keys:expr $(, $ledger:expr)?) => {
        impl crate::table::Object for $type {
            const TYPE: &'static str = $name;
            const IN_LEDGER: bool = crate::aws::tables::any(&[$(stringify!($ledger))?]);

            fn id(&self) -> &str {
                &self.$id
            }

            fn keys(&self) -> Vec<String> {
                fn keys($this: &$type) -> Vec<String> {
                    let _ = $this;
                    $keys
                }
                keys(self)
            }

            fn gone_at(&self) -> Option<crate::clock::SimTime> {
                None
            }

            fn ledger(&self, _: crate::clock::SimTime) -> serde_json::Value {
                let $this = self;
                let _ = $this;
                let row = serde_json::Value::Null;
                $(let row = { let _ = row; $ledger };)?
                row
            }
        }
    };
}
pub(super) use object;

/// Whether there is any.
pub const fn any(rows: &[&str]) -> bool {
    !rows.is_empty()
}
