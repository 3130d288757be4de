//! Who may do what in a cluster: users, what their cloud grants them, and the cluster's own RBAC objects.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Every group whose members are let in by the cluster's certificate or by its own token.
pub const MASTERS: &str = "system:masters";
const AUTHENTICATED: &str = "system:authenticated";

/// Whom a request is made by.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
    /// What the cloud allows beside the cluster's own rules.
    pub grants: Vec<Grant>,
}

/// A role that the cloud gives a user, in some namespaces, or in the whole cluster where none are named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub role: Role,
    pub namespaces: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    ClusterAdmin,
    Admin,
    /// Reads everything.
    AdminView,
    Edit,
    View,
    SecretReader,
}

/// What a cloud says of a token.
pub struct Login {
    pub user: Option<User>,
    /// Where else the user may stand.
    pub map: Option<LoginMap>,
}

/// A ConfigMap of the cluster that names users of the cloud.
pub struct LoginMap {
    pub namespace: &'static str,
    pub name: &'static str,
    pub principal: String,
    /// From its data and the principal to a user.
    pub read: fn(&Value, &str) -> Option<User>,
}

impl User {
    /// A member of the group that may do everything.
    pub fn master(name: &str) -> User {
        User { name: name.into(), groups: vec![MASTERS.into(), AUTHENTICATED.into()], ..User::default() }
    }

    /// `system:serviceaccount:NAMESPACE:NAME`
    pub fn service_account(namespace: &str, name: &str, uid: &str) -> User {
        let groups =
            ["system:serviceaccounts".into(), format!("system:serviceaccounts:{namespace}"), AUTHENTICATED.into()];
        let name = format!("system:serviceaccount:{namespace}:{name}");
        User { name, uid: uid.into(), groups: groups.into(), ..User::default() }
    }

    pub fn authenticated(mut self) -> User {
        if !self.groups.iter().any(|group| group == AUTHENTICATED) {
            self.groups.push(AUTHENTICATED.into());
        }
        self
    }

    /// As `kubectl auth whoami` shows it.
    pub fn info(&self) -> Value {
        let mut info = json!({"username": self.name, "groups": self.groups});
        if !self.uid.is_empty() {
            info["uid"] = json!(self.uid);
        }
        if !self.extra.is_empty() {
            info["extra"] = json!(self.extra);
        }
        info
    }
}

/// What a request wants, in the words of RBAC.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    pub verb: String,
    pub group: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    /// Of a request that is not about objects; empty otherwise.
    pub path: String,
}

impl Wish {
    /// `path` is what follows the cluster's prefix.
    pub fn of(method: &str, path: &[&str], watch: bool) -> Wish {
        let (group, rest) = match path {
            ["api", _, rest @ ..] if !rest.is_empty() => ("", rest),
            ["apis", group, _, rest @ ..] if !rest.is_empty() => (*group, rest),
            _ => {
                let verb = if method == "HEAD" { "head".into() } else { method.to_lowercase() };
                return Wish { verb, path: format!("/{}", path.join("/")), ..Wish::default() };
            }
        };
        let (namespace, rest) = match rest {
            ["namespaces", name] | ["namespaces", name, "status" | "finalize"] => (*name, rest),
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            rest => ("", rest),
        };
        let at = |index: usize| rest.get(index).copied().unwrap_or_default();
        let verb = match (method, at(1).is_empty()) {
            ("GET" | "HEAD", true) if watch => "watch",
            ("GET" | "HEAD", true) => "list",
            ("GET" | "HEAD", false) => "get",
            ("POST", _) => "create",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            ("DELETE", true) => "deletecollection",
            ("DELETE", false) => "delete",
            (_, _) => "",
        };
        Wish {
            verb: verb.into(),
            group: group.into(),
            resource: at(0).into(),
            subresource: at(2).into(),
            namespace: namespace.into(),
            name: at(1).into(),
            path: String::new(),
        }
    }

    /// What a SelfSubjectAccessReview asks about.
    pub fn asked(spec: &Value) -> Wish {
        let part = |of: &str, field: &str| spec[of][field].as_str().unwrap_or_default().to_owned();
        if spec["nonResourceAttributes"].is_object() {
            let (verb, path) = (part("nonResourceAttributes", "verb"), part("nonResourceAttributes", "path"));
            return Wish { verb, path, ..Wish::default() };
        }
        let of = |field: &str| part("resourceAttributes", field);
        Wish {
            verb: of("verb"),
            group: of("group"),
            resource: of("resource"),
            subresource: of("subresource"),
            namespace: of("namespace"),
            name: of("name"),
            path: String::new(),
        }
    }

    /// `pods/log`
    fn full_resource(&self) -> String {
        match self.subresource.is_empty() {
            true => self.resource.clone(),
            false => format!("{}/{}", self.resource, self.subresource),
        }
    }

    /// Kubernetes' own words for a refusal.
    pub fn refusal(&self, user: &str) -> String {
        if !self.path.is_empty() {
            return format!("forbidden: User \"{user}\" cannot {} path \"{}\"", self.verb, self.path);
        }
        let kind =
            if self.group.is_empty() { self.resource.clone() } else { format!("{}.{}", self.resource, self.group) };
        let name = if self.name.is_empty() { String::new() } else { format!(" \"{}\"", self.name) };
        let scope = match self.namespace.is_empty() {
            true => "at the cluster scope".to_owned(),
            false => format!("in the namespace \"{}\"", self.namespace),
        };
        format!(
            "{kind}{name} is forbidden: User \"{user}\" cannot {} resource \"{}\" in API group \"{}\" {scope}",
            self.verb,
            self.full_resource(),
            self.group
        )
    }
}

/// The cluster's RBAC objects that can matter.
#[derive(Default)]
pub struct Rbac {
    pub cluster_roles: Vec<Value>,
    pub cluster_role_bindings: Vec<Value>,
    pub roles: Vec<Value>,
    pub role_bindings: Vec<Value>,
}

/// Whether a user may do something. The cluster's own objects are asked for only where nothing else allows it.
pub fn allowed(user: &User, wish: &Wish, rbac: impl FnOnce() -> Rbac) -> bool {
    user.groups.iter().any(|group| group == MASTERS)
        || for_everybody(user, wish)
        || user.grants.iter().any(|grant| grant.allows(wish))
        || bound_rules(user, &wish.namespace, &rbac()).iter().any(|rule| matches(rule, wish))
}

/// Discovery and questions about oneself.
fn for_everybody(user: &User, wish: &Wish) -> bool {
    const PATHS: [&str; 8] = ["/api", "/apis", "/openapi", "/version", "/healthz", "/livez", "/readyz", "/.well-known"];
    if !user.groups.iter().any(|group| group == AUTHENTICATED) {
        return false;
    }
    let path = wish.path.as_str();
    let discovery = path == "/" || PATHS.iter().any(|known| path == *known || path.starts_with(&format!("{known}/")));
    let reads = matches!(wish.verb.as_str(), "get" | "head");
    let own = wish.verb == "create" && matches!(wish.group.as_str(), "authorization.k8s.io" | "authentication.k8s.io");
    (discovery && reads && !path.is_empty()) || (own && wish.resource.starts_with("selfsubject"))
}

impl Grant {
    fn allows(&self, wish: &Wish) -> bool {
        let here = self.namespaces.is_empty() || self.namespaces.iter().any(|pattern| fits(pattern, &wish.namespace));
        // A role in some namespaces says nothing of what has none, nor of paths.
        let scoped = self.namespaces.is_empty() || (!wish.namespace.is_empty() && wish.path.is_empty());
        here && scoped && rules(self.role).as_array().into_iter().flatten().any(|rule| matches(rule, wish))
    }
}

/// `dev-*` stands for every namespace that begins so.
fn fits(pattern: &str, namespace: &str) -> bool {
    match pattern.split_once('*') {
        Some((head, tail)) => {
            namespace.len() >= head.len() + tail.len() && namespace.starts_with(head) && namespace.ends_with(tail)
        }
        None => pattern == namespace,
    }
}

/// The rules that bindings give a user in a namespace, or in the whole cluster where it is empty.
pub fn bound_rules(user: &User, namespace: &str, rbac: &Rbac) -> Vec<Value> {
    let named = |list: &[Value], name: &Value, namespace: Option<&str>| -> Vec<Value> {
        let role = list.iter().find(|role| {
            role["metadata"]["name"] == *name && namespace.is_none_or(|one| role["metadata"]["namespace"] == one)
        });
        role.and_then(|role| role["rules"].as_array().cloned()).unwrap_or_default()
    };
    let mut rules = Vec::new();
    for binding in rbac.cluster_role_bindings.iter().filter(|binding| names(binding, user)) {
        rules.extend(named(&rbac.cluster_roles, &binding["roleRef"]["name"], None));
    }
    let in_it = |binding: &&Value| !namespace.is_empty() && binding["metadata"]["namespace"] == namespace;
    for binding in rbac.role_bindings.iter().filter(in_it).filter(|binding| names(binding, user)) {
        let name = &binding["roleRef"]["name"];
        rules.extend(match binding["roleRef"]["kind"] == "ClusterRole" {
            true => named(&rbac.cluster_roles, name, None),
            false => named(&rbac.roles, name, Some(namespace)),
        });
    }
    rules
}

fn names(binding: &Value, user: &User) -> bool {
    let subjects = binding["subjects"].as_array();
    subjects.into_iter().flatten().any(|subject| {
        let name = subject["name"].as_str().unwrap_or_default();
        match subject["kind"].as_str() {
            Some("User") => name == user.name,
            Some("Group") => user.groups.iter().any(|group| group == name),
            Some("ServiceAccount") => {
                let own = subject["namespace"].as_str().or_else(|| binding["metadata"]["namespace"].as_str());
                user.name == format!("system:serviceaccount:{}:{name}", own.unwrap_or_default())
            }
            _ => false,
        }
    })
}

fn matches(rule: &Value, wish: &Wish) -> bool {
    let has =
        |field: &str, wanted: &str| rule[field].as_array().into_iter().flatten().any(|one| one == "*" || one == wanted);
    if !has("verbs", &wish.verb) {
        return false;
    }
    if !wish.path.is_empty() {
        let paths = rule["nonResourceURLs"].as_array();
        return paths.into_iter().flatten().filter_map(Value::as_str).any(|url| match url.strip_suffix('*') {
            Some(head) => wish.path.starts_with(head),
            None => url == wish.path,
        });
    }
    let any_of = format!("*/{}", wish.subresource);
    let resource =
        has("resources", &wish.full_resource()) || (!wish.subresource.is_empty() && has("resources", &any_of));
    let names = rule["resourceNames"].as_array().filter(|names| !names.is_empty());
    let named = names.is_none_or(|names| names.iter().any(|name| *name == wish.name));
    has("apiGroups", &wish.group) && resource && named
}

const READ: [&str; 3] = ["get", "list", "watch"];
const WRITE: [&str; 5] = ["create", "delete", "deletecollection", "patch", "update"];

/// What people work with inside a namespace: API group and its resources.
const WORK: [(&str, &[&str]); 7] = [
    (
        "",
        &[
            "configmaps",
            "endpoints",
            "persistentvolumeclaims",
            "persistentvolumeclaims/status",
            "pods",
            "replicationcontrollers",
            "replicationcontrollers/scale",
            "serviceaccounts",
            "services",
            "services/status",
        ],
    ),
    (
        "apps",
        &[
            "daemonsets",
            "daemonsets/status",
            "deployments",
            "deployments/scale",
            "deployments/status",
            "replicasets",
            "replicasets/scale",
            "replicasets/status",
            "statefulsets",
            "statefulsets/scale",
            "statefulsets/status",
        ],
    ),
    ("autoscaling", &["horizontalpodautoscalers", "horizontalpodautoscalers/status"]),
    ("batch", &["cronjobs", "cronjobs/status", "jobs", "jobs/status"]),
    ("networking.k8s.io", &["ingresses", "ingresses/status", "networkpolicies"]),
    ("policy", &["poddisruptionbudgets", "poddisruptionbudgets/status"]),
    ("coordination.k8s.io", &["leases"]),
];

/// The rules of a role, as a ClusterRole has them.
pub fn rules(role: Role) -> Value {
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let mut rules = Vec::new();
    match role {
        Role::ClusterAdmin => {
            return json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, {"nonResourceURLs": ["*"], "verbs": ["*"]}]);
        }
        Role::AdminView => return json!([rule("*", &["*"], &READ), {"nonResourceURLs": ["*"], "verbs": ["get"]}]),
        Role::SecretReader => return json!([rule("", &["secrets"], &READ)]),
        Role::Admin | Role::Edit | Role::View => {}
    }
    rules.extend(WORK.iter().map(|(group, resources)| rule(group, resources, &READ)));
    let seen = [
        "bindings",
        "events",
        "limitranges",
        "namespaces",
        "namespaces/status",
        "pods/log",
        "pods/status",
        "resourcequotas",
        "resourcequotas/status",
    ];
    rules.push(rule("", &seen, &READ));
    rules.push(rule("apps", &["controllerrevisions"], &READ));
    rules.push(rule("discovery.k8s.io", &["endpointslices"], &READ));
    rules.push(rule("metrics.k8s.io", &["pods", "nodes"], &READ));
    if role != Role::View {
        rules.extend(WORK.iter().map(|(group, resources)| rule(group, resources, &WRITE)));
        rules.push(rule(
            "",
            &["secrets", "pods/attach", "pods/exec", "pods/portforward", "pods/proxy", "services/proxy"],
            &READ,
        ));
        rules.push(rule(
            "",
            &["secrets", "events", "pods/attach", "pods/exec", "pods/portforward", "pods/proxy"],
            &WRITE,
        ));
        rules.push(rule("", &["pods/eviction", "serviceaccounts/token"], &["create"]));
        rules.push(rule("", &["serviceaccounts"], &["impersonate"]));
    }
    if role == Role::Admin {
        let verbs = [READ.as_slice(), WRITE.as_slice()].concat();
        rules.push(rule("rbac.authorization.k8s.io", &["rolebindings", "roles"], &verbs));
        rules.push(rule("authorization.k8s.io", &["localsubjectaccessreviews"], &["create"]));
    }
    Value::Array(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(role: Role, namespaces: &[&str]) -> User {
        let grant = Grant { role, namespaces: namespaces.iter().map(|name| (*name).into()).collect() };
        User { name: "ann".into(), grants: vec![grant], ..User::default() }.authenticated()
    }

    fn may(user: &User, method: &str, path: &str) -> bool {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        allowed(user, &Wish::of(method, &parts, false), Rbac::default)
    }

    #[test]
    fn roles_allow_what_kubernetes_says() {
        let pods = "api/v1/namespaces/shop/pods";
        let cases: [(Role, &[&str], &str, &str, bool); 21] = [
            (Role::ClusterAdmin, &[], "DELETE", "api/v1/nodes/n", true),
            (Role::ClusterAdmin, &["shop"], "GET", "api/v1/nodes", false),
            (Role::ClusterAdmin, &["shop"], "POST", pods, true),
            (Role::ClusterAdmin, &["shop"], "POST", "api/v1/namespaces/other/pods", false),
            (Role::Admin, &[], "POST", "apis/rbac.authorization.k8s.io/v1/namespaces/shop/roles", true),
            (Role::Admin, &[], "GET", "api/v1/nodes", false),
            (Role::Edit, &[], "POST", "apis/apps/v1/namespaces/shop/deployments", true),
            (Role::Edit, &[], "POST", "apis/rbac.authorization.k8s.io/v1/namespaces/shop/roles", false),
            (Role::Edit, &[], "GET", "api/v1/namespaces/shop/secrets/s", true),
            (Role::Edit, &["dev-*"], "POST", "api/v1/namespaces/dev-1/pods", true),
            (Role::Edit, &["dev-*"], "POST", "api/v1/namespaces/prod/pods", false),
            (Role::View, &[], "GET", pods, true),
            (Role::View, &[], "GET", "api/v1/pods", true),
            (Role::View, &["shop"], "GET", "api/v1/pods", false),
            (Role::View, &[], "GET", "api/v1/namespaces/shop/secrets", false),
            (Role::View, &[], "POST", pods, false),
            (Role::View, &[], "GET", "api/v1/namespaces/shop/pods/p/log", true),
            (Role::View, &[], "GET", "version", true),
            (Role::View, &[], "GET", "metrics", false),
            (Role::AdminView, &[], "GET", "api/v1/namespaces/shop/secrets", true),
            (Role::AdminView, &[], "DELETE", "api/v1/namespaces/shop/secrets/s", false),
        ];
        for (role, namespaces, method, path, expected) in cases {
            let user = granted(role, namespaces);
            assert_eq!(may(&user, method, path), expected, "{role:?} {namespaces:?} {method} {path}");
        }
    }

    #[test]
    fn bindings_count_for_users_groups_and_service_accounts() {
        let rbac = || Rbac {
            cluster_roles: vec![json!({"metadata": {"name": "view"}, "rules": rules(Role::View)})],
            cluster_role_bindings: vec![
                json!({"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "view"},
                "subjects": [{"kind": "Group", "name": "readers"}]}),
            ],
            roles: vec![json!({"metadata": {"name": "own", "namespace": "shop"}, "rules": [
                {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["one"], "verbs": ["get"]}]})],
            role_bindings: vec![
                json!({"metadata": {"name": "c", "namespace": "shop"}, "roleRef": {"kind": "Role", "name": "own"},
                "subjects": [{"kind": "User", "name": "ann"}, {"kind": "ServiceAccount", "name": "bot", "namespace": "ci"}]}),
            ],
        };
        let user = |name: &str, group: &str| User { name: name.into(), groups: vec![group.into()], ..User::default() };
        let one = Wish::of("GET", &["api", "v1", "namespaces", "shop", "configmaps", "one"], false);
        let two = Wish::of("GET", &["api", "v1", "namespaces", "shop", "configmaps", "two"], false);
        for (user, first, second) in [
            (user("x", "readers"), true, true),
            (user("ann", "y"), true, false),
            (User::service_account("ci", "bot", ""), true, false),
            (User::service_account("other", "bot", ""), false, false),
            (user("x", "y"), false, false),
        ] {
            assert_eq!((allowed(&user, &one, rbac), allowed(&user, &two, rbac)), (first, second), "{user:?}");
        }
        let list = Wish::of("GET", &["apis", "apps", "v1", "deployments"], false);
        assert_eq!(
            list.refusal("ann"),
            "deployments.apps is forbidden: User \"ann\" cannot list resource \"deployments\" in API group \"apps\" at the cluster scope"
        );
    }
}
