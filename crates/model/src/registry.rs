//! The kinds, found in the descriptors by their `(berth.kind)` option: no kind is registered by hand.

use crate::pb::berth::KindOptions;
use crate::phrasing;
use crate::shape::Shape;
use prost::Message;
use prost_reflect::prost_types::FileDescriptorSet;
use prost_reflect::{DescriptorPool, ExtensionDescriptor, FieldDescriptor, MessageDescriptor};
use std::collections::HashMap;
use std::sync::OnceLock;

/// A type of manifest.
#[derive(Debug)]
pub struct Kind {
    /// Such as `CivoVpc`.
    pub name: String,
    /// Such as `civo.berth.dev/v1`.
    pub api_version: String,
    /// API versions that are read as this one.
    pub aliases: Vec<String>,
    /// Which cloud serves it; empty where none does.
    pub provider: String,
    /// Which deployer service carries it out.
    pub service: String,
    /// Its name is that of an env.
    pub names_env: bool,
    pub message: MessageDescriptor,
    pub spec: MessageDescriptor,
    pub outputs: MessageDescriptor,
    spec_shape: OnceLock<&'static Shape>,
    outputs_shape: OnceLock<&'static Shape>,
    doc: OnceLock<String>,
}

impl Kind {
    /// What the kind is, in a sentence or two.
    pub fn doc(&self) -> &str {
        self.doc.get_or_init(|| message_doc(&self.message))
    }

    /// The fields of its spec.
    pub fn spec_shape(&self) -> &'static Shape {
        self.spec_shape.get_or_init(|| Shape::of(&self.spec))
    }

    /// The fields of its outputs.
    pub fn outputs_shape(&self) -> &'static Shape {
        self.outputs_shape.get_or_init(|| Shape::of(&self.outputs))
    }

    /// Whether a manifest may be written with this API version.
    pub fn accepts(&self, api_version: &str) -> bool {
        self.api_version == api_version || self.is_alias(api_version)
    }

    /// Whether an API version is that of another tool's group.
    pub fn is_alias(&self, api_version: &str) -> bool {
        self.aliases.iter().any(|alias| alias == api_version)
    }

    /// Its own API version first, then the aliases.
    pub fn api_versions(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.api_version.as_str()).chain(self.aliases.iter().map(String::as_str))
    }

    /// Whether it has objects in a cloud or at least asks one something. Others are facts for Berth itself, and are Ready
    /// as soon as they are stored.
    pub fn has_work(&self) -> bool {
        !self.service.is_empty()
    }

    /// Names of outputs that are secret.
    pub fn secret_outputs(&self) -> impl Iterator<Item = &'static str> {
        self.outputs_shape().fields.iter().filter(|field| field.secret).map(|field| field.name.as_str())
    }
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// All kinds.
pub struct Registry {
    kinds: Vec<Kind>,
    by_name: HashMap<String, usize>,
}

/// The kinds that this build knows.
pub fn registry() -> &'static Registry {
    static REGISTRY: OnceLock<Registry> = OnceLock::new();
    REGISTRY.get_or_init(Registry::load)
}

impl Registry {
    fn load() -> Self {
        let pool = pool();
        let mut kinds = Vec::new();
        if let Some(option) = pool.get_extension_by_name("berth.kind") {
            for message in pool.all_messages().filter(|message| message.full_name().starts_with("berth.")) {
                kinds.extend(kind_of(message, &option));
            }
        }
        kinds.sort_by(|a, b| a.name.cmp(&b.name));
        let by_name = kinds.iter().enumerate().map(|(n, kind)| (kind.name.to_lowercase(), n)).collect();
        Self { kinds, by_name }
    }

    /// All kinds, by name.
    pub fn kinds(&self) -> impl Iterator<Item = &Kind> {
        self.kinds.iter()
    }

    /// A kind by its exact name.
    pub fn kind(&self, name: &str) -> Option<&Kind> {
        self.find(name).filter(|kind| kind.name == name)
    }

    /// A kind as people type it: in any case, also in the plural.
    pub fn find(&self, name: &str) -> Option<&Kind> {
        let name = name.to_lowercase();
        let singular = || match name.strip_suffix("ies") {
            Some(stem) => Some(format!("{stem}y")),
            None => name.strip_suffix('s').map(str::to_owned),
        };
        let index = self.by_name.get(&name).or_else(|| self.by_name.get(&singular()?))?;
        self.kinds.get(*index)
    }

    /// The kind that a mistyped name most likely means.
    pub fn nearest(&self, name: &str) -> Option<&Kind> {
        phrasing::nearest(name, self.kinds.iter().map(|kind| kind.name.as_str())).and_then(|near| self.kind(near))
    }
}

fn kind_of(message: MessageDescriptor, option: &ExtensionDescriptor) -> Option<Kind> {
    let options = message.options();
    if !options.has_extension(option) {
        return None;
    }
    let KindOptions { api_version, aliases, provider, service, names_env } =
        options.get_extension(option).as_message()?.transcode_to().ok()?;
    let child = |parent: &MessageDescriptor, field: &str| parent.get_field_by_name(field)?.kind().as_message().cloned();
    let spec = child(&message, "spec")?;
    let outputs = child(&child(&message, "status")?, "outputs")?;
    Some(Kind {
        name: message.name().to_owned(),
        api_version,
        aliases,
        provider,
        service,
        names_env,
        message,
        spec,
        outputs,
        spec_shape: OnceLock::new(),
        outputs_shape: OnceLock::new(),
        doc: OnceLock::new(),
    })
}

/// The descriptors of everything in `proto/`.
pub(crate) fn pool() -> &'static DescriptorPool {
    static POOL: OnceLock<DescriptorPool> = OnceLock::new();
    POOL.get_or_init(|| {
        // The descriptors come from this crate's own build; a test decodes them, so that the default is never used.
        let mut pool = DescriptorPool::decode(crate::DESCRIPTORS).unwrap_or_default();
        let added = pool.decode_file_descriptor_set(added());
        assert!(added.is_ok(), "the kinds that were added are not valid: {added:?}");
        pool
    })
}

static ADDED: OnceLock<Vec<u8>> = OnceLock::new();

/// Adds the kinds of an encoded descriptor set, with its comments; has an effect once, before the kinds were read.
pub fn add_kinds(descriptors: Vec<u8>) -> bool {
    ADDED.set(descriptors).is_ok()
}

fn added() -> &'static [u8] {
    ADDED.get_or_init(Vec::new)
}

/// The comment above a message.
pub(crate) fn message_doc(message: &MessageDescriptor) -> String {
    comment(message.parent_file().name(), message.path())
}

/// The comment above a field.
pub(crate) fn field_doc(field: &FieldDescriptor) -> String {
    comment(field.parent_file().name(), field.path())
}

/// The comments in the protos, as source information of otherwise empty files.
const COMMENT_BYTES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/comments.bin"));

/// Comments by file and by the path of what they stand above.
type Comments = HashMap<String, HashMap<Vec<i32>, String>>;

/// Comments are only needed by those who read about kinds, so that they are only gathered then.
fn comment(file: &str, path: &[i32]) -> String {
    static COMMENTS: OnceLock<Comments> = OnceLock::new();
    let comments = COMMENTS.get_or_init(|| {
        let mut all = Comments::new();
        // As with the descriptors: from this crate's own build, and looked at by tests.
        let own = FileDescriptorSet::decode(COMMENT_BYTES).unwrap_or_default().file;
        let added = FileDescriptorSet::decode(added()).unwrap_or_default().file;
        for file in own.into_iter().chain(added) {
            let Some(info) = &file.source_code_info else { continue };
            let in_file = info.location.iter().filter_map(|location| {
                let text = location.leading_comments.as_deref()?;
                let text = text.lines().map(str::trim).collect::<Vec<_>>().join(" ").trim().to_owned();
                Some((location.path.clone(), text))
            });
            all.insert(file.name().to_owned(), in_file.collect());
        }
        all
    });
    comments.get(file).and_then(|in_file| in_file.get(path)).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_found_as_people_type_them() {
        let registry = registry();
        assert_eq!(registry.kinds().count(), 10);
        for name in
            ["CivoKubernetesCluster", "civokubernetescluster", "civokubernetesclusters", "CIVOKUBERNETESCLUSTER"]
        {
            assert_eq!(registry.find(name).map(|kind| kind.name.as_str()), Some("CivoKubernetesCluster"));
        }
        assert!(registry.kind("civovpc").is_none());
        assert_eq!(registry.nearest("CivoVcp").map(|kind| kind.name.as_str()), Some("CivoVpc"));
        assert!(registry.find("banana").is_none());
    }

    #[test]
    fn a_kind_knows_its_groups_outputs_and_doc() {
        let kind = registry().kind("CivoKubernetesCluster").unwrap();
        assert_eq!(kind.api_version, "civo.berth.dev/v1");
        assert!(kind.accepts("civo.openmcf.org/v1") && !kind.accepts("digitalocean.berth.dev/v1"));
        assert_eq!(kind.doc(), "A managed Kubernetes (k3s) cluster on Civo.");
        assert_eq!(kind.secret_outputs().collect::<Vec<_>>(), ["kubeconfig_b64"]);
        assert_eq!((kind.provider.as_str(), kind.service.as_str()), ("civo", "kubernetes"));
    }
}
