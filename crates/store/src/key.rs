//! Where the key ring comes from: `BERTH_KEY`, the command in `BERTH_KEY_COMMAND`, the file in `BERTH_KEY_FILE`, or a file in
//! the user's data folder that is made at first use. Never beside an embedded state: a copy of the state's folder must not
//! contain the key.

use crate::default_path::data_folder;
use crate::error::StoreError;
use crate::files;
use crate::key_command;
use crate::keyring::KeyRing;
use crate::seal::{KEY_BYTES, random};
use secrecy::SecretBox;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use zeroize::Zeroizing;

/// A ring in text form: as many lines as it may have keys, with room for remarks.
pub(crate) const RING_BYTES_MAX: u64 = 32 << 10;

/// Where to look for the key ring.
#[derive(Clone, Default)]
pub enum KeySource {
    /// `BERTH_KEY`, then `BERTH_KEY_COMMAND`, then `BERTH_KEY_FILE`, then the user's own key, which is made if there is none.
    #[default]
    Usual,
    /// A file, which is made if it does not exist.
    File(PathBuf),
    /// A command that prints the ring; words are split at blanks, and no shell is started.
    Command(String),
    /// The key itself.
    Given(Arc<SecretBox<[u8; KEY_BYTES]>>),
}

/// A ring that was found, or the place where one can be made.
pub(crate) enum Found {
    Keys { ring: KeyRing, place: String },
    Absent { path: PathBuf },
}

/// Tells whether a file was written since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    bytes: u64,
    modified: Option<SystemTime>,
    /// A file that was put in the place of another one, however fast.
    number: u64,
}

/// What a source comes down to in this process's environment.
enum Origin {
    Given(Arc<SecretBox<[u8; KEY_BYTES]>>),
    Text {
        text: Zeroizing<Vec<u8>>,
        place: &'static str,
    },
    Command {
        line: String,
        place: &'static str,
    },
    /// Whether the user named it: making one there would hide a typing error.
    File {
        path: PathBuf,
        named: bool,
    },
}

impl KeySource {
    pub(crate) fn find(&self) -> Result<Found, StoreError> {
        self.find_with(|name| std::env::var_os(name))
    }

    /// The file that holds the ring, where it is a file.
    pub fn file(&self) -> Option<PathBuf> {
        match self.origin(|name| std::env::var_os(name)) {
            Ok(Origin::File { path, .. }) => Some(path),
            _ => None,
        }
    }

    pub(crate) fn is_command(&self) -> bool {
        match self {
            Self::Command(_) => true,
            Self::Usual => matches!(self.origin(|name| std::env::var_os(name)), Ok(Origin::Command { .. })),
            Self::File(_) | Self::Given(_) => false,
        }
    }

    /// `None` where there is no file.
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        let about = std::fs::metadata(self.file()?).ok()?;
        #[cfg(unix)]
        let number = std::os::unix::fs::MetadataExt::ino(&about);
        #[cfg(not(unix))]
        let number = 0;
        Some(Stamp { bytes: about.len(), modified: about.modified().ok(), number })
    }

    fn origin(&self, env: impl Fn(&str) -> Option<OsString>) -> Result<Origin, StoreError> {
        let env = |name: &str| env(name).filter(|text| !text.is_empty());
        match self {
            Self::Given(key) => return Ok(Origin::Given(key.clone())),
            Self::File(path) => return Ok(Origin::File { path: path.clone(), named: false }),
            Self::Command(line) => return Ok(Origin::Command { line: line.clone(), place: "the key command" }),
            Self::Usual => {}
        }
        if let Some(text) = env("BERTH_KEY") {
            let text = Zeroizing::new(text.into_encoded_bytes());
            return Ok(Origin::Text { text, place: "the environment variable BERTH_KEY" });
        }
        if let Some(line) = env("BERTH_KEY_COMMAND") {
            let place = "the command in BERTH_KEY_COMMAND";
            let bad = |_| StoreError::Key { place: place.into(), cause: "it is not text".into() };
            return Ok(Origin::Command { line: line.into_string().map_err(bad)?, place });
        }
        if let Some(path) = env("BERTH_KEY_FILE") {
            return Ok(Origin::File { path: path.into(), named: true });
        }
        match data_folder(env) {
            Some(folder) => Ok(Origin::File { path: folder.join("key"), named: false }),
            None => Err(StoreError::Key {
                place: "the user's data folder".into(),
                cause: "neither BERTH_KEY, BERTH_KEY_COMMAND, BERTH_KEY_FILE, XDG_DATA_HOME nor HOME is set".into(),
            }),
        }
    }

    fn find_with(&self, env: impl Fn(&str) -> Option<OsString>) -> Result<Found, StoreError> {
        match self.origin(env)? {
            Origin::Given(key) => Ok(Found::Keys { ring: KeyRing::of(key), place: "the caller".into() }),
            Origin::Text { text, place } => {
                Ok(Found::Keys { ring: KeyRing::parse(&text, place)?, place: place.into() })
            }
            Origin::Command { line, place } => {
                let text = key_command::run(&line, place)?;
                Ok(Found::Keys { ring: KeyRing::parse(&text, place)?, place: place.into() })
            }
            Origin::File { path, named } => match from_file(&path)? {
                Found::Absent { path } if named => Err(StoreError::Key {
                    place: format!("{} (BERTH_KEY_FILE)", path.display()),
                    cause: "there is no such file".into(),
                }),
                found => Ok(found),
            },
        }
    }

    /// The ring as it is at its source, and the source's name. A file that is not there is an error here.
    pub fn ring(&self) -> Result<(KeyRing, String), StoreError> {
        match self.find()? {
            Found::Keys { ring, place } => Ok((ring, place)),
            Found::Absent { path } => {
                Err(StoreError::Key { place: path.display().to_string(), cause: "there is no such file".into() })
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
    let place = path.display().to_string();
    #[cfg(unix)]
    {
        // Of the open file: a link leads to what is read, and nothing changes in between.
        let about = file.metadata().map_err(trouble(path, "look at"))?;
        if let Some(mode) = open_to_others(&about) {
            return Err(StoreError::KeyFileOpen { place, mode });
        }
    }
    let mut text = Zeroizing::new(Vec::with_capacity(RING_BYTES_MAX as usize + 1));
    file.take(RING_BYTES_MAX + 1).read_to_end(&mut text).map_err(trouble(path, "read"))?;
    if text.len() as u64 > RING_BYTES_MAX {
        return Err(StoreError::Key { place, cause: format!("it is larger than {RING_BYTES_MAX} bytes") });
    }
    Ok(Found::Keys { ring: KeyRing::parse(&text, &place)?, place })
}

/// The mode of a file that more than its owner may read or write. What root gives to one group to read is meant so: that is how
/// Kubernetes and systemd hand secrets to a service that is not root.
#[cfg(unix)]
fn open_to_others(about: &std::fs::Metadata) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    let given_by_root = about.uid() == 0 && !rustix::process::geteuid().is_root();
    let allowed = if given_by_root { 0o740 } else { 0o700 };
    let mode = about.mode() & 0o777;
    (mode & !allowed != 0).then_some(mode)
}

/// Makes a ring of one key at `path`, for the owner alone and durable before it is used. Two processes at once end with the
/// same key: a finished file is linked into place, and a second process reads the first one's key.
pub(crate) fn create(path: &Path) -> Result<(KeyRing, String), StoreError> {
    let ring = KeyRing::generate()?;
    let half_made = write_beside(path, &ring)?;
    let linked = std::fs::hard_link(&half_made, path);
    // Left behind only if the process dies here; it then holds a key that nothing is sealed with.
    let removed = std::fs::remove_file(&half_made);
    match linked {
        Ok(()) => {
            removed.map_err(trouble(&half_made, "remove"))?;
            keep_name(path)?;
            tracing::info!(path = %path.display(), "made a new encryption key");
            Ok((ring, path.display().to_string()))
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => match from_file(path)? {
            Found::Keys { ring, place } => Ok((ring, place)),
            Found::Absent { .. } => Err(trouble(path, "create")(error)),
        },
        Err(error) => Err(trouble(path, "create")(error)),
    }
}

/// Puts a ring in a file's place, for the owner alone, whole or not at all.
pub fn write_ring(path: &Path, ring: &KeyRing) -> Result<(), StoreError> {
    let half_made = write_beside(path, ring)?;
    std::fs::rename(&half_made, path).map_err(|error| {
        _ = std::fs::remove_file(&half_made);
        trouble(path, "replace")(error)
    })?;
    keep_name(path)
}

fn write_beside(path: &Path, ring: &KeyRing) -> Result<PathBuf, StoreError> {
    files::private_parent(path)?;
    let mut nonce = [0u8; 8];
    random(&mut nonce)?;
    let half_made = path.with_extension(format!("{:016x}.new", u64::from_le_bytes(nonce)));
    let text = ring.text();
    let written = files::private_file().create_new(true).open(&half_made).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    match written {
        Ok(()) => Ok(half_made),
        Err(error) => {
            _ = std::fs::remove_file(&half_made);
            Err(trouble(path, "write")(error))
        }
    }
}

fn keep_name(path: &Path) -> Result<(), StoreError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    files::sync_folder(folder).map_err(trouble(path, "keep"))
}

#[cfg(test)]
mod tests {
    use super::*;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use secrecy::ExposeSecret;

    fn key_of(found: Found) -> ([u8; KEY_BYTES], String) {
        match found {
            Found::Keys { ring, place } => (*ring.first().secret().expose_secret(), place),
            Found::Absent { path } => panic!("no key at {}", path.display()),
        }
    }

    fn private(path: &Path, text: &str) {
        files::private_file().create_new(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_others_may_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("ring"), folder.path().join("link"));
        private(&file, &"ab".repeat(32));
        // As Kubernetes mounts them.
        std::os::unix::fs::symlink(&file, &link).unwrap();
        for (mode, good) in
            [(0o600, true), (0o400, true), (0o644, false), (0o604, false), (0o602, false), (0o660, false)]
        {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            for path in [&file, &link] {
                match KeySource::File(path.clone()).ring() {
                    Ok(_) => assert!(good, "{mode:o}"),
                    Err(error @ StoreError::KeyFileOpen { .. }) => {
                        assert!(
                            !good && error.help()[0].ends_with(&format!("chmod 600 {}", path.display())),
                            "{mode:o}"
                        );
                    }
                    Err(other) => panic!("{mode:o}: {other}"),
                }
            }
        }
    }

    #[test]
    fn the_environment_comes_first() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("k");
        private(&file, &"ab".repeat(32));
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
    fn a_file_that_was_named_must_be_there() {
        let missing = KeySource::Usual.find_with(|name| (name == "BERTH_KEY_FILE").then(|| "/no/such/key".into()));
        assert!(matches!(missing, Err(StoreError::Key { .. })));
    }

    #[test]
    fn a_command_is_asked_before_a_file() {
        let line = format!("printf %s\\n {}", "ab".repeat(32));
        let both = |name: &str| match name {
            "BERTH_KEY_COMMAND" => Some(OsString::from(line.as_str())),
            "BERTH_KEY_FILE" => Some("/no/such/key".into()),
            _ => None,
        };
        assert_eq!(key_of(KeySource::Usual.find_with(both).unwrap()).0, [0xab; 32]);
    }

    #[test]
    fn a_ring_is_replaced_whole_and_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let source = KeySource::File(path.clone());
        let (one, _) = create(&path).unwrap();
        let stamp = source.stamp();
        assert!(stamp.is_some() && stamp == source.stamp());
        write_ring(&path, &one.after(&KeyRing::generate().unwrap())).unwrap();
        assert_ne!(stamp, source.stamp(), "a new ring is seen");
        let (two, _) = source.ring().unwrap();
        assert_eq!((two.ids().len(), &two.ids()[1]), (2, &one.ids()[0]));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        std::fs::remove_file(&path).unwrap();
        private(&path, &"x".repeat(RING_BYTES_MAX as usize + 1));
        assert!(source.ring().is_err());
    }

    #[test]
    fn two_makers_end_with_one_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("berth/key");
        let makers: Vec<_> = (0..8)
            .map(|_| {
                let path = path.clone();
                std::thread::spawn(move || *create(&path).unwrap().0.first().secret().expose_secret())
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
