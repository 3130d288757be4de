//! The credentials of a worker: those that come sealed with a task, and its own. A worker reads only the variables and files that its
//! flags allow, and sends its own tokens only to addresses that it knows itself.

use crate::context::{AccountRow, TokenFrom};
use berth_clouds::accounts::{Simulated, TOKEN_BYTES_MAX, usual_url};
use berth_clouds::{Clouds, Credentials, registry};
use berth_engine::handler::{Class, Outcome, Trouble};
use secrecy::SecretString;
use std::collections::BTreeSet;
use std::io::Read;
use std::path::PathBuf;

/// What a worker may use of its own.
#[derive(Clone, Default)]
pub struct WorkerCredentials {
    /// All accounts talk to these clouds.
    pub simulated: Option<Simulated>,
    /// Variables that Accounts may name.
    pub allow_env: BTreeSet<String>,
    /// Files, or folders with files, that Accounts may name.
    pub allow_files: Vec<PathBuf>,
    /// Orgs that all this is for, beside resources without an org; [`ALL_ORGS`] for every one.
    pub own_for: BTreeSet<String>,
    /// The orgs of the task at hand.
    pub orgs: BTreeSet<String>,
}

/// Stands for every org.
pub const ALL_ORGS: &str = "*";

fn var(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}

fn unauthorized(message: String) -> Trouble {
    Trouble::new(Class::Unauthorized, message)
}

impl WorkerCredentials {
    /// What is the worker's own is used for an org only where the worker was told so: anyone who may declare a resource in an
    /// org would otherwise spend it.
    fn check_lending(&self) -> Outcome<()> {
        let lent = |org: &String| org.is_empty() || self.own_for.contains(org) || self.own_for.contains(ALL_ORGS);
        match self.orgs.iter().find(|org| !lent(org)) {
            None => Ok(()),
            Some(org) => Err(unauthorized(format!("this worker does not use its own credentials for org {org}"))
                .help(format!("apply an Account with a token in org {org}"))
                .help(format!("or start the worker, or the server it is in, with --own-credentials-for {org}"))),
        }
    }

    /// Connections to the accounts of a task, and to the worker's own.
    pub fn clouds(&self, accounts: &[AccountRow], given: impl Fn(&str) -> Option<SecretString>) -> Clouds {
        let mut clouds = Clouds::new().at_pace(self.simulated.as_ref().map(|simulated| simulated.pace));
        for provider in registry::names() {
            clouds = clouds.account(format!("env:{provider}"), self.own_account(provider));
        }
        for row in accounts {
            clouds = clouds.account(row.name.clone(), self.for_account(row, given(&row.name)));
        }
        clouds
    }

    /// The region of the worker's own account with a cloud.
    pub fn region(&self, account: &str) -> Option<String> {
        self.own_account(account.strip_prefix("env:")?).ok()?.region
    }

    fn own_account(&self, provider: &str) -> Outcome<Credentials> {
        if let Some(simulated) = &self.simulated {
            return simulated.credentials(provider);
        }
        self.check_lending()?;
        Credentials::from_env(provider, var).map_err(|trouble| {
            Trouble::new(trouble.class, format!("this worker has no token for {provider}"))
                .help(format!("apply an Account for {provider}, or set its variables where the worker runs"))
                .help("a worker that only rehearses:   berth server --sandbox")
        })
    }

    fn for_account(&self, row: &AccountRow, given: Option<SecretString>) -> Outcome<Credentials> {
        if let Some(simulated) = &self.simulated {
            return Ok(Credentials { region: row.region.clone(), ..simulated.credentials(&row.provider)? });
        }
        let own_url = usual_url(&row.provider, &var);
        let name = &row.name;
        if !matches!(row.token, TokenFrom::Sealed | TokenFrom::Missing) {
            self.check_lending()?;
        }
        let (token, api_url) = match &row.token {
            TokenFrom::Sealed => {
                let token = given.ok_or_else(|| unauthorized(format!("Account {name} came without its token")))?;
                (token, row.api_url.clone().or(own_url))
            }
            TokenFrom::Env(variable) => (self.token_from_env(row, variable)?, self.trusted_url(row, own_url)?),
            TokenFrom::File(path) => (self.token_from_file(row, path)?, self.trusted_url(row, own_url)?),
            TokenFrom::WorkerLocal => (Credentials::from_env(&row.provider, var)?.token, own_url),
            TokenFrom::Missing => return Err(unauthorized(format!("Account {name} has no token"))),
        };
        let own_url = usual_url(&row.provider, &var);
        Ok(Credentials {
            provider: row.provider.clone(),
            token,
            foreign_url: api_url.is_some() && api_url != own_url,
            api_url,
            region: row.region.clone(),
            requests_per_second: row.requests_per_second,
            // The server counts the tasks of an account.
            max_concurrent_tasks: 0,
        })
    }

    fn token_from_env(&self, row: &AccountRow, variable: &str) -> Outcome<SecretString> {
        if !self.allow_env.contains(variable) {
            return Err(unauthorized(format!(
                "Account {} takes its token from the worker's {variable}, which this worker does not allow",
                row.name
            ))
            .help(format!("start the worker with --allow-env {variable}")));
        }
        let value = var(variable).ok_or_else(|| {
            unauthorized(format!("Account {} takes its token from the worker's {variable}, which is not set", row.name))
        })?;
        Ok(SecretString::from(value.trim().to_owned()))
    }

    fn token_from_file(&self, row: &AccountRow, path: &str) -> Outcome<SecretString> {
        let cannot = |why: &str| {
            unauthorized(format!("Account {} takes its token from the worker's file {path}, {why}", row.name))
        };
        // By its true place: a link must not lead out of what is allowed.
        let place = std::fs::canonicalize(path);
        let allowed = |place: &PathBuf| {
            self.allow_files.iter().filter_map(|one| std::fs::canonicalize(one).ok()).any(|one| place.starts_with(one))
        };
        let place = place.ok().filter(allowed).ok_or_else(|| {
            cannot("which this worker does not allow or does not have")
                .help(format!("start the worker with --allow-file {path}"))
        })?;
        let mut text = String::new();
        let read = std::fs::File::open(place).and_then(|file| file.take(TOKEN_BYTES_MAX).read_to_string(&mut text));
        match read {
            Ok(_) if !text.trim().is_empty() => Ok(SecretString::from(text.trim().to_owned())),
            Ok(_) => Err(cannot("which is empty")),
            Err(_) => Err(cannot("which cannot be read")),
        }
    }

    /// A secret of the worker's goes to the cloud itself, or to where the worker says that the cloud is.
    fn trusted_url(&self, row: &AccountRow, own: Option<String>) -> Outcome<Option<String>> {
        let cloud = registry::find(&row.provider)?;
        let same = |one: &str, other: &str| one.trim_end_matches('/') == other.trim_end_matches('/');
        match (&row.api_url, &own) {
            (None, _) => Ok(own),
            (Some(url), Some(own_url)) if same(url, own_url) => Ok(own),
            (Some(url), None) if same(url, cloud.api_url) => Ok(None),
            (Some(url), _) => {
                let variable = cloud.variables.api_url;
                Err(unauthorized(format!(
                    "Account {} would have the worker's own token sent to {url}, which the worker does not know",
                    row.name
                ))
                .help(format!("start the worker with {variable}={url}")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrecy::ExposeSecret;

    fn row(token: TokenFrom, api_url: Option<&str>) -> AccountRow {
        AccountRow {
            name: "acme".into(),
            provider: "civo".into(),
            api_url: api_url.map(Into::into),
            region: None,
            requests_per_second: 0,
            max_concurrent_tasks: 3,
            token,
        }
    }

    #[test]
    fn files_are_read_only_where_allowed_and_never_through_a_link_out() {
        let dir = tempfile::tempdir().unwrap();
        let (inside, outside) = (dir.path().join("in"), dir.path().join("out"));
        std::fs::create_dir(&inside).unwrap();
        std::fs::write(&outside, "hunter2\n").unwrap();
        std::fs::write(inside.join("token"), " good \n").unwrap();
        std::os::unix::fs::symlink(&outside, inside.join("link")).unwrap();
        let credentials = WorkerCredentials { allow_files: vec![inside.clone()], ..WorkerCredentials::default() };
        let read =
            |path: PathBuf| credentials.for_account(&row(TokenFrom::File(path.display().to_string()), None), None);
        assert_eq!(read(inside.join("token")).unwrap().token.expose_secret(), "good");
        for path in [outside, inside.join("link"), inside.join("none")] {
            let trouble = read(path).unwrap_err();
            assert!(
                trouble.help_lines()[0].contains("--allow-file") && !trouble.to_string().contains("hunter2"),
                "{trouble}"
            );
        }
    }

    #[test]
    fn what_is_the_workers_own_is_for_orgs_that_it_was_told() {
        let with = |own_for: &[&str], orgs: &[&str]| {
            let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            let credentials = WorkerCredentials {
                allow_env: ["PATH".to_owned()].into(),
                own_for: set(own_for),
                orgs: set(orgs),
                ..WorkerCredentials::default()
            };
            let named = credentials.for_account(&row(TokenFrom::Env("PATH".into()), None), None).map(|_| ());
            let sealed = credentials.for_account(&row(TokenFrom::Sealed, None), Some("t".to_owned().into()));
            assert!(sealed.is_ok(), "a token that came with the task is the Account's own");
            let local = credentials.check_lending();
            assert_eq!(named.is_ok(), local.is_ok());
            local
        };
        for (own_for, orgs, lent) in [
            (&[][..], &[""][..], true),
            (&[], &["shop"], false),
            (&["shop"], &["shop"], true),
            (&["shop"], &["", "shop"], true),
            (&["shop"], &["shop", "bank"], false),
            (&["*"], &["shop", "bank"], true),
        ] {
            let answer = with(own_for, orgs);
            assert_eq!(answer.is_ok(), lent, "{own_for:?} {orgs:?}");
            if let Err(trouble) = answer {
                assert!(trouble.help_lines().iter().any(|line| line.contains("--own-credentials-for")), "{trouble}");
            }
        }
    }

    #[test]
    fn variables_are_read_only_where_allowed() {
        let trouble =
            WorkerCredentials::default().for_account(&row(TokenFrom::Env("PATH".into()), None), None).unwrap_err();
        assert!(trouble.help_lines()[0].contains("--allow-env PATH"));
        let credentials = WorkerCredentials { allow_env: ["PATH".to_owned()].into(), ..WorkerCredentials::default() };
        assert!(credentials.for_account(&row(TokenFrom::Env("PATH".into()), None), None).is_ok());
    }

    #[test]
    fn a_token_of_the_workers_goes_to_no_address_that_another_chose() {
        let credentials = WorkerCredentials { allow_env: ["PATH".to_owned()].into(), ..WorkerCredentials::default() };
        let evil = Some("https://evil.example");
        let trouble = credentials.for_account(&row(TokenFrom::Env("PATH".into()), evil), None).unwrap_err();
        assert!(trouble.to_string().contains("evil.example"));
        let usual = Some("https://api.civo.com/");
        assert!(credentials.for_account(&row(TokenFrom::Env("PATH".into()), usual), None).is_ok());
        let own = SecretString::from("given");
        let given = credentials.for_account(&row(TokenFrom::Sealed, evil), Some(own)).unwrap();
        assert_eq!(given.api_url.as_deref(), evil, "an account's own token goes where the account says");
    }

    #[test]
    fn a_simulated_cloud_gets_no_real_token() {
        let simulated = Simulated::at([("civo".into(), "http://127.0.0.1:1".into())].into(), None, 1.0);
        let credentials = WorkerCredentials { simulated: Some(simulated), ..WorkerCredentials::default() };
        let got = credentials.for_account(&row(TokenFrom::Sealed, None), Some(SecretString::from("real"))).unwrap();
        assert_eq!(got.token.expose_secret(), "sandbox");
        let absent = AccountRow { provider: "digitalocean".into(), ..row(TokenFrom::Sealed, None) };
        assert!(credentials.for_account(&absent, Some(SecretString::from("real"))).is_err());
        assert!(credentials.own_account("digitalocean").is_err());
    }
}
