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
