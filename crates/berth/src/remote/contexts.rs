//! The servers that the user logged in to: `~/.config/berth/config.yaml`, which only its owner can read.
//!
//! `BERTH_SERVER`, `BERTH_TOKEN` and `BERTH_CA_FILE` override the file. A token is only ever sent to the server that it was
//! stored for: another address in `BERTH_SERVER` needs a token of its own.

use crate::failure::Failure;
use crate::local::project::{make, write_private};
use crate::view::yaml::{plain, to_yaml};
use berth_model::yaml::Documents;
use berth_server::client::{Client, Connection};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// A larger file is not read.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
const FILE: &str = "config.yaml";

/// One server, as its user logged in to it.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// `https://host:port`, without a slash at its end.
    pub server: String,
    /// Certificates (PEM) that vouch for the server, where the system's do not.
    pub ca: Option<String>,
    /// SHA-256 of the server's own certificate, in hex: that one and no other.
    pub fingerprint: Option<String>,
    /// Defaults of `--org` and `--env`.
    pub org: String,
    pub env: String,
    pub token: Option<SecretString>,
}

/// The whole file.
#[derive(Clone, Debug, Default)]
pub struct Contexts {
    pub current: String,
    pub contexts: BTreeMap<String, Context>,
}

/// The server that a command is for.
#[derive(Clone, Debug)]
pub struct Target {
    /// Name of the context; empty where the environment says it all.
    pub name: String,
    pub context: Context,
}

/// Which context a command of people and tokens is about.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct ContextArg {
    /// The server of this context; by default the current one
    #[arg(long, value_name = "NAME", env = "BERTH_CONTEXT", hide_env_values = true)]
    pub context: Option<String>,
}

impl ContextArg {
    pub fn target(&self) -> Result<Target, Failure> {
        match &self.context {
            Some(name) => Ok(Target { name: name.clone(), context: Contexts::load()?.get(name)?.clone() }),
            None => active()?.ok_or_else(|| {
                Failure::new("this needs a server, and none is chosen")
                    .help("log in to one:            berth login URL")
                    .help("or choose a known one:    berth context use NAME")
            }),
        }
    }

    pub async fn client(&self) -> Result<Client, Failure> {
        Ok(self.target()?.context.connection().connect().await?)
    }
}

/// The server that commands go to; `None`: the embedded engine.
pub fn active() -> Result<Option<Target>, Failure> {
    let env = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let contexts = Contexts::load()?;
    contexts.active(env)
}

impl Contexts {
    /// Empty when there is no file yet.
    pub fn load() -> Result<Self, Failure> {
        match place(|name| std::env::var_os(name)) {
            Some(path) => Self::read(&path),
            None => Ok(Self::default()),
        }
    }

    /// Writes the file whole or not at all.
    pub fn save(&self) -> Result<PathBuf, Failure> {
        let path = place(|name| std::env::var_os(name)).ok_or_else(|| {
            Failure::new("there is no folder for Berth's configuration").help("set BERTH_CONFIG to the path of a file")
        })?;
        self.write(&path)?;
        Ok(path)
    }

    fn read(path: &Path) -> Result<Self, Failure> {
        let cannot = |error: std::io::Error| Failure::caused(format!("cannot read {}", path.display()), &error);
        let about = match std::fs::metadata(path) {
            Ok(about) => about,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(cannot(error)),
        };
        if about.len() > FILE_BYTES_MAX {
            return Err(Failure::new(format!("{} is too large to be Berth's configuration", path.display())));
        }
        #[cfg(unix)]
        if std::os::unix::fs::PermissionsExt::mode(&about.permissions()) & 0o077 != 0 {
            return Err(Failure::new(format!("{} holds tokens and others can read it", path.display()))
                .help(format!("chmod 600 {}", path.display())));
        }
        let text = std::fs::read_to_string(path).map_err(cannot)?;
        Self::parse(&text, &path.display().to_string())
    }

    fn write(&self, path: &Path) -> Result<(), Failure> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            make(folder)?;
        }
        write_private(path, to_yaml(&self.value()).as_bytes())
    }

    /// Messages never show a line of the file: tokens are in it.
    fn parse(text: &str, file: &str) -> Result<Self, Failure> {
        let broken = |what: &str| {
            Failure::new(format!("{file} is not a configuration of Berth's: {what}"))
                .help(format!("remove {file}, then log in again:   berth login URL"))
        };
        let mut documents = Documents::new(file, text.as_bytes()).map_err(|_| broken("it cannot be read as text"))?;
        let Some(first) = documents.next() else { return Ok(Self::default()) };
        if let Some(line) = first.problems.first().map(|problem| problem.span.map_or(0, |span| span.line)) {
            return Err(broken(&format!("line {line} is not valid YAML")));
        }
        let root = first.root.as_ref().map_or(Value::Null, plain);
        let root = match root {
            Value::Null => return Ok(Self::default()),
            Value::Object(map) => map,
            _ => return Err(broken("it is not a map")),
        };
        let current = text_of(&root, "currentContext").ok_or_else(|| broken("`currentContext` is not text"))?;
        let mut contexts = BTreeMap::new();
        match root.get("contexts") {
            None | Some(Value::Null) => {}
            Some(Value::Object(map)) => {
                for (name, value) in map {
                    let context = Context::of(value)
                        .ok_or_else(|| broken(&format!("the context `{name}` has no server, or not as text")))?;
                    contexts.insert(name.clone(), context);
                }
            }
            Some(_) => return Err(broken("`contexts` is not a map")),
        }
        Ok(Self { current, contexts })
    }

    fn value(&self) -> Value {
        let mut root = Map::new();
        root.insert("currentContext".into(), Value::String(self.current.clone()));
        let contexts = self.contexts.iter().map(|(name, context)| (name.clone(), context.value())).collect();
        root.insert("contexts".into(), Value::Object(contexts));
        Value::Object(root)
    }

    pub fn get(&self, name: &str) -> Result<&Context, Failure> {
        self.contexts.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.contexts.keys().map(String::as_str).collect();
            let failure = Failure::new(format!("there is no context named `{name}`"));
            if known.is_empty() {
                failure.help("to make one:   berth login URL")
            } else {
                failure.help(format!("known contexts: {}", known.join(", ")))
            }
        })
    }

    fn active(&self, env: impl Fn(&str) -> Option<OsString>) -> Result<Option<Target>, Failure> {
        let text = |name: &str| match env(name).map(OsString::into_string) {
            Some(Ok(text)) => Ok(Some(text)),
            Some(Err(_)) => Err(Failure::new(format!("{name} is not valid UTF-8"))),
            None => Ok(None),
        };
        let mut target = match text("BERTH_SERVER")? {
            Some(server) => {
                let server = server_url(&server)?;
                // The current context is preferred where several have the same server.
                let same = |(_, context): &(&String, &Context)| context.server == server;
                let known = self.contexts.get_key_value(&self.current).filter(same);
                let known = known.or_else(|| self.contexts.iter().find(same));
                match known {
                    Some((name, context)) => Target { name: name.clone(), context: context.clone() },
                    None => Target { name: String::new(), context: Context { server, ..Context::default() } },
                }
            }
            None if self.current.is_empty() => return Ok(None),
            None => Target { name: self.current.clone(), context: self.get(&self.current)?.clone() },
        };
        if let Some(token) = text("BERTH_TOKEN")? {
            target.context.token = Some(SecretString::from(token.trim().to_owned()));
        }
        if let Some(path) = env("BERTH_CA_FILE") {
            // The CA file replaces the pinned fingerprint.
            (target.context.ca, target.context.fingerprint) = (Some(read_ca(Path::new(&path))?), None);
        }
        Ok(Some(target))
    }
}

impl Context {
    /// How the server is reached.
    pub fn connection(&self) -> Connection {
        let token = self.token.clone().unwrap_or_default();
        Connection {
            ca: self.ca.clone().map(String::into_bytes),
            fingerprint: self.fingerprint.clone(),
            ..Connection::new(self.server.clone(), token)
        }
    }

    fn of(value: &Value) -> Option<Self> {
        let map = value.as_object()?;
        let server = text_of(map, "server").filter(|server| !server.is_empty())?;
        let optional = |name: &str| text_of(map, name).map(|text| Some(text).filter(|text| !text.is_empty()));
        Some(Self {
            server,
            ca: optional("ca")?,
            fingerprint: optional("fingerprint")?,
            org: text_of(map, "org")?,
            env: text_of(map, "env")?,
            token: optional("token")?.map(SecretString::from),
        })
    }

    fn value(&self) -> Value {
        let mut map = Map::new();
        let mut put = |name: &str, text: &str| {
            if !text.is_empty() {
                map.insert(name.into(), Value::String(text.into()));
            }
        };
        put("server", &self.server);
        put("ca", self.ca.as_deref().unwrap_or_default());
        put("fingerprint", self.fingerprint.as_deref().unwrap_or_default());
        put("org", &self.org);
        put("env", &self.env);
        put("token", self.token.as_ref().map_or("", |token| token.expose_secret()));
        Value::Object(map)
    }
}

/// Empty when it is not there; `None` when it is something else than text.
fn text_of(map: &Map<String, Value>, name: &str) -> Option<String> {
    match map.get(name) {
        None | Some(Value::Null) => Some(String::new()),
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Number(number)) => Some(number.to_string()),
        Some(_) => None,
    }
}

/// Reads certificates that vouch for a server.
pub fn read_ca(path: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::caused(format!("cannot read the certificates in {}", path.display()), &error))?;
    if !text.contains("-----BEGIN CERTIFICATE-----") {
        return Err(Failure::new(format!("{} holds no certificate (PEM)", path.display())));
    }
    Ok(text)
}

/// A server's address as people type it, in the one form that is stored: `https://host:port`.
pub fn server_url(text: &str) -> Result<String, Failure> {
    let bad = |why: &str| {
        Failure::new(format!("`{text}` is not the address of a server: {why}"))
            .help("such as https://berth.example.com or https://127.0.0.1:7443")
    };
    let with_scheme = if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
    let url = reqwest::Url::parse(&with_scheme).map_err(|error| bad(&error.to_string()))?;
    if url.scheme() != "https" {
        return Err(bad("servers speak https only"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(bad("an address holds no password"));
    }
    if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
        return Err(bad("only host and port belong here"));
    }
    let host = url.host_str().filter(|host| !host.is_empty()).ok_or_else(|| bad("it has no host"))?;
    Ok(match url.port() {
        Some(port) => format!("https://{host}:{port}"),
        None => format!("https://{host}"),
    })
}

/// The folder of Berth's configuration, where there is one.
pub fn folder() -> Option<PathBuf> {
    Some(place(|name| std::env::var_os(name))?.parent()?.to_owned())
}

/// `$BERTH_CONFIG`, or Berth's own folder in the user's configuration folder.
fn place(env: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    if let Some(path) = env("BERTH_CONFIG").filter(|path| !path.is_empty()) {
        return Some(path.into());
    }
    let absolute = |name: &str| env(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = absolute("XDG_CONFIG_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".config")))
        .or_else(|| absolute("APPDATA"))?;
    Some(folder.join("berth").join(FILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> Contexts {
        let context = |server: &str, token: &str| Context {
            server: server.into(),
            ca: Some("-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n".into()),
            fingerprint: None,
            org: "shop".into(),
            env: String::new(),
            token: Some(SecretString::from(token.to_owned())),
        };
        let contexts = [
            ("home".to_owned(), context("https://127.0.0.1:7443", "berth_home")),
            ("work".to_owned(), context("https://berth.example.com", "berth_work")),
        ];
        Contexts { current: "work".into(), contexts: contexts.into() }
    }

    fn token(target: &Target) -> Option<&str> {
        target.context.token.as_ref().map(ExposeSecret::expose_secret)
    }

    fn env(pairs: &'static [(&str, &str)]) -> impl Fn(&str) -> Option<OsString> {
        move |name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into())
    }

    #[test]
    fn what_is_written_is_read_back_and_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/config.yaml");
        two().write(&path).unwrap();
        let read = Contexts::read(&path).unwrap();
        assert_eq!(read.value(), two().value());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
            let failure = Contexts::read(&path).unwrap_err();
            assert!(failure.to_string().contains("others can read it"), "{failure}");
        }
    }

    #[test]
    fn nothing_is_known_before_the_first_login() {
        let none = Contexts::read(Path::new("/no/such/file")).unwrap();
        assert!(none.active(env(&[])).unwrap().is_none());
    }

    #[test]
    fn a_token_is_not_sent_to_another_server() {
        let contexts = two();
        let current = contexts.active(env(&[])).unwrap().unwrap();
        assert_eq!((current.name.as_str(), token(&current)), ("work", Some("berth_work")));
        let other = contexts.active(env(&[("BERTH_SERVER", "evil.example.com")])).unwrap().unwrap();
        assert_eq!((other.context.server.as_str(), token(&other)), ("https://evil.example.com", None));
        let known = contexts.active(env(&[("BERTH_SERVER", "https://127.0.0.1:7443/")])).unwrap().unwrap();
        assert_eq!((known.name.as_str(), token(&known)), ("home", Some("berth_home")));
        let own = contexts.active(env(&[("BERTH_SERVER", "a.b"), ("BERTH_TOKEN", "berth_x\n")])).unwrap().unwrap();
        assert_eq!(token(&own), Some("berth_x"));
    }

    #[test]
    fn a_broken_file_is_told_without_showing_it() {
        let failure = Contexts::parse("contexts:\n  a: {token: berth_hush", "config.yaml").unwrap_err();
        assert!(!format!("{failure:?}").contains("hush"), "{failure:?}");
        let failure = Contexts::parse("contexts: {a: {token: berth_hush}}", "config.yaml").unwrap_err();
        assert!(failure.to_string().contains("`a` has no server") && !format!("{failure:?}").contains("hush"));
        let failure = two().get("wrok").unwrap_err();
        assert!(format!("{failure:?}").contains("home, work"));
    }

    #[test]
    fn addresses_have_one_form() {
        for (typed, stored) in [
            ("127.0.0.1:7443", "https://127.0.0.1:7443"),
            ("https://Berth.Example.com/", "https://berth.example.com"),
            ("https://b:443", "https://b"),
            ("[::1]:7443", "https://[::1]:7443"),
        ] {
            assert_eq!(server_url(typed).unwrap(), stored);
        }
        for bad in ["http://b", "https://", "https://u:p@b", "https://b/path", "https://b?x=1", "ftp://b"] {
            assert!(server_url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_file_is_where_configuration_belongs() {
        assert_eq!(place(env(&[("BERTH_CONFIG", "/x/c.yaml"), ("HOME", "/h")])), Some("/x/c.yaml".into()));
        assert_eq!(place(env(&[("XDG_CONFIG_HOME", "/x")])), Some("/x/berth/config.yaml".into()));
        assert_eq!(place(env(&[("HOME", "/h")])), Some("/h/.config/berth/config.yaml".into()));
    }
}
