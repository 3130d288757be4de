//! Addresses of APIs that someone else chose: an Account on a server. What answers on the machine itself, or on its link, such as
//! the metadata service of the cloud that it runs in, must not be reachable by a user who may only write an Account.

use crate::registry;
use berth_engine::handler::{Outcome, Trouble};
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// How long a name is looked up before an Account is taken without it: a worker elsewhere may know it.
const LOOKED_UP_WITHIN: Duration = Duration::from_secs(2);

/// Whether an address is of the machine itself, of its link, or of nobody, in whatever form it is written.
pub fn is_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_local_v4(ip),
        IpAddr::V6(ip) => is_local_v6(ip),
    }
}

fn is_local_v4(ip: Ipv4Addr) -> bool {
    ip.is_loopback() || ip.is_link_local() || ip.is_broadcast() || ip.is_multicast() || ip.octets()[0] == 0
}

fn is_local_v6(ip: Ipv6Addr) -> bool {
    let part = ip.segments();
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_local_v4(Ipv4Addr::new(a, b, c, d))
    };
    let link = part[0] & 0xffc0 == 0xfe80;
    let holds_v4 = match part {
        // Mapped, compatible, translated; NAT64; 6to4.
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] | [0, 0, 0, 0, 0xffff, 0, high, low] => embedded(high, low),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => embedded(high, low),
        [0x2002, high, low, ..] => embedded(high, low),
        _ => false,
    };
    ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || link || holds_v4
}

/// Scheme, host and port in their one form; `None` for what is no address of an API.
pub fn origin(url: &str) -> Option<String> {
    let url = Url::parse(url.trim()).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
    url.host_str()?;
    Some(url.origin().ascii_serialization())
}

fn refused(url: &str) -> Trouble {
    let variables: Vec<&str> = registry::clouds().map(|cloud| cloud.variables.api_url).collect();
    Trouble::refused(format!("{url} is an address of the machine itself or of its link, which no Account may name"))
        .help("give the address of the cloud's API, or leave `apiUrl` out")
        .help(format!("where the worker's machine knows the address, set it there, in {}", variables.join(" or ")))
}

/// Refuses an address that is plainly local, before anything is looked up.
pub fn check(url: &str) -> Outcome<()> {
    let host = Url::parse(url.trim()).ok().and_then(|url| url.host_str().map(str::to_ascii_lowercase));
    let Some(host) = host else { return Err(Trouble::refused(format!("`{url}` is not the address of an API"))) };
    let bare = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
    let named = bare == "localhost" || bare.ends_with(".localhost");
    match named || bare.parse().is_ok_and(is_local) {
        true => Err(refused(url)),
        false => Ok(()),
    }
}

/// The same, with what the name stands for now. A name that nobody here knows is let pass: it is looked up again, and checked,
/// when it is called.
pub async fn check_now(url: &str) -> Outcome<()> {
    check(url)?;
    let Some(parsed) = Url::parse(url.trim()).ok() else { return Ok(()) };
    let (Some(host), Some(port)) = (parsed.host_str(), parsed.port_or_known_default()) else { return Ok(()) };
    let looked_up = tokio::time::timeout(LOOKED_UP_WITHIN, tokio::net::lookup_host((host, port))).await;
    let Ok(Ok(mut found)) = looked_up else { return Ok(()) };
    if found.any(|address| is_local(address.ip())) { Err(refused(url)) } else { Ok(()) }
}

/// Looks names up and gives no local address of them: at the moment of the call, whatever the name stood for before.
pub(crate) struct NotLocal;

impl Resolve for NotLocal {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            if found.iter().any(|address| is_local(address.ip())) {
                return Err(refused(name.as_str()).to_string().into());
            }
            let found: Addrs = Box::new(found.into_iter());
            Ok(found)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_addresses_are_known_in_every_form() {
        for text in [
            "127.0.0.1",
            "127.255.0.9",
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "255.255.255.255",
            "224.0.0.1",
            "::1",
            "::",
            "fe80::1",
            "febf::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "::ffff:0:127.0.0.1",
            "64:ff9b::a9fe:a9fe",
            "2002:7f00:1::",
        ] {
            assert!(is_local(text.parse().unwrap()), "{text}");
        }
        for text in ["1.1.1.1", "10.0.0.1", "192.168.1.1", "2606:4700::1111", "fd00::1", "::ffff:10.0.0.1"] {
            assert!(!is_local(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn addresses_of_the_machine_are_refused_however_they_are_written() {
        for url in [
            "http://127.0.0.1:8080",
            "http://127.1",
            "http://2130706433",
            "http://0x7f.1",
            "http://0177.0.0.1",
            "http://[::1]:9",
            "http://[::ffff:7f00:1]",
            "http://LOCALHOST",
            "http://localhost.",
            "http://civo.localhost:80",
            "http://169.254.169.254/latest",
            "nothing",
        ] {
            assert!(check(url).is_err(), "{url}");
        }
        assert!(check("https://api.civo.com").is_ok() && check("https://10.0.0.1").is_ok());
        assert_eq!(origin("HTTPS://API.Civo.com:443/"), origin("https://api.civo.com"));
        assert_ne!(origin("http://api.civo.com"), origin("https://api.civo.com"));
        assert_eq!(origin("ftp://api.civo.com"), None);
    }

    #[tokio::test]
    async fn a_name_that_stands_for_the_machine_is_refused_when_it_is_called() {
        let found = NotLocal.resolve("localhost".parse().unwrap()).await;
        assert!(found.err().is_some_and(|error| error.to_string().contains("which no Account may name")));
    }
}
