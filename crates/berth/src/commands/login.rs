//! `berth login`: makes a context with a token in it.

use crate::cli::{Threads, block_on};
use crate::failure::{CommandResult, Exit, Failure};
use crate::remote::contexts::{self, Context, Contexts};
use crate::remote::sign_in::{self, Provider};
use crate::view::terminal::stderr_is_live;
use berth_server::access::trust::{Trusted, by_fingerprint};
use berth_server::client::Client;
use berth_server::{Code, Fault, pb};
use secrecy::{ExposeSecret, SecretString};
use std::io::Read;
use std::path::{Path, PathBuf};

/// What a file with a token in it may have at most.
const TOKEN_BYTES_MAX: u64 = 4096;

/// Log in to a server
#[derive(clap::Args, Debug)]
#[command(
    before_help = "Examples:\n  berth login https://berth.example.com\n  berth login https://127.0.0.1:7443 --ca berth-server/ca.pem --token-file berth-server/admin.token"
)]
pub struct Args {
    /// Address of the server; by default the current context's
    #[arg(value_name = "URL")]
    url: Option<String>,
    /// Name of the context that is made; by default the server's host
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Log in with the token in this file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["token_stdin", "device"])]
    token_file: Option<PathBuf>,
    /// Log in with the token on standard input
    #[arg(long, conflicts_with = "device")]
    token_stdin: bool,
    /// Sign in with a code on another device
    #[arg(long)]
    device: bool,
    /// Print the address to sign in at, and open no browser
    #[arg(long)]
    no_browser: bool,
    /// Certificates (PEM) that vouch for the server
    #[arg(long, value_name = "FILE", conflicts_with = "fingerprint")]
    ca: Option<PathBuf>,
    /// Trust the certificate with this SHA-256, which the server prints when it starts
    #[arg(long, value_name = "sha256:HEX")]
    fingerprint: Option<String>,
    /// Certificates (PEM) that vouch for the identity provider
    #[arg(long, value_name = "FILE")]
    oidc_ca: Option<PathBuf>,
    /// What --org is with this context when nobody says
    #[arg(long, value_name = "ORG")]
    org: Option<String>,
    /// What --env is with this context when nobody says
    #[arg(long, value_name = "ENV")]
    env: Option<String>,
}

pub fn run(args: Args) -> CommandResult {
    let mut known = Contexts::load()?;
    let (name, mut context) = begun(&args, &known)?;
    if let Some(path) = &args.ca {
        (context.ca, context.fingerprint) = (Some(contexts::read_ca(path)?), None);
    }
    let token = match (&args.token_file, args.token_stdin) {
        (Some(path), _) => Some(token_in(path)?),
        (None, true) => Some(token_from(std::io::stdin().lock(), "standard input")?),
        (None, false) => None,
    };
    let (context, token) = block_on(Threads::One, async {
        if let Some(text) = &args.fingerprint {
            match by_fingerprint(&context.server, text).await.map_err(Failure::from)? {
                Trusted::Authority(pem) => (context.ca, context.fingerprint) = (Some(pem), None),
                Trusted::Certificate(digits) => (context.ca, context.fingerprint) = (None, Some(digits)),
            }
        }
        context.token = token;
        if context.token.is_none() {
            context.token = Some(signed_in(&args, &context).await?);
        }
        let client = connected(&context).await?;
        let answer = client.access().who_am_i(pb::WhoAmIRequest {}).await;
        let answer = answer.map_err(|status| refused(client.fault(&status)))?;
        Ok((context, answer.into_inner().token.unwrap_or_default()))
    })?;
    let server = context.server.clone();
    known.contexts.insert(name.clone(), context);
    known.current = name.clone();
    known.save()?;
    let until = if token.expires_at.is_empty() { String::new() } else { format!(", until {}", token.expires_at) };
    anstream::eprintln!("logged in to {server} as {}, {}{until}", token.name, reach(&token));
    anstream::eprintln!(
        "commands go there now (context {name}); back to the embedded engine:   berth context use --local"
    );
    Ok(Exit::Done)
}

/// The context to fill: a new one, or the one of the same server.
fn begun(args: &Args, known: &Contexts) -> Result<(String, Context), Failure> {
    let (found, mut context) = match &args.url {
        Some(url) => {
            let server = contexts::server_url(url)?;
            let same = |(_, context): &(&String, &Context)| context.server == server;
            let current = known.contexts.get_key_value(&known.current).filter(same);
            match current.or_else(|| known.contexts.iter().find(same)) {
                Some((name, context)) => (Some(name.clone()), context.clone()),
                None => (None, Context { server, ..Context::default() }),
            }
        }
        None => match contexts::active()? {
            Some(target) => (Some(target.name).filter(|name| !name.is_empty()), target.context),
            None => {
                return Err(Failure::new("which server to log in to?")
                    .help("berth login https://HOST:7443")
                    .help("a server of your own:   berth server"));
            }
        },
    };
    let host = context.server.trim_start_matches("https://").to_owned();
    let name = args.name.clone().or(found).unwrap_or(host);
    if name.is_empty() || name.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(Failure::new(format!("`{name}` cannot be the name of a context")));
    }
    context.org = args.org.clone().unwrap_or(context.org);
    context.env = args.env.clone().unwrap_or(context.env);
    Ok((name, context))
}

/// A token of the server's for whoever signs in at its identity provider.
async fn signed_in(args: &Args, context: &Context) -> Result<SecretString, Failure> {
    let nobody = Context { token: None, ..context.clone() };
    let client = connected(&nobody).await?;
    let options = client.access().login_options(pb::LoginOptionsRequest {}).await;
    let options = options.map_err(|status| Failure::from(client.fault(&status)))?.into_inner();
    if options.issuer.is_empty() {
        return Err(Failure::new(format!("{} knows no identity provider: people log in with tokens", context.server))
            .help(format!("to log in with one:   berth login {} --token-file FILE", context.server))
            .help("whoever runs the server makes tokens:   berth token create NAME --role operator"));
    }
    let ca = args.oidc_ca.as_deref();
    let provider = Provider::find(&options.issuer, &options.client_id, &options.scopes, ca).await?;
    let signed_in = match args.device {
        true => sign_in::by_device(&provider).await?,
        false => sign_in::by_browser(&provider, !args.no_browser && stderr_is_live()).await?,
    };
    let request = pb::LoginRequest { id_token: signed_in.id_token.expose_secret().to_owned(), nonce: signed_in.nonce };
    let answer = client.access().login(request).await.map_err(|status| Failure::from(client.fault(&status)))?;
    Ok(SecretString::from(answer.into_inner().secret))
}

async fn connected(context: &Context) -> Result<Client, Failure> {
    context.connection().connect().await.map_err(|fault| {
        let unknown = fault.unknown_authority;
        let failure = Failure::from(fault);
        match unknown {
            true => failure.help(format!(
                "or the fingerprint that the server printed:   berth login {} --fingerprint sha256:…",
                context.server
            )),
            false => failure,
        }
    })
}

/// The server's own words, without the advice to do what is being done.
fn refused(fault: Fault) -> Failure {
    match fault.code {
        Code::Unauthenticated => Failure::new(fault.message).help("ask whoever runs the server for another token"),
        _ => Failure::from(fault),
    }
}

fn token_in(path: &Path) -> Result<SecretString, Failure> {
    let shown = path.display().to_string();
    let file = std::fs::File::open(path)
        .map_err(|error| Failure::caused(format!("cannot read the token in {shown}"), &error))?;
    token_from(file, &shown)
}

fn token_from(from: impl Read, place: &str) -> Result<SecretString, Failure> {
    let mut text = String::new();
    from.take(TOKEN_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(|error| Failure::caused(format!("cannot read the token in {place}"), &error))?;
    let token = text.trim();
    if !token.starts_with(berth_server::access::token::PREFIX) || token.contains(char::is_whitespace) {
        return Err(Failure::new(format!("there is no token of Berth's in {place}"))
            .help("a token begins with `berth_`; berth token create prints one"));
    }
    Ok(SecretString::from(token.to_owned()))
}

/// For people: `operator in org shop`.
pub fn reach(token: &pb::Token) -> String {
    match (token.org.as_str(), token.env.as_str()) {
        ("", "") => token.role.clone(),
        (org, "") => format!("{} in org {org}", token.role),
        ("", env) => format!("{} in env {env}", token.role),
        (org, env) => format!("{} in org {org}, env {env}", token.role),
    }
}
