//! Where the key comes from: `BERTH_KEY`, the file in `BERTH_KEY_FILE`, or a file in the user's data folder that is made
//! at first use. Never beside the state: whoever copies the state's folder must not get the key with it.

use crate::error::StoreError;
use crate::files;
use crate::place::data_folder;
use crate::seal::{KEY_BYTES, Key, random};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use secrecy::{ExposeSecret, SecretBox};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zeroize::{Zeroize, Zeroizing};

/// A key in text form is 44 or 64 characters; a file may have some white space around it.
const KEY_FILE_BYTES_MAX: u64 = 4096;

/// Where to look for the key.
#[derive(Clone, Default)]
pub enum KeySource {
    /// `BERTH_KEY`, then `BERTH_KEY_FILE`, then the user's own key, which is made if there is none yet.
    #[default]
    Usual,
    /// A file, which is made if it does not exist.
    File(PathBuf),
    /// The key itself.
    Given(Arc<SecretBox<[u8; KEY_BYTES]>>),
}

/// A key that was found, or the place where one can be made.
pub(crate) enum Found {
    Key { key: Key, place: String },
    Absent { path: PathBuf },
}

impl KeySource {
    pub(crate) fn find(&self) -> Result<Found, StoreError> {
        self.find_with(|name| std::env::var_os(name))
    }

    fn find_with(&self, env: impl Fn(&str) -> Option<OsString>) -> Result<Found, StoreError> {
        match self {
            Self::Given(key) => Ok(Found::Key { key: key.clone(), place: "the caller".into() }),
            Self::File(path) => from_file(path),
            Self::Usual => {
                if let Some(text) = env("BERTH_KEY").filter(|text| !text.is_empty()) {
                    let place = "the environment variable BERTH_KEY";
                    let text = Zeroizing::new(text.into_encoded_bytes());
                    return Ok(Found::Key { key: parse(&text, place)?, place: place.into() });
                }
                if let Some(path) = env("BERTH_KEY_FILE").filter(|path| !path.is_empty()) {
                    // The user named this file: making one there would hide a typing error.
                    return match from_file(Path::new(&path))? {
                        Found::Absent { path } => Err(StoreError::Key {
                            place: format!("{} (BERTH_KEY_FILE)", path.display()),
                            cause: "there is no such file".into(),
                        }),
                        found => Ok(found),
                    };
                }
                match data_folder(env) {
                    Some(folder) => from_file(&folder.join("key")),
                    None => Err(StoreError::Key {
                        place: "the user's data folder".into(),
                        cause: "neither BERTH_KEY, BERTH_KEY_FILE, XDG_DATA_HOME nor HOME is set".into(),
                    }),
                }
            }
        }
    }
}

fn trouble(path: &Path, doing: &str) -> impl FnOnce(std::io::Error) -> StoreError {
    let place = path.display().to_string();
    let doing = doing.to_owned();
    move |error| StoreError::Key { place, cause: format!("cannot {doing} it: {error}") }
}

fn from_file(path: &Path) -> Result<Found, StoreError> {
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Found::Absent { path: path.into() }),
        Err(error) => return Err(trouble(path, "open")(error)),
    };
    let mut text = Zeroizing::new(Vec::with_capacity(KEY_FILE_BYTES_MAX as usize));
    file.take(KEY_FILE_BYTES_MAX).read_to_end(&mut text).map_err(trouble(path, "read"))?;
    let place = path.display().to_string();
    Ok(Found::Key { key: parse(&text, &place)?, place })
}

fn parse(text: &[u8], place: &str) -> Result<Key, StoreError> {
    let text = text.trim_ascii();
    let mut bytes = Zeroizing::new(Vec::with_capacity(KEY_BYTES));
    let ok = if text.len() == KEY_BYTES * 2 { hex(text, &mut bytes) } else { decode(text, &mut bytes) };
    let mut array: [u8; KEY_BYTES] = match (ok, bytes.as_slice().try_into()) {
        (true, Ok(array)) => array,
        _ => {
            return Err(StoreError::Key { place: place.into(), cause: "it is not 32 bytes in base64 or hex".into() });
        }
    };
    let key = SecretBox::init_with_mut(|key: &mut [u8; KEY_BYTES]| key.copy_from_slice(&array));
    array.zeroize();
    Ok(Arc::new(key))
}

fn decode(text: &[u8], into: &mut Vec<u8>) -> bool {
    if text.len() > KEY_BYTES * 2 {
        return false;
    }
    let engine = if text.ends_with(b"=") { &STANDARD } else { &STANDARD_NO_PAD };
    engine.decode_vec(text, into).is_ok()
}

fn hex(text: &[u8], into: &mut Vec<u8>) -> bool {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    for pair in text.chunks_exact(2) {
        match (digit(pair[0]), digit(pair[1])) {
            (Some(high), Some(low)) => into.push((high * 16 + low) as u8),
            _ => return false,
        }
    }
    true
}

/// Makes a key at `path`, for the owner alone and durable before it is used. Two processes at once end with the same key:
/// a finished file is linked into place, and whoever comes second reads the first one's.
pub(crate) fn create(path: &Path) -> Result<(Key, String), StoreError> {
    files::private_parent(path)?;
    let mut key = SecretBox::<[u8; KEY_BYTES]>::default();
    {
        use secrecy::ExposeSecretMut;
        random(key.expose_secret_mut())?;
    }
    let mut nonce = [0u8; 8];
    random(&mut nonce)?;
    let half_made = path.with_extension(format!("{:016x}.new", u64::from_le_bytes(nonce)));
    let text = Zeroizing::new(format!("{}\n", STANDARD.encode(key.expose_secret())));
    let written = files::private_file()
        .create_new(true)
        .open(&half_made)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        })
        .and_then(|()| std::fs::hard_link(&half_made, path));
    // Left behind only if the process dies here; it then holds a key that nothing is sealed with.
    let removed = std::fs::remove_file(&half_made);
    match written {
        Ok(()) => {
            removed.map_err(trouble(&half_made, "remove"))?;
            if let Some(folder) = path.parent() {
                files::sync_folder(folder).map_err(trouble(path, "keep"))?;
            }
            tracing::info!(path = %path.display(), "made a new encryption key");
            Ok((Arc::new(key), path.display().to_string()))
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => match from_file(path)? {
            Found::Key { key, place } => Ok((key, place)),
            Found::Absent { .. } => Err(trouble(path, "create")(error)),
        },
        Err(error) => Err(trouble(path, "create")(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key_of(found: Found) -> ([u8; KEY_BYTES], String) {
        match found {
            Found::Key { key, place } => (*key.expose_secret(), place),
            Found::Absent { path } => panic!("no key at {}", path.display()),
        }
    }

    #[test]
    fn the_environment_comes_first() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("k");
        std::fs::write(&file, format!("{}\n", "ab".repeat(32))).unwrap();
        let base64 = STANDARD.encode([7u8; 32]);
        let both = |name: &str| match name {
            "BERTH_KEY" => Some(OsString::from(base64.as_str())),
            "BERTH_KEY_FILE" => Some(file.clone().into_os_string()),
            _ => None,
        };
        assert_eq!(key_of(KeySource::Usual.find_with(both).unwrap()).0, [7; 32]);
        let only_file = |name: &str| both(name).filter(|_| name == "BERTH_KEY_FILE");
        let (key, place) = key_of(KeySource::Usual.find_with(only_file).unwrap());
        assert_eq!((key, place), ([0xab; 32], file.display().to_string()));
    }

    #[test]
    fn bad_keys_are_refused_without_being_shown() {
        for bad in ["", "short", "!!!!", &"zz".repeat(32), &"ab".repeat(33), &STANDARD.encode([1u8; 31])] {
            let error = parse(bad.as_bytes(), "the test").unwrap_err();
            assert!(matches!(&error, StoreError::Key { place, .. } if place == "the test"), "{bad}");
            assert!(bad.is_empty() || !error.to_string().contains(bad));
        }
        let missing = KeySource::Usual.find_with(|name| (name == "BERTH_KEY_FILE").then(|| "/no/such/key".into()));
        assert!(matches!(missing, Err(StoreError::Key { .. })));
    }

    #[test]
    fn two_makers_end_with_one_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("berth/key");
        let makers: Vec<_> = (0..8)
            .map(|_| {
                let path = path.clone();
                std::thread::spawn(move || *create(&path).unwrap().0.expose_secret())
            })
            .collect();
        let keys: Vec<_> = makers.into_iter().map(|maker| maker.join().unwrap()).collect();
        assert!(keys.iter().all(|key| *key == keys[0]) && keys[0] != [0; 32]);
        assert_eq!(std::fs::read_dir(folder.path().join("berth")).unwrap().count(), 1);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }
}
