//! The address of a caller: that of the connection, or the one that a trusted proxy reports.

use axum::http::HeaderMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use tokio::io::{AsyncRead, AsyncReadExt};

const FORWARDED_FOR: &str = "x-forwarded-for";
/// Addresses that are looked at in one header.
const FORWARDED_MAX: usize = 32;
/// The longest first line of PROXY protocol's version 1, with its end.
const V1_BYTES_MAX: usize = 107;
/// How version 2 begins.
const V2: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// What may follow version 2's head: addresses, and notes of the proxy's that are of no use here.
const V2_BYTES_MAX: usize = 4096;

/// The owner of one IPv6 address has the whole network: its addresses are counted together.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
        v4 => v4,
    }
}

/// `10.0.0.0/8`, `2001:db8::/32`, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    address: IpAddr,
    bits: u8,
}

impl FromStr for AddressRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || format!("`{text}` is no address or range: write it as 10.0.0.1 or 10.0.0.0/8");
        let (address, bits) = match text.trim().split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u8>().map_err(|_| form())?)),
            None => (text.trim(), None),
        };
        let address: IpAddr = address.parse::<IpAddr>().map_err(|_| form())?.to_canonical();
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        if bits > most {
            return Err(form());
        }
        Ok(Self { address, bits })
    }
}

impl AddressRange {
    pub fn holds(&self, address: IpAddr) -> bool {
        let differs = match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => (own.to_bits() ^ other.to_bits()).leading_zeros(),
            (IpAddr::V6(own), IpAddr::V6(other)) => (own.to_bits() ^ other.to_bits()).leading_zeros(),
            _ => return false,
        };
        differs >= u32::from(self.bits)
    }
}

/// The proxies that may say whose address a caller has.
#[derive(Clone, Debug, Default)]
pub struct TrustedProxies {
    pub ranges: Vec<AddressRange>,
    /// They begin every connection with the PROXY protocol; otherwise they say it in the header `X-Forwarded-For`.
    pub proxy_protocol: bool,
}

impl TrustedProxies {
    pub fn hold(&self, address: IpAddr) -> bool {
        self.ranges.iter().any(|range| range.holds(address))
    }

    /// Whose request it is that came by a connection from `peer`. The address that the last proxy that is not trusted has:
    /// what stands before it, anyone may have written.
    pub fn forwarded(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        if self.proxy_protocol || !self.hold(peer) {
            return peer;
        }
        let lines: Vec<&str> =
            headers.get_all(FORWARDED_FOR).iter().map(|value| value.to_str().unwrap_or_default()).collect();
        let mut last = peer;
        for text in lines.iter().flat_map(|line| line.split(',')).rev().take(FORWARDED_MAX) {
            let Some(address) = forwarded_address(text.trim()) else { break };
            last = address;
            if !self.hold(address) {
                break;
            }
        }
        last
    }
}

/// `192.0.2.1`, `192.0.2.1:4711`, `2001:db8::1`, `[2001:db8::1]:4711`.
fn forwarded_address(text: &str) -> Option<IpAddr> {
    let bare = text.trim_start_matches('[').split(']').next()?;
    let parsed = bare.parse().ok().or_else(|| Some(text.parse::<std::net::SocketAddr>().ok()?.ip()));
    parsed.map(|address: IpAddr| address.to_canonical())
}

fn malformed(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// What a proxy says before anything else on a connection: the address of its caller, or `None` where it calls itself.
pub async fn proxied<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<Option<IpAddr>> {
    let mut start = [0; 12];
    stream.read_exact(&mut start).await?;
    if start == V2 {
        return version_2(stream).await;
    }
    if !start.starts_with(b"PROXY ") {
        return Err(malformed("no PROXY protocol"));
    }
    // Byte by byte: what follows the line is TLS, and not ours to read.
    let mut line = start.to_vec();
    while !line.ends_with(b"\r\n") {
        if line.len() >= V1_BYTES_MAX {
            return Err(malformed("the first line of the PROXY protocol is too long"));
        }
        line.push(stream.read_u8().await?);
    }
    version_1(&line)
}

fn version_1(line: &[u8]) -> io::Result<Option<IpAddr>> {
    let bad = || malformed("the first line of the PROXY protocol cannot be read");
    let line = std::str::from_utf8(line).map_err(|_| bad())?.trim_end();
    let mut words = line.split(' ').skip(1);
    let family = words.next();
    let source = words.next();
    match family {
        Some("UNKNOWN") => Ok(None),
        Some("TCP4") => Ok(Some(source.and_then(|text| text.parse::<Ipv4Addr>().ok()).ok_or_else(bad)?.into())),
        Some("TCP6") => {
            let address = source.and_then(|text| text.parse::<Ipv6Addr>().ok()).ok_or_else(bad)?;
            Ok(Some(IpAddr::V6(address).to_canonical()))
        }
        _ => Err(bad()),
    }
}

async fn version_2<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<Option<IpAddr>> {
    let mut head = [0; 4];
    stream.read_exact(&mut head).await?;
    let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
    if length > V2_BYTES_MAX {
        return Err(malformed("the PROXY protocol says too much"));
    }
    let mut rest = vec![0; length];
    stream.read_exact(&mut rest).await?;
    let bad = || malformed("the head of the PROXY protocol cannot be read");
    match (head[0], head[1] >> 4) {
        // The proxy's own connection, such as to see whether the server is alive.
        (0x20, _) => Ok(None),
        (0x21, 1) => {
            let source: [u8; 4] = rest.get(..4).and_then(|bytes| bytes.try_into().ok()).ok_or_else(bad)?;
            Ok(Some(Ipv4Addr::from(source).into()))
        }
        (0x21, 2) => {
            let source: [u8; 16] = rest.get(..16).and_then(|bytes| bytes.try_into().ok()).ok_or_else(bad)?;
            Ok(Some(IpAddr::V6(source.into()).to_canonical()))
        }
        // Neither IPv4 nor IPv6: there is nothing to count by.
        (0x21, _) => Ok(None),
        _ => Err(bad()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn ranges_hold_what_is_in_them() {
        let range = |text: &str| text.parse::<AddressRange>().unwrap();
        assert!(range("10.0.0.0/8").holds(ip("10.255.0.1")) && !range("10.0.0.0/8").holds(ip("11.0.0.1")));
        assert!(range("10.0.0.0/8").holds(ip("::ffff:10.1.2.3")), "the same in another form");
        assert!(range("192.0.2.7").holds(ip("192.0.2.7")) && !range("192.0.2.7").holds(ip("192.0.2.8")));
        assert!(range("2001:db8::/32").holds(ip("2001:db8:1::1")) && !range("2001:db8::/32").holds(ip("2001:db9::1")));
        assert!(range("0.0.0.0/0").holds(ip("1.2.3.4")) && !range("0.0.0.0/0").holds(ip("::1")));
        for bad in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "proxy"] {
            assert!(bad.parse::<AddressRange>().is_err(), "{bad}");
        }
    }

    #[test]
    fn only_a_trusted_proxy_says_whose_request_it_is() {
        let proxies = TrustedProxies { ranges: vec!["10.0.0.0/8".parse().unwrap()], proxy_protocol: false };
        let headers = |lines: &[&str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(FORWARDED_FOR, HeaderValue::from_str(line).unwrap());
            }
            headers
        };
        let proxy = ip("10.0.0.1");
        for (lines, expected) in [
            (vec!["203.0.113.9"], "203.0.113.9"),
            (vec!["1.1.1.1, 203.0.113.9, 10.0.0.2"], "203.0.113.9"),
            (vec!["1.1.1.1", "203.0.113.9:4711"], "203.0.113.9"),
            (vec!["[2001:db8::1]:80"], "2001:db8::1"),
            (vec!["203.0.113.9, nonsense"], "10.0.0.1"),
            (vec![], "10.0.0.1"),
            (vec!["10.0.0.3"], "10.0.0.3"),
        ] {
            assert_eq!(proxies.forwarded(proxy, &headers(&lines)), ip(expected), "{lines:?}");
        }
        assert_eq!(proxies.forwarded(ip("192.0.2.1"), &headers(&["203.0.113.9"])), ip("192.0.2.1"));
        let first = TrustedProxies { proxy_protocol: true, ..proxies };
        assert_eq!(first.forwarded(proxy, &headers(&["203.0.113.9"])), proxy, "callers write that header themselves");
    }

    async fn read(bytes: &[u8]) -> io::Result<(Option<IpAddr>, Vec<u8>)> {
        let mut stream = bytes;
        let address = proxied(&mut stream).await?;
        Ok((address, stream.to_vec()))
    }

    #[tokio::test]
    async fn both_versions_of_the_proxy_protocol_are_read_and_nothing_after() {
        let got = read(b"PROXY TCP4 203.0.113.9 10.0.0.1 4711 443\r\n\x16rest").await.unwrap();
        assert_eq!(got, (Some(ip("203.0.113.9")), b"\x16rest".to_vec()));
        let got = read(b"PROXY TCP6 2001:db8::1 ::1 4711 443\r\n\x16").await.unwrap();
        assert_eq!(got, (Some(ip("2001:db8::1")), b"\x16".to_vec()));
        assert_eq!(read(b"PROXY UNKNOWN\r\n\x16").await.unwrap(), (None, b"\x16".to_vec()));
        let mut v2 = V2.to_vec();
        v2.extend([0x21, 0x11, 0, 15, 203, 0, 113, 9, 10, 0, 0, 1, 0, 1, 0, 2, 4, 0, 0, 0x16]);
        assert_eq!(read(&v2).await.unwrap(), (Some(ip("203.0.113.9")), vec![0x16]));
        let mut local = V2.to_vec();
        local.extend([0x20, 0, 0, 0, 0x16]);
        assert_eq!(read(&local).await.unwrap(), (None, vec![0x16]));
        for bad in [
            b"\x16\x03\x01 not a proxy".to_vec(),
            b"PROXY TCP4 nowhere 1 2 3\r\n".to_vec(),
            [b"PROXY TCP4 ".as_slice(), &[b'1'; 200]].concat(),
            [V2.as_slice(), &[0x21, 0x11, 0xff, 0xff]].concat(),
            [V2.as_slice(), &[0x31, 0x11, 0, 0]].concat(),
            [V2.as_slice(), &[0x21, 0x11, 0, 2, 1, 2]].concat(),
        ] {
            assert!(read(&bad).await.is_err(), "{bad:?}");
        }
    }
}
