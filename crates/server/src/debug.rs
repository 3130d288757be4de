//! Messages that hold secrets print their names only.

use crate::pb;
use std::fmt;

macro_rules! unprintable {
    ($($message:ident),*) => {
        $(impl fmt::Debug for pb::$message {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($message)).finish_non_exhaustive()
            }
        })*
    };
}

unprintable!(
    UnitRow,
    StatusRow,
    KubeconfigResponse,
    CreateTokenResponse,
    LoginRequest,
    ManifestFile,
    OutputsResponse,
    LeasedTask
);
