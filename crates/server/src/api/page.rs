//! Pages of lists: their sizes, and the tokens that say where the next one begins.

use super::arguments::invalid_argument;
use crate::fault::Fault;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use berth_model::ResourceId;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub const PAGE_DEFAULT: u32 = 100;
pub const PAGE_MAX: u32 = 1000;
const TOKEN_BYTES_MAX: usize = 4096;

/// 0 means: as many as usual.
pub fn size(asked: u32) -> Result<u32, Fault> {
    match asked {
        0 => Ok(PAGE_DEFAULT),
        asked if asked <= PAGE_MAX => Ok(asked),
        _ => Err(invalid_argument("pageSize", &format!("a page has at most {PAGE_MAX}"))),
    }
}

/// Opaque to callers, and no secret.
pub fn token<T: Serialize>(position: &T) -> String {
    serde_json::to_vec(position).map(|bytes| URL_SAFE_NO_PAD.encode(bytes)).unwrap_or_default()
}

pub fn position<T: DeserializeOwned>(token: &str) -> Result<Option<T>, Fault> {
    if token.is_empty() {
        return Ok(None);
    }
    let wrong = || invalid_argument("pageToken", "it is not one that this list gave");
    if token.len() > TOKEN_BYTES_MAX {
        return Err(wrong());
    }
    let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| wrong())?;
    if bytes.contains(&0) || bytes.windows(6).any(|six| six == b"\\u0000") {
        return Err(wrong());
    }
    serde_json::from_slice(&bytes).map(Some).map_err(|_| wrong())
}

pub fn after(token: &str) -> Result<Option<ResourceId>, Fault> {
    position(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_lead_back_and_others_are_refused() {
        let id = ResourceId::new("CivoVpc", "net");
        assert_eq!(after(&token(&id)).unwrap(), Some(id));
        assert_eq!(after("").unwrap(), None);
        for bad in ["x", "e30", &"A".repeat(5000), "bm90IGpzb24"] {
            assert!(after(bad).is_err(), "{bad}");
        }
        assert_eq!((size(0).unwrap(), size(7).unwrap()), (100, 7));
        assert!(size(1001).is_err());
    }
}
