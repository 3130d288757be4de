//! How many calls an account may send.

use super::transport::is_loopback;
use governor::Quota;
use reqwest::Url;
use std::num::NonZeroU32;
use std::time::Duration;

/// The limit to keep to: what the account says, else the cloud's own. A sandbox on this machine has none.
pub fn limit(base_url: &str, asked_per_second: u32, usual_per_second: f64, usual_burst: u32) -> (f64, u32) {
    const UNLIMITED: (f64, u32) = (100_000.0, 100_000);
    match asked_per_second {
        0 if Url::parse(base_url).is_ok_and(|url| is_loopback(&url)) => UNLIMITED,
        0 => (usual_per_second, usual_burst),
        asked => (f64::from(asked), asked),
    }
}

pub fn quota(per_second: f64, burst: u32) -> Quota {
    let per_second = if per_second.is_finite() && per_second > 0.0 { per_second } else { 1.0 };
    let burst = NonZeroU32::new(burst).unwrap_or(NonZeroU32::MIN);
    Quota::with_period(Duration::from_secs_f64(1.0 / per_second.min(1_000_000.0)))
        .unwrap_or(Quota::per_second(NonZeroU32::MIN))
        .allow_burst(burst)
}
