//! Bodies of uploads: chunks put together, and checksums compared with what was sent.

use std::sync::LazyLock;

use aws_lc_rs::digest;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use crc::{CRC_32_ISCSI, CRC_32_ISO_HDLC, CRC_64_NVME, Crc, Table};
use md5::{Digest, Md5};

use crate::aws::errors::{Answer, fail};
use crate::http::Call;

/// How clients can ask for a body to be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    Crc32,
    Crc32c,
    Crc64Nvme,
    Sha1,
    Sha256,
}

pub const ALGORITHMS: [Algorithm; 5] =
    [Algorithm::Crc32, Algorithm::Crc32c, Algorithm::Crc64Nvme, Algorithm::Sha1, Algorithm::Sha256];

static CRC32: LazyLock<Crc<u32, Table<16>>> = LazyLock::new(|| Crc::<u32, Table<16>>::new(&CRC_32_ISO_HDLC));
static CRC32C: LazyLock<Crc<u32, Table<16>>> = LazyLock::new(|| Crc::<u32, Table<16>>::new(&CRC_32_ISCSI));
static CRC64: LazyLock<Crc<u64, Table<16>>> = LazyLock::new(|| Crc::<u64, Table<16>>::new(&CRC_64_NVME));

impl Algorithm {
    /// As requests and answers name it.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Crc32 => "CRC32",
            Algorithm::Crc32c => "CRC32C",
            Algorithm::Crc64Nvme => "CRC64NVME",
            Algorithm::Sha1 => "SHA1",
            Algorithm::Sha256 => "SHA256",
        }
    }

    pub fn named(name: &str) -> Option<Algorithm> {
        ALGORITHMS.into_iter().find(|one| one.name().eq_ignore_ascii_case(name))
    }

    pub fn header(self) -> &'static str {
        match self {
            Algorithm::Crc32 => "x-amz-checksum-crc32",
            Algorithm::Crc32c => "x-amz-checksum-crc32c",
            Algorithm::Crc64Nvme => "x-amz-checksum-crc64nvme",
            Algorithm::Sha1 => "x-amz-checksum-sha1",
            Algorithm::Sha256 => "x-amz-checksum-sha256",
        }
    }

    pub fn raw(self, data: &[u8]) -> Vec<u8> {
        match self {
            Algorithm::Crc32 => CRC32.checksum(data).to_be_bytes().to_vec(),
            Algorithm::Crc32c => CRC32C.checksum(data).to_be_bytes().to_vec(),
            Algorithm::Crc64Nvme => CRC64.checksum(data).to_be_bytes().to_vec(),
            Algorithm::Sha1 => digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, data).as_ref().to_vec(),
            Algorithm::Sha256 => digest::digest(&digest::SHA256, data).as_ref().to_vec(),
        }
    }

    pub fn of(self, data: &[u8]) -> String {
        STANDARD.encode(self.raw(data))
    }
}

/// What was uploaded, once it is known to be what was sent.
pub struct Upload {
    pub data: Bytes,
    pub md5: [u8; 16],
    /// The checksum that the client sent, and which it is.
    pub checksum: Option<(Algorithm, String)>,
}

fn header<'c>(call: &'c Call, name: &str) -> Option<&'c str> {
    call.headers.get(name).and_then(|value| value.to_str().ok())
}

pub fn read(call: &Call) -> Answer<Upload> {
    let sha256 = header(call, "x-amz-content-sha256").unwrap_or("UNSIGNED-PAYLOAD");
    let chunked = sha256.starts_with("STREAMING-")
        || header(call, "content-encoding").is_some_and(|encoding| encoding.contains("aws-chunked"));
    let (data, trailers) = match chunked {
        true => unchunked(call)?,
        false => (call.body.clone(), Vec::new()),
    };
    if sha256.len() == 64 && hex(digest::digest(&digest::SHA256, &data).as_ref()) != sha256.to_lowercase() {
        return fail(
            "XAmzContentSHA256Mismatch",
            "The provided 'x-amz-content-sha256' header does not match what was computed.",
        );
    }
    let md5 = md5(&data);
    if let Some(sent) = header(call, "content-md5") {
        match STANDARD.decode(sent) {
            Ok(sent) if sent == md5 => {}
            Ok(sent) if sent.len() == 16 => {
                return fail("BadDigest", "The Content-MD5 you specified did not match what we received.");
            }
            _ => return fail("InvalidDigest", "The Content-MD5 you specified was invalid."),
        }
    }
    let mut checksum = None;
    for algorithm in ALGORITHMS {
        let trailer = trailers.iter().find(|(name, _)| name == algorithm.header()).map(|(_, value)| value.as_str());
        let Some(sent) = header(call, algorithm.header()).or(trailer) else { continue };
        if algorithm.of(&data) != sent {
            let name = algorithm.name();
            return fail("BadDigest", format!("The {name} you specified did not match the calculated checksum."));
        }
        checksum = Some((algorithm, sent.to_owned()));
    }
    // A client may leave the checksum to S3.
    if let (None, Some(name)) = (&checksum, header(call, "x-amz-sdk-checksum-algorithm")) {
        checksum = Algorithm::named(name).map(|algorithm| (algorithm, algorithm.of(&data)));
    }
    Ok(Upload { data, md5, checksum })
}

pub fn md5(data: &[u8]) -> [u8; 16] {
    Md5::digest(data).into()
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

type Trailers = Vec<(String, String)>;

/// `SIZE[;chunk-signature=…]`, the chunk, …, a chunk of size 0, and trailers.
fn unchunked(call: &Call) -> Answer<(Bytes, Trailers)> {
    let incomplete = || fail("IncompleteBody", "The request body terminated unexpectedly");
    let mut rest = call.body.clone();
    let mut data = BytesMut::new();
    loop {
        let Some(head) = line(&mut rest) else { return incomplete() };
        let size = head.split(';').next().and_then(|size| usize::from_str_radix(size.trim(), 16).ok());
        match size {
            Some(0) => break,
            Some(size) if size <= rest.len() => {
                data.extend_from_slice(&rest.split_to(size));
                if line(&mut rest).as_deref() != Some("") {
                    return incomplete();
                }
            }
            _ => return incomplete(),
        }
    }
    let mut trailers = Vec::new();
    while let Some(text) = line(&mut rest) {
        if let Some((name, value)) = text.split_once(':') {
            trailers.push((name.trim().to_lowercase(), value.trim().to_owned()));
        }
    }
    let told: Option<usize> = header(call, "x-amz-decoded-content-length").and_then(|length| length.parse().ok());
    match told.is_some_and(|length| length != data.len()) {
        true => incomplete(),
        false => Ok((data.freeze(), trailers)),
    }
}

/// Takes a line off the front.
fn line(rest: &mut Bytes) -> Option<String> {
    let end = rest.windows(2).take(4096).position(|pair| pair == b"\r\n")?;
    let text = rest.split_to(end);
    let _ = rest.split_to(2);
    String::from_utf8(text.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::{HeaderMap, Method};

    fn call(headers: &[(&'static str, &str)], body: &'static str) -> Call {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        Call::new(Method::PUT, &"/b/k".parse().unwrap(), map, Bytes::from_static(body.as_bytes()))
    }

    #[test]
    fn checksums_are_those_of_the_standards() {
        let data = b"123456789";
        for (algorithm, expected) in
            [(Algorithm::Crc32, "y/Q5Jg=="), (Algorithm::Crc32c, "4waSgw=="), (Algorithm::Crc64Nvme, "rosUhgp5mIg=")]
        {
            assert_eq!(algorithm.of(data), expected, "{algorithm:?}");
        }
        assert_eq!(Algorithm::Sha1.raw(data).len(), 20);
    }

    #[test]
    fn chunks_are_put_together_and_their_trailer_is_compared() {
        let sum = Algorithm::Crc32.of(b"hello world");
        let body: &'static str = Box::leak(
            format!("6;chunk-signature=x\r\nhello \r\n5\r\nworld\r\n0\r\nx-amz-checksum-crc32:{sum}\r\n\r\n").into(),
        );
        let headers =
            [("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"), ("x-amz-decoded-content-length", "11")];
        let upload = read(&call(&headers, body)).unwrap();
        assert_eq!(upload.data, "hello world");
        assert_eq!(upload.checksum, Some((Algorithm::Crc32, sum)));
        let wrong = "5\r\nhello\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n";
        assert_eq!(read(&call(&headers[..1], wrong)).err().unwrap().code, "BadDigest");
        assert_eq!(read(&call(&headers, "5\r\nhel")).err().unwrap().code, "IncompleteBody");
    }
}
