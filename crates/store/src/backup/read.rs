//! Opening a backup and reading its lines. What is in it is not trusted: anyone can encrypt something for a public key.

use super::origin::Code;
use super::{BackupError, FORMAT, Header, Identity, KeyLine, LINE_BYTES_MAX, Trailer, WORK_FACTOR_MAX};
use crate::hex;
use crate::keyring::KeyRing;
use crate::schema::SCHEMA;
use age::{DecryptError, Decryptor, scrypt, x25519};
use secrecy::ExposeSecret;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::io::{BufRead, BufReader, Read};
use std::str::FromStr;
use zeroize::{Zeroize, Zeroizing};

/// The lines of a backup, decrypted as they are read.
pub(super) struct Lines<R: Read> {
    input: BufReader<age::stream::StreamReader<R>>,
    hash: Sha256,
    line: Zeroizing<Vec<u8>>,
}

pub(super) fn open<R: BufRead>(input: R, identity: &Identity) -> Result<Lines<R>, BackupError> {
    let decryptor = Decryptor::new_buffered(input).map_err(|error| match error {
        DecryptError::Io(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            BackupError::NotBackup("it is too short")
        }
        DecryptError::Io(source) => BackupError::File { doing: "read", source },
        DecryptError::UnknownFormat => BackupError::NotBackup("its encryption is newer than this berth"),
        _ => BackupError::NotBackup("it is not encrypted by age"),
    })?;
    let stream = match (identity, decryptor.is_scrypt()) {
        (Identity::Passphrase(passphrase), true) => {
            let mut one = scrypt::Identity::new(passphrase.clone());
            one.set_max_work_factor(WORK_FACTOR_MAX);
            decryptor.decrypt(std::iter::once(&one as &dyn age::Identity))
        }
        (Identity::Keys(text), false) => {
            let keys = identities(text.expose_secret())?;
            decryptor.decrypt(keys.iter().map(|key| key as &dyn age::Identity))
        }
        (Identity::Keys(_), true) => {
            return Err(BackupError::OtherIdentity { needed: "a passphrase", given: "an identity" });
        }
        (Identity::Passphrase(_), false) => {
            return Err(BackupError::OtherIdentity { needed: "an identity", given: "a passphrase" });
        }
    };
    let stream = stream.map_err(|error| match (error, identity) {
        (DecryptError::Io(source), _) => BackupError::File { doing: "read", source },
        (DecryptError::ExcessiveWork { .. }, _) => BackupError::Damaged("its passphrase asks for too much work".into()),
        (DecryptError::InvalidHeader | DecryptError::InvalidMac, _) => {
            BackupError::Damaged("its head was changed".into())
        }
        (_, Identity::Passphrase(_)) => BackupError::WrongPassphrase,
        (_, Identity::Keys(_)) => BackupError::WrongIdentity,
    })?;
    Ok(Lines { input: BufReader::new(stream), hash: Sha256::new(), line: Zeroizing::new(Vec::new()) })
}

fn identities(text: &str) -> Result<Vec<x25519::Identity>, BackupError> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let keys: Result<Vec<_>, _> = lines.map(x25519::Identity::from_str).collect();
    keys.ok().filter(|keys| !keys.is_empty()).ok_or(BackupError::Identity)
}

impl<R: Read> Lines<R> {
    /// The next line, which stays where it is until the one after it is read.
    fn next(&mut self) -> Result<&[u8], BackupError> {
        self.line.clear();
        let read = (&mut self.input).take(LINE_BYTES_MAX).read_until(b'\n', &mut self.line).map_err(broken)?;
        match self.line.last() {
            Some(b'\n') => Ok(&self.line),
            _ if read as u64 == LINE_BYTES_MAX => Err(BackupError::Damaged("a line is too long".into())),
            _ => Err(BackupError::Truncated),
        }
    }

    fn parse<T: serde::de::DeserializeOwned>(&mut self, what: &'static str) -> Result<T, BackupError> {
        self.next()?;
        self.hash.update(&*self.line);
        // The cause would name what stands there.
        serde_json::from_slice(&self.line).map_err(|_| BackupError::Damaged(format!("{what} cannot be read")))
    }

    pub fn header(&mut self) -> Result<Header, BackupError> {
        let not_ours = BackupError::NotBackup("it was encrypted, and holds something else");
        self.next()?;
        self.hash.update(&*self.line);
        let Ok(value) = serde_json::from_slice::<Value>(&self.line) else { return Err(not_ours) };
        if value.get("backup").and_then(Value::as_str) != Some("berth") {
            return Err(not_ours);
        }
        // Before the rest is understood: a newer one may say it otherwise.
        let format = value.get("format").and_then(Value::as_u64).and_then(|format| u32::try_from(format).ok());
        if let Some(found) = format.filter(|format| *format > FORMAT) {
            return Err(BackupError::NewerFormat { found, known: FORMAT });
        }
        let header: Header =
            serde_json::from_value(value).map_err(|_| BackupError::Damaged("its first line cannot be read".into()))?;
        if header.schema > SCHEMA {
            return Err(BackupError::NewerSchema { found: header.schema, known: SCHEMA });
        }
        Ok(header)
    }

    pub fn key_ring(&mut self) -> Result<Option<KeyRing>, BackupError> {
        let line: KeyLine = self.parse("its line of keys")?;
        self.line.zeroize();
        let text = line.key_ring.map(Zeroizing::new);
        Ok(text.map(|text| KeyRing::parse(text.as_bytes(), "the backup")).transpose()?)
    }

    pub fn row(&mut self) -> Result<Vec<Value>, BackupError> {
        self.parse("a row")
    }

    /// Everything was read, and it is what was written. The code is not checked yet; an older format has none.
    pub fn end(mut self, rows: u64) -> Result<Option<Code>, BackupError> {
        let sha256 = self.hash.clone().finalize().to_vec();
        let trailer: Trailer = self.parse("its last line")?;
        if !trailer.end || trailer.rows != rows || trailer.sha256 != hex(&sha256) {
            return Err(BackupError::Damaged("its last line does not fit the others".into()));
        }
        let mut more = [0u8; 1];
        match self.input.read(&mut more).map_err(broken)? {
            0 if trailer.hmac.is_empty() => Ok(None),
            0 => Ok(Some(Code { sha256, rows, key: trailer.key, hmac: trailer.hmac })),
            _ => Err(BackupError::Damaged("something follows its last line".into())),
        }
    }
}

/// What age says of a stream that does not end as it should, or was changed.
fn broken(error: std::io::Error) -> BackupError {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof => BackupError::Truncated,
        std::io::ErrorKind::InvalidData => BackupError::Damaged("it was changed after it was made, or cut off".into()),
        _ => BackupError::File { doing: "read", source: error },
    }
}
