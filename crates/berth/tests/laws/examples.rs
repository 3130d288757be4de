//! Every example applies, plans empty, survives drift and repair, and deletes to an empty cloud. Examples are discovered: a
//! new one is tested by being there.

use crate::declared::{outline, read};
use crate::harness::{Project, all};
use crate::outside::changes;
use crate::support::cloud::Cloud;
use berth_model::Manifest;
use std::path::{Path, PathBuf};

/// Files of a cloud's folder are examples of their own; a folder in it is one example.
pub fn examples() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").canonicalize().expect("the examples");
    let list = |folder: &Path| {
        let mut entries: Vec<PathBuf> =
            std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
        entries.sort();
        entries
    };
    // Policies have nothing in a cloud; `berth policy test` has tests of its own.
    let clouds = list(&root).into_iter().filter(|path| path.is_dir() && !path.ends_with("policies"));
    let all = clouds.flat_map(|cloud| list(&cloud));
    all.filter(|path| path.is_dir() || path.extension().is_some_and(|end| end == "yaml" || end == "yml")).collect()
}

/// `civo/dev`
pub fn name(example: &Path) -> String {
    let part = |path: Option<&std::ffi::OsStr>| path.map(|p| p.to_string_lossy().into_owned()).unwrap_or_default();
    format!("{}/{}", part(example.parent().and_then(Path::file_name)), part(example.file_stem()))
}

pub struct Example {
    pub path: String,
    pub manifests: Vec<Manifest>,
    pub cloud: Cloud,
    pub project: Project,
}

impl Example {
    pub fn new(path: &Path, cloud: Cloud) -> Self {
        let manifests = read(path);
        Self { path: path.display().to_string(), manifests, cloud, project: Project::new() }
    }

    pub fn apply_args(&self) -> [&str; 6] {
        ["apply", "-f", &self.path, "--yes", "--allow-replace", "--allow-recreate"]
    }

    /// The cloud holds what is declared, and a plan says so.
    #[track_caller]
    pub fn settled(&self, story: &str) {
        let (found, wanted) = (self.cloud.outline(), outline(&self.manifests));
        assert_eq!(found, wanted, "found (left) is not what is declared (right): {story}\n{}", self.cloud.told());
        self.cloud.adds_up();
        let plan = self.project.berth(&self.cloud, &["plan", "-f", &self.path, "--detailed-exitcode"]);
        assert_eq!(plan.code, Some(0), "the plan is not empty: {story}\n{plan}\n{}", self.cloud.told());
        let unchanged = format!("{} unchanged.", self.manifests.len());
        assert!(plan.stdout.contains(&unchanged), "`{unchanged}` is missing: {story}\n{plan}");
    }

    #[track_caller]
    pub fn nothing_left(&self) {
        self.cloud.is_empty();
        let left = self.project.berth(&self.cloud, &["get", "-o", "json"]).ok();
        assert_eq!(left.json(), serde_json::json!([]), "{left}");
    }
}

#[test]
fn every_example_lives_its_whole_life() {
    let examples = examples();
    assert!(examples.len() >= 9, "examples are missing: {examples:?}");
    let jobs = examples.into_iter().map(|path| (name(&path), path)).collect();
    all(jobs, |_, path| {
        let example = Example::new(&path, Cloud::instant());
        let Example { project, cloud, path, manifests } = &example;
        let applied = project.berth(cloud, &["apply", "-f", path, "--yes"]).ok();
        let ready = format!("{} resources Ready", manifests.len());
        applied.says(&ready);
        let states = project.berth(cloud, &["get", "-o", "json"]).ok().json();
        for resource in states.as_array().expect("a list") {
            assert_eq!(resource["status"]["state"], "Ready", "{states:#}");
        }
        assert_eq!(states.as_array().map(Vec::len), Some(manifests.len()), "{states:#}");
        example.settled("after apply");
        project.berth(cloud, &["drift"]).ok();
        project.berth(cloud, &["apply", "-f", path, "--yes"]).ok().says("nothing to do");

        for change in changes(manifests) {
            let what = &change.what;
            (change.make)(cloud);
            let drift = project.berth(cloud, &["drift"]);
            let resource = format!("{}/{}", change.resource.kind, change.resource.name);
            if !change.is_drift {
                assert_eq!(drift.code, Some(0), "{what} is not drift\n{drift}\n{}", cloud.told());
                (change.undo)(cloud);
                continue;
            }
            assert_eq!(drift.code, Some(2), "{what} is drift\n{drift}\n{}", cloud.told());
            assert!(drift.stdout.contains(&resource), "{what}: {resource} is not named\n{drift}");
            if change.repairs {
                let repaired = project.berth(cloud, &example.apply_args());
                assert_eq!(repaired.code, Some(0), "{what} is not repaired\n{repaired}\n{}", cloud.told());
            } else {
                let refused = project.berth(cloud, &example.apply_args());
                assert_eq!(refused.code, Some(1), "{what} cannot be taken back\n{refused}\n{}", cloud.told());
                assert!(refused.stderr.contains("cannot go back"), "{refused}");
                (change.undo)(cloud);
                // What cannot be taken back ends with the cluster itself.
                project.berth(cloud, &example.apply_args()).ok();
            }
            example.settled(&format!("after {what}, drift and repair"));
            project.berth(cloud, &["drift"]).ok();
        }

        project.berth(cloud, &["delete", "-f", path, "--yes", "--allow-delete"]).ok();
        example.nothing_left();
    });
}
