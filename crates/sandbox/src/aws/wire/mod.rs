//! From a request to an action and back, by the protocol of its service.

mod form;
mod json;
mod query;
mod rest;
mod scope;
mod xml;

use hyper::Method;
use serde_json::Value;

use super::ask::{Ask, Extra, Input};
use super::errors::{Answer, AwsError, of_refusal};
use super::{Aws, authenticate, ec2, ids, tokens};
use crate::http::{Call, Refusal, Reply};
pub use scope::{Scope, of as scope_of};

/// One service: how it is spoken to, and what it can do.
pub struct Service {
    /// Its name in the scope of a signature.
    pub scope: &'static str,
    pub protocol: Protocol,
    pub actions: &'static [Action],
}

/// How requests name actions, and how input, output and errors are written.
pub enum Protocol {
    /// Forms and XML as EC2 has them.
    Ec2,
    /// Forms and XML.
    Query {
        namespace: &'static str,
    },
    /// `X-Amz-Target: PREFIX.Action`, JSON both ways.
    Json {
        target: &'static str,
        content_type: &'static str,
    },
    /// Method and path name the action.
    RestJson {
        route: Route,
    },
    RestXml {
        route: Route,
    },
}

/// From a request to the name of its action and its input; nothing where there is none.
pub type Route = fn(&Call) -> Answer<Option<(&'static str, Input)>>;

pub type Handler = fn(&mut Ask<'_, '_>) -> Answer<Value>;

pub struct Action {
    pub name: &'static str,
    pub reads: bool,
    pub run: Handler,
}

impl Action {
    pub const fn read(name: &'static str, run: Handler) -> Action {
        Action { name, reads: true, run }
    }

    pub const fn change(name: &'static str, run: Handler) -> Action {
        Action { name, reads: false, run }
    }
}

/// All services, by the name in a signature's scope.
static SERVICES: &[&Service] = &[
    &super::ec2::SERVICE,
    &super::eks::SERVICE,
    &super::events::SERVICE,
    &super::iam::SERVICE,
    &super::kms::SERVICE,
    &super::logs::SERVICE,
    &super::s3::SERVICE,
    &super::sqs::SERVICE,
    &super::sts::SERVICE,
    &super::tagging::SERVICE,
];

fn service(scope: &Scope) -> Option<&'static Service> {
    SERVICES.iter().copied().find(|service| service.scope == scope.service)
}

/// The name of the action that a call asks for, and its input.
fn read(service: &Service, call: &Call) -> Answer<(String, Input)> {
    match &service.protocol {
        Protocol::Ec2 => query::read(call, false),
        Protocol::Query { .. } => query::read(call, true),
        Protocol::Json { target, .. } => json::read(call, target),
        Protocol::RestJson { route } | Protocol::RestXml { route } => match route(call)? {
            Some((action, input)) => Ok((action.to_owned(), input)),
            None => Err(AwsError::new(404, "UnknownOperationException", format!("{} {}", call.method, call.path))),
        },
    }
}

fn find(service: &Service, action: &str) -> Option<&'static Action> {
    service.actions.iter().find(|one| one.name == action)
}

pub fn answer(aws: &Aws, call: &Call) -> Reply {
    let scope = scope::of(call);
    let Some(service) = scope.as_ref().and_then(service) else {
        return unknown_service(call, scope.as_ref());
    };
    let request_id = uuid::Uuid::new_v4().to_string();
    let answered = scope.as_ref().map(|scope| act(aws, call, scope, service));
    match answered {
        Some(Ok((action, output, extra))) => write(service, call, (&action, output, extra), &request_id),
        Some(Err(error)) => write_error(service, &error, &request_id),
        None => unknown_service(call, None),
    }
}

/// Carries one action out: who calls, whether they may, whether it was done already.
fn act(aws: &Aws, call: &Call, scope: &Scope, service: &'static Service) -> Answer<(String, Value, Extra)> {
    let (name, input) = read(service, call)?;
    let Some(action) = find(service, &name) else {
        tracing::warn!(service = service.scope, action = name, "the sandbox's AWS does not know this action");
        return Err(unknown_action(service, &name));
    };
    aws.world.with(|state| {
        let account = ids::account_number(state.account);
        let principal = authenticate::caller(aws, state, call, scope, &account)?;
        let key = if action.reads { None } else { tokens::key(&scope.region, service.scope, &name, &input) };
        let mut ask = Ask {
            service: service.scope,
            action: action.name,
            input,
            region: &scope.region,
            account: &account,
            principal: &principal,
            state,
            kube: &aws.kube,
            call,
            enforce: aws.enforce,
            extra: Extra::default(),
        };
        authenticate::permit(&ask)?;
        if let Protocol::Ec2 = service.protocol {
            ec2::before(&mut ask)?;
        }
        if let Some(key) = &key
            && let Some(output) = tokens::earlier(ask.state, key)?
        {
            return Ok((name, output, ask.extra));
        }
        let output = (action.run)(&mut ask)?;
        if let Some(key) = key {
            tokens::remember(ask.state, key, &output);
        }
        Ok((name, output, ask.extra))
    })
}

/// Never a 5xx: the SDKs would ask again for minutes.
fn unknown_action(service: &Service, name: &str) -> Box<AwsError> {
    match &service.protocol {
        Protocol::Ec2 | Protocol::Query { .. } => {
            AwsError::new(400, "InvalidAction", format!("The action {name} is not valid for this web service."))
        }
        _ => AwsError::new(400, "UnknownOperationException", format!("The sandbox does not know {name}")),
    }
}

fn unknown_service(call: &Call, scope: Option<&Scope>) -> Reply {
    let error = match scope {
        Some(scope) => {
            let (path, service) = (&call.path, &scope.service);
            tracing::warn!(service, path, "the sandbox's AWS does not know this service");
            AwsError::new(400, "UnknownOperationException", format!("The sandbox does not simulate {service}"))
        }
        None => AwsError::new(
            403,
            "MissingAuthenticationToken",
            "The request must contain a signature: an Authorization header or a presigned URL",
        ),
    };
    // In the form of forms' answers, or one that other clients can show, whatever protocol they speak.
    let request_id = uuid::Uuid::new_v4().to_string();
    match call.query("Action").is_some() || call.body.starts_with(b"Action=") {
        true => query::write_error(&error, "https://sts.amazonaws.com/doc/2011-06-15/", &request_id),
        false => json::write_error(&error, "application/json", &request_id),
    }
}

fn write(service: &Service, call: &Call, (action, output, extra): (&str, Value, Extra), request_id: &str) -> Reply {
    match &service.protocol {
        Protocol::Ec2 => query::write_ec2(action, &output, request_id),
        Protocol::Query { .. } if query::wants_json(call) => query::write_json(action, output, request_id),
        Protocol::Query { namespace } => query::write(action, namespace, &output, request_id),
        Protocol::Json { content_type, .. } => json::write(output, content_type, request_id),
        Protocol::RestJson { .. } => rest::write_json(output, request_id),
        Protocol::RestXml { .. } => rest::write_xml(output, extra, request_id),
    }
}

fn write_error(service: &Service, error: &AwsError, request_id: &str) -> Reply {
    match &service.protocol {
        Protocol::Ec2 => query::write_ec2_error(error, request_id),
        Protocol::Query { namespace } => query::write_error(error, namespace, request_id),
        Protocol::Json { content_type, .. } => json::write_error(error, content_type, request_id),
        Protocol::RestJson { .. } => rest::write_json_error(error, request_id),
        Protocol::RestXml { .. } => rest::write_xml_error(error, request_id),
    }
}

/// A tree with one root as the text of a document, for what is kept in the form in which it is shown.
pub fn xml_text(output: &Value) -> String {
    let mut text = String::from(xml::HEAD);
    if let Some((name, value)) = output.as_object().and_then(|map| map.iter().next()) {
        xml::element(&mut text, name, value, xml::Lists::Flat);
    }
    text
}

/// Status and code of a throttled call.
fn throttled(service: &Service) -> (u16, &'static str) {
    match &service.protocol {
        Protocol::Ec2 => (503, "RequestLimitExceeded"),
        Protocol::Query { .. } => (400, "Throttling"),
        Protocol::Json { .. } => (400, "ThrottlingException"),
        Protocol::RestJson { .. } => (429, "ThrottlingException"),
        Protocol::RestXml { .. } => (503, "SlowDown"),
    }
}

pub fn refuse(call: Option<&Call>, refusal: &Refusal) -> Reply {
    let found = call.and_then(scope::of).and_then(|scope| service(&scope));
    let request_id = uuid::Uuid::new_v4().to_string();
    match found {
        Some(service) => {
            let mut error = of_refusal(refusal, throttled(service));
            if let (Protocol::Ec2, Refusal::Quota, Some(call)) = (&service.protocol, refusal, call) {
                let action = read(service, call).map(|(name, _)| name).unwrap_or_default();
                error.code = ec2::limit_code(&action).into();
            }
            write_error(service, &error, &request_id)
        }
        None => json::write_error(&of_refusal(refusal, (429, "ThrottlingException")), "application/json", &request_id),
    }
}

/// `/SERVICE/ACTION`, as GET where it only reads, for faults, counts and events.
pub fn seen_as(call: &Call) -> (Method, String) {
    let seen = scope::of(call).and_then(|scope| {
        let service = service(&scope)?;
        let (name, _) = read(service, call).ok()?;
        let reads = find(service, &name).is_some_and(|action| action.reads);
        Some((if reads { Method::GET } else { Method::POST }, format!("/{}/{name}", service.scope)))
    });
    seen.unwrap_or_else(|| (call.method.clone(), call.path.clone()))
}
