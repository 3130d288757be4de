//! What the descriptors say of every method: its REST form, who may call it, what is audited. Read once, at the start.

use crate::DESCRIPTORS;
use prost_reflect::{DescriptorPool, MethodDescriptor, Value};
use std::collections::HashMap;
use std::sync::OnceLock;

/// One method of the API.
pub struct Method {
    /// Such as `/berth.api.v1.Resources/Apply`.
    pub path: String,
    /// Such as `Resources.Apply`, for metrics and for people.
    pub label: String,
    pub rest: Option<Rest>,
    pub access: Access,
    /// Empty: not audited.
    pub audit: String,
    pub summary: String,
    pub streams: bool,
    pub descriptor: MethodDescriptor,
}

impl Method {
    /// Whether it needs no token.
    pub fn is_public(&self) -> bool {
        self.access == Access::Public
    }
}

/// The least role that may call a method, as the option says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Unspecified,
    Public,
    Anyone,
    Viewer,
    Operator,
    Admin,
    Worker,
}

/// `GET /v1/resources/{kind}/{name}`.
pub struct Rest {
    pub verb: &'static str,
    pub template: String,
    pub segments: Vec<Segment>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Segment {
    Literal(String),
    /// Name of the request's field.
    Field(String),
}

impl Rest {
    /// Whether fields come from a JSON body; otherwise from the query.
    pub fn has_body(&self) -> bool {
        self.verb == "POST"
    }
}

pub struct Methods {
    pub pool: DescriptorPool,
    all: Vec<Method>,
    by_path: HashMap<String, usize>,
}

impl Methods {
    pub fn all(&self) -> &[Method] {
        &self.all
    }

    /// By gRPC path.
    pub fn at(&self, path: &str) -> Option<&Method> {
        self.by_path.get(path).map(|index| &self.all[*index])
    }

    pub fn position(&self, path: &str) -> Option<usize> {
        self.by_path.get(path).copied()
    }
}

/// The methods of every service. The descriptors are made with the program, so that they can always be read: a test does.
pub fn methods() -> &'static Methods {
    static METHODS: OnceLock<Methods> = OnceLock::new();
    METHODS.get_or_init(|| {
        let pool = DescriptorPool::decode(DESCRIPTORS).unwrap_or_default();
        let all: Vec<Method> = pool
            .services()
            .filter(|service| service.package_name() == "berth.api.v1")
            .flat_map(|service| service.methods().collect::<Vec<_>>())
            .map(|method| read(&pool, method))
            .collect();
        let by_path = all.iter().enumerate().map(|(index, method)| (method.path.clone(), index)).collect();
        Methods { pool, all, by_path }
    })
}

fn read(pool: &DescriptorPool, descriptor: MethodDescriptor) -> Method {
    let options = descriptor.options();
    let said = pool
        .get_extension_by_name("berth.api.method")
        .and_then(|extension| options.get_extension(&extension).as_message().cloned());
    let text = |name: &str| {
        let value = said.as_ref().and_then(|said| said.get_field_by_name(name));
        value.as_deref().and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let access = match said.as_ref().and_then(|s| s.get_field_by_name("access")).and_then(|v| v.as_enum_number()) {
        Some(1) => Access::Public,
        Some(2) => Access::Anyone,
        Some(3) => Access::Viewer,
        Some(4) => Access::Operator,
        Some(5) => Access::Admin,
        Some(6) => Access::Worker,
        _ => Access::Unspecified,
    };
    let service = descriptor.parent_service();
    Method {
        path: format!("/{}/{}", service.full_name(), descriptor.name()),
        label: format!("{}.{}", service.name(), descriptor.name()),
        rest: rest(&text("rest")),
        access,
        audit: text("audit"),
        summary: text("summary"),
        streams: descriptor.is_server_streaming(),
        descriptor,
    }
}

fn rest(text: &str) -> Option<Rest> {
    let (verb, template) = text.split_once(' ')?;
    let verb = ["GET", "POST", "DELETE"].into_iter().find(|known| *known == verb)?;
    let segment = |part: &str| match part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
        Some(field) => Segment::Field(field.to_owned()),
        None => Segment::Literal(part.to_owned()),
    };
    let segments = template.trim_start_matches('/').split('/').map(segment).collect();
    Some(Rest { verb, template: template.to_owned(), segments })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_method_says_who_may_call_it() {
        let methods = methods();
        assert!(methods.all().len() > 35, "{}", methods.all().len());
        for method in methods.all() {
            assert_ne!(method.access, Access::Unspecified, "{}", method.path);
            assert_eq!(method.rest.is_none(), method.access == Access::Worker, "{}", method.path);
            assert_eq!(method.rest.is_some(), !method.summary.is_empty(), "{}", method.path);
            assert!(methods.at(&method.path).is_some());
        }
    }

    #[test]
    fn no_two_methods_share_a_rest_form() {
        let forms: Vec<String> = methods()
            .all()
            .iter()
            .filter_map(|method| method.rest.as_ref())
            .map(|rest| {
                let shape: Vec<&str> = rest
                    .segments
                    .iter()
                    .map(|segment| if let Segment::Literal(text) = segment { text } else { "{}" })
                    .collect();
                format!("{} {}", rest.verb, shape.join("/"))
            })
            .collect();
        let distinct: HashSet<&String> = forms.iter().collect();
        assert_eq!(forms.len(), distinct.len(), "{forms:?}");
    }
}
