//! Manifests from files, checked one by one and together. Everything that is wrong is reported at once.

use crate::args::{ScopeArgs, Which};
use crate::backend::Backend;
use crate::cli::{Threads, block_on};
use crate::failure::{CommandResult, Exit, Failure};
use crate::local::files::{self, SourceFiles};
use crate::remote::{Remote, messages};
use crate::view::output::{self, Format};
use crate::view::{diagnostics, yaml};
use berth_model::{Diagnostic, Graph, Manifest, ResourceId, Span, Unresolved, graph, parse};
use berth_server::pb;
use berth_store::{Filter, Options, Store, StoreError};
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

/// What the files hold.
pub struct Loaded {
    pub manifests: Vec<Manifest>,
    pub graph: Graph,
    pub diagnostics: Vec<Diagnostic>,
    /// Text of each file, for showing lines.
    texts: HashMap<String, String>,
    /// Files that gave no manifest.
    unread: BTreeSet<String>,
    /// Names of all files, in the order read.
    order: Vec<String>,
    /// Documents that were left out again: their files and where they stand in them.
    removed: Vec<(Arc<str>, Span)>,
}

/// Reads and checks everything. References may lead to what is already applied, so the state is asked, but only when
/// something is not among the files: whoever checks files alone needs no state and no key.
pub fn load(paths: &[PathBuf], which: &Which) -> Result<Loaded, Failure> {
    let mut loaded = read(paths, &HashSet::new());
    if !loaded.graph.diagnostics.is_empty() {
        let known = block_on(Threads::One, applied(which, &loaded.manifests))?;
        if !known.is_empty() {
            loaded.join(&known);
        }
    }
    loaded.sort();
    Ok(loaded)
}

/// Who is applied already. No state means: nobody.
async fn applied(which: &Which, manifests: &[Manifest]) -> Result<HashSet<ResourceId>, Failure> {
    let path = match which {
        Which::Local(path) => path,
        Which::Server(target) => return needed(&Remote::open(target.clone()).await?, manifests).await,
    };
    let resources = match Store::open(Options { must_exist: true, ..Options::at(path) }).await {
        Ok(store) => store.resources(&Filter::default()).await.map_err(Failure::from)?,
        Err(StoreError::Missing { .. }) => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    Ok(resources.into_iter().map(|resource| resource.id).collect())
}

/// A server may hold far more than these manifests refer to: only kinds that are referred to are asked for.
async fn needed(remote: &Remote, manifests: &[Manifest]) -> Result<HashSet<ResourceId>, Failure> {
    let declared: HashSet<&ResourceId> = manifests.iter().map(|manifest| &manifest.id).collect();
    let mut kinds = BTreeSet::new();
    for manifest in manifests {
        let to = manifest.refs().into_iter().chain(manifest.named()).map(|to| to.to);
        kinds.extend(to.filter(|to| !declared.contains(to)).map(|to| to.kind));
    }
    let mut known = HashSet::new();
    for kind in kinds {
        let found = remote.list(pb::ListRequest { kind, ..Default::default() }).await?;
        known.extend(found.iter().map(|resource| messages::id_of(resource.id.as_ref())));
    }
    Ok(known)
}

/// Every resource that is applied, as its manifest. Secrets in it stay sealed.
pub async fn stored(backend: &dyn Backend) -> Result<Vec<Manifest>, Failure> {
    let mut manifests = Vec::new();
    for resource in backend.resources(&Filter::default()).await? {
        manifests.push(resource.manifest(&resource.sealed_manifest()?)?);
    }
    Ok(manifests)
}

fn read(paths: &[PathBuf], known: &HashSet<ResourceId>) -> Loaded {
    let SourceFiles { sources, problems, order } = files::read(paths);
    let mut loaded = Loaded {
        manifests: Vec::new(),
        graph: Graph::default(),
        diagnostics: problems,
        texts: HashMap::new(),
        unread: BTreeSet::new(),
        order,
        removed: Vec::new(),
    };
    for source in sources {
        let (mut manifests, mut problems) = parse(&source.name, &source.bytes);
        if manifests.is_empty() {
            loaded.unread.insert(source.name.clone());
        }
        loaded.manifests.append(&mut manifests);
        // Only files with something to show are kept.
        if !problems.is_empty() {
            loaded.texts.insert(source.name.clone(), String::from_utf8_lossy(&source.bytes).into_owned());
        }
        loaded.diagnostics.append(&mut problems);
    }
    // Nothing to work on is a mistake, even where each file by itself may be empty.
    if loaded.manifests.is_empty() {
        for problem in &mut loaded.diagnostics {
            problem.severity = berth_model::Severity::Error;
        }
    }
    loaded.join(known);
    loaded
}

impl Loaded {
    /// The manifests alone; what only serves to tell of mistakes in them is let go.
    pub fn into_manifests(self) -> Vec<Arc<Manifest>> {
        self.manifests.into_iter().map(Arc::new).collect()
    }

    fn join(&mut self, known: &HashSet<ResourceId>) {
        self.graph = graph(&self.manifests, known);
    }

    /// Everything that is wrong, in the order of files and lines.
    fn sort(&mut self) {
        for mut problem in std::mem::take(&mut self.graph.diagnostics) {
            // What it refers to may be declared in a file that could not be read.
            if problem.unresolved == Some(Unresolved::NothingAlike) && !self.unread.is_empty() {
                let files = self.unread.iter().take(3);
                problem.help =
                    files.map(|file| format!("it may be meant to be in {file}, which gave no manifest")).collect();
            }
            self.diagnostics.push(problem);
        }
        let with_problems: HashSet<&str> = self.diagnostics.iter().map(|problem| problem.file.as_str()).collect();
        for source in self.manifests.iter().filter_map(|manifest| manifest.source.as_ref()) {
            if with_problems.contains(source.file.as_ref()) && !self.texts.contains_key(source.file.as_ref()) {
                self.texts.insert(source.file.to_string(), source.text.to_string());
            }
        }
        let rank: HashMap<&str, usize> =
            self.order.iter().enumerate().rev().map(|(at, name)| (name.as_str(), at)).collect();
        self.diagnostics
            .sort_by_key(|problem| (rank.get(problem.file.as_str()).copied(), problem.span.map(|span| span.start)));
        self.diagnostics.dedup();
    }

    /// Without what is of another env or org than asked for.
    pub fn narrow(mut self, scope: &ScopeArgs) -> Result<Self, Failure> {
        let (kept, removed) = self.manifests.into_iter().partition(|manifest| scope.matches(&manifest.id));
        self.manifests = kept;
        let removed: Vec<Manifest> = removed;
        let place = |manifest: Manifest| manifest.source.map(|source| (source.file.clone(), source.span));
        self.removed.extend(removed.into_iter().filter_map(place));
        if self.manifests.is_empty() {
            let asked = [("--org", &scope.org), ("--env", &scope.env)];
            let asked: Vec<String> =
                asked.iter().filter_map(|(flag, value)| Some(format!("{flag} {}", value.as_ref()?))).collect();
            return Err(Failure::new(format!("none of these manifests is of {}", asked.join(" ")))
                .help("`metadata.env` and `metadata.org` say where a manifest belongs"));
        }
        Ok(self)
    }

    /// The files, as a server is to read them. Documents that were left out are blanked, so that every place stays where it is.
    pub fn files(&self) -> Vec<pb::ManifestFile> {
        self.files_of(&|_| true)
    }

    /// The same with some of the manifests alone.
    pub fn files_of(&self, kept: &dyn Fn(&ResourceId) -> bool) -> Vec<pb::ManifestFile> {
        let place = |manifest: &Manifest| manifest.source.as_ref().map(|source| (source.file.clone(), source.span));
        let left_out = self.manifests.iter().filter(|manifest| !kept(&manifest.id)).filter_map(place);
        let removed: Vec<(Arc<str>, Span)> = self.removed.iter().cloned().chain(left_out).collect();
        let mut files: Vec<(&Arc<str>, &Arc<str>)> = Vec::new();
        let chosen = self.manifests.iter().filter(|manifest| kept(&manifest.id));
        for source in chosen.filter_map(|manifest| manifest.source.as_ref()) {
            if files.last().is_none_or(|(name, _)| **name != source.file) {
                files.push((&source.file, &source.text));
            }
        }
        files.sort();
        files.dedup_by(|a, b| a.0 == b.0);
        let blanked = |name: &Arc<str>, text: &Arc<str>| {
            let mut bytes = text.as_bytes().to_vec();
            for (_, span) in removed.iter().filter(|(file, _)| file == name) {
                let end = span.end.min(bytes.len());
                bytes[span.start.min(end)..end].iter_mut().filter(|b| **b != b'\n').for_each(|b| *b = b' ');
            }
            String::from_utf8_lossy(&bytes).into_owned()
        };
        files
            .into_iter()
            .map(|(name, text)| pb::ManifestFile { name: name.to_string(), text: blanked(name, text) })
            .collect()
    }

    /// What a server found wrong with them, to be shown as if it had been found here.
    pub fn add_problems(&mut self, problems: &[pb::Problem]) {
        self.diagnostics.extend(problems.iter().map(messages::diagnostic));
        self.sort();
    }

    /// For `validate`: fields that only the other tool accepts are warnings.
    pub fn accept_others(&mut self) {
        for problem in self.diagnostics.iter_mut().filter(|problem| problem.elsewhere) {
            problem.severity = berth_model::Severity::Warning;
            problem.help.push(
                "it is accepted, since the tool that it was written for takes it; no plan is made with it".into(),
            );
        }
    }

    pub fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(Diagnostic::is_error)
    }

    /// How many manifests have a problem, and how many there are. A document that gave no manifest counts as one.
    fn counts(&self) -> (usize, usize) {
        let mut documents: HashMap<&str, Vec<(usize, usize, usize)>> = HashMap::new();
        for source in self.manifests.iter().filter_map(|manifest| manifest.source.as_ref()) {
            let spot = (source.span.start, source.span.end, source.document);
            documents.entry(source.file.as_ref()).or_default().push(spot);
        }
        let affected: BTreeSet<(&str, Option<usize>)> = self
            .diagnostics
            .iter()
            .map(|problem| {
                let at = problem.span.map_or(0, |span| span.start);
                let of_file = documents.get(problem.file.as_str()).map(Vec::as_slice).unwrap_or_default();
                let inside = of_file.iter().find(|(start, end, _)| (*start..=*end).contains(&at));
                (problem.file.as_str(), inside.map(|(_, _, document)| *document))
            })
            .collect();
        let unread = affected.iter().filter(|(_, document)| document.is_none()).count();
        (affected.len(), self.manifests.len() + unread)
    }

    /// Says what is wrong, on standard error.
    pub fn print(&self) {
        if !self.diagnostics.is_empty() {
            let (affected, manifests) = self.counts();
            let text = |file: &str| self.texts.get(file).map(String::as_str);
            diagnostics::print(&self.diagnostics, text, affected, manifests);
        }
    }

    /// Says what is wrong in the form asked for, and answers whether to stop.
    pub fn refuse(&self, format: Format) -> CommandResult {
        match format {
            Format::Json => output::print(&output::json(&self.report())?)?,
            Format::Yaml => output::print(&yaml::to_yaml(&self.report()))?,
            Format::Table | Format::Wide | Format::Name => self.print(),
        }
        Ok(if self.has_errors() { Exit::Failed } else { Exit::Done })
    }

    /// The facts of a check, with stable names.
    pub fn report(&self) -> Value {
        let errors = self.diagnostics.iter().filter(|problem| problem.is_error()).count();
        let manifests: Vec<Value> = self
            .manifests
            .iter()
            .map(|manifest| {
                let source = manifest.source.as_ref();
                json!({
                    "apiVersion": manifest.api_version,
                    "kind": manifest.kind.name,
                    "name": manifest.id.name,
                    "org": manifest.id.org,
                    "env": manifest.id.env,
                    "file": source.map(|source| source.file.as_ref()),
                    "line": source.map(|source| source.span.line),
                    "filled": manifest.filled,
                })
            })
            .collect();
        json!({
            "valid": errors == 0,
            "errors": errors,
            "warnings": self.diagnostics.len() - errors,
            "manifests": manifests,
            "diagnostics": self.diagnostics,
        })
    }
}
