//! The location of a state: a SQLite file, or a database on a PostgreSQL server.

use crate::error::StoreError;
use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// What a PostgreSQL address may say after the `?`. Others are refused, not ignored: an ignored `sslmod` is a connection in
/// the clear, and what is ignored would be logged with its value.
const PARAMETERS: [&str; 14] = [
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
    "options[search_path]",
    "statement-cache-capacity",
];

/// Asked of the server for each connection. A machine that vanished without closing its connection is noticed in half a
/// minute, and with it goes its lock; one that was frozen amid a transaction loses its connection.
const SETTINGS: [(&str, &str); 6] = [
    ("tcp_keepalives_idle", "15"),
    ("tcp_keepalives_interval", "5"),
    ("tcp_keepalives_count", "3"),
    ("idle_in_transaction_session_timeout", "60s"),
    ("lock_timeout", "30s"),
    ("statement_timeout", "120s"),
];

/// Where a state lies. Shown without its password, by `Display` and by `Debug`.
#[derive(Clone)]
pub struct Location(pub(crate) Kind);

#[derive(Clone)]
pub(crate) enum Kind {
    Sqlite(PathBuf),
    Postgres(Box<PgConnectOptions>),
}

impl Location {
    /// The file, for a state of SQLite's.
    pub fn path(&self) -> Option<&std::path::Path> {
        match &self.0 {
            Kind::Sqlite(path) => Some(path),
            Kind::Postgres(_) => None,
        }
    }
}

impl Default for Location {
    fn default() -> Self {
        Self(Kind::Sqlite(PathBuf::new()))
    }
}

impl From<PathBuf> for Location {
    fn from(path: PathBuf) -> Self {
        Self(Kind::Sqlite(path))
    }
}

impl Location {
    pub(crate) fn is_sqlite(&self) -> bool {
        matches!(self.0, Kind::Sqlite(_))
    }

    /// Whether several servers may write to it at once: a file of SQLite's has one.
    pub fn is_shared(&self) -> bool {
        !self.is_sqlite()
    }
}

impl FromStr for Location {
    type Err = StoreError;

    /// `sqlite:PATH` or `postgres://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=…`.
    fn from_str(address: &str) -> Result<Self, StoreError> {
        if let Some(path) = address.strip_prefix("sqlite:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return if path.is_empty() { refuse("it names no file") } else { Ok(PathBuf::from(path).into()) };
        }
        let rest = address.strip_prefix("postgres://").or_else(|| address.strip_prefix("postgresql://"));
        match rest {
            Some(rest) => postgres(address, rest),
            None => refuse("it begins neither with `sqlite:` nor with `postgres://`"),
        }
    }
}

/// No part of the address is ever repeated: a password may be in any of them when it was not encoded.
fn refuse<T>(cause: &str) -> Result<T, StoreError> {
    Err(StoreError::Address { cause: cause.to_owned() })
}

fn postgres(address: &str, rest: &str) -> Result<Location, StoreError> {
    let after_host = rest.find(['/', '?', '#']).map_or("", |at| &rest[at..]);
    if rest.contains('#') || after_host.contains('@') {
        return refuse(
            "`#`, `/`, `?` and `@` in a user's name, password or database are written %23, %2F, %3F and %40",
        );
    }
    let parameters = after_host.split_once('?').map_or("", |(_, parameters)| parameters);
    let mut says_tls = false;
    for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
        let name = parameter.split_once('=').map_or(parameter, |(name, _)| name);
        if !PARAMETERS.contains(&name) {
            return refuse(&format!("it has a parameter that is none of {}", PARAMETERS.join(", ")));
        }
        says_tls |= name == "sslmode";
    }
    let options = match PgConnectOptions::from_str(address) {
        Ok(options) => options.disable_statement_logging().options(SETTINGS),
        Err(sqlx::Error::Configuration(cause)) => return refuse(&cause.to_string()),
        Err(_) => return refuse("it cannot be read"),
    };
    let options = match options.get_application_name() {
        Some(_) => options,
        None => options.application_name("berth"),
    };
    // The usual default (encrypt only if the server offers it, without checking its certificate) is no protection.
    let unsaid = !says_tls && std::env::var_os("PGSSLMODE").is_none();
    let options = if unsaid && !is_local(&options) { options.ssl_mode(PgSslMode::VerifyFull) } else { options };
    Ok(Location(Kind::Postgres(Box::new(options))))
}

fn is_local(options: &PgConnectOptions) -> bool {
    // An IPv6 address stands in brackets.
    let host = options.get_host().trim_matches(['[', ']']);
    options.get_socket().is_some()
        || host.starts_with('/')
        || host == "localhost"
        || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Sqlite(path) => path.display().fmt(f),
            Kind::Postgres(options) => {
                let (user, port) = (options.get_username(), options.get_port());
                let database = options.get_database().unwrap_or(user);
                match options.get_socket() {
                    Some(socket) => {
                        write!(f, "postgres:///{database}?host={}&port={port}&user={user}", socket.display())
                    }
                    None => write!(f, "postgres://{user}@{}:{port}/{database}", options.get_host()),
                }
            }
        }
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(address: &str) -> String {
        let location = Location::from_str(address).unwrap();
        assert_eq!(format!("{location}"), format!("{location:?}"));
        location.to_string()
    }

    #[test]
    fn addresses_are_read_and_shown_without_password() {
        assert_eq!(shown("sqlite:.berth/state.db"), ".berth/state.db");
        assert_eq!(shown("sqlite:///var/lib/berth.db"), "/var/lib/berth.db");
        assert_eq!(shown("postgres://amy:hush@db.acme.dev:6000/fleet"), "postgres://amy@db.acme.dev:6000/fleet");
        assert_eq!(shown("postgresql://amy:h%40%23@db/fleet?sslmode=disable"), "postgres://amy@db:5432/fleet");
        let socket = shown("postgres:///fleet?user=amy&host=/run/pg&password=hush");
        assert_eq!(socket, "postgres:///fleet?host=/run/pg&port=5432&user=amy");
    }

    #[test]
    fn a_bad_address_is_refused_without_being_shown() {
        for bad in [
            "hunter2.db",
            "mysql://amy:hunter2@db/fleet",
            "sqlite:",
            "postgres://amy:hunter2@db/fleet?sslmod=require",
            "postgres://amy@db/fleet?sslpassword=hunter2",
            "postgres://amy:12#hunter2@db/fleet",
            "postgres://amy:12/hunter2@db/fleet",
            "postgres://amy:12?hunter2@db/fleet",
            "postgres://amy:hunter2@db:port/fleet",
            "postgres://amy:hunter2%FF%FE@db/fleet",
            "postgres://amy:hunter2@db/fleet?sslmode=perhaps",
        ] {
            let error = Location::from_str(bad).unwrap_err();
            let text = format!("{error} {error:?} {:?}", error.help());
            assert!(matches!(error, StoreError::Address { .. }) && !text.contains("hunter2"), "{bad}: {text}");
        }
    }

    #[test]
    fn a_server_elsewhere_must_prove_who_it_is() {
        let mode = |address: &str| match Location::from_str(address).unwrap().0 {
            Kind::Postgres(options) => options.get_ssl_mode(),
            Kind::Sqlite(path) => panic!("{}", path.display()),
        };
        assert!(matches!(mode("postgres://db.acme.dev/fleet"), PgSslMode::VerifyFull));
        assert!(matches!(mode("postgres://10.0.0.7/fleet?sslmode=require"), PgSslMode::Require));
        for local in ["//localhost/fleet", "//127.0.0.1/fleet", "//[::1]:6000/fleet", "///fleet?host=/run/pg"] {
            assert!(matches!(mode(&format!("postgres:{local}")), PgSslMode::Prefer), "{local}");
        }
    }
}
