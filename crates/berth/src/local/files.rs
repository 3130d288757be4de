//! Reads what `-f` names: files, folders, standard input. Every size is checked before it is read.

use berth_model::{Diagnostic, MAX_FILE_BYTES, too_large};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

const FILE_BYTES: u64 = MAX_FILE_BYTES as u64;
/// All files of one command together, in bytes.
const TOTAL_BYTES: u64 = 256 << 20;
const MOST_FILES: usize = 100_000;
const DEEPEST_FOLDER: usize = 32;

#[derive(clap::Args, Clone, Debug)]
pub struct FileArgs {
    /// File, folder or `-` for standard input; may be given more than once
    #[arg(short, long = "filename", value_name = "FILE|DIR|-", required = true)]
    pub file: Vec<PathBuf>,
}

/// One file's content. The name is what messages call it.
#[derive(Debug)]
pub struct SourceFile {
    pub name: String,
    pub bytes: Vec<u8>,
}

/// What was read, and what could not be, in the order met. Both are reported together.
#[derive(Debug, Default)]
pub struct SourceFiles {
    pub sources: Vec<SourceFile>,
    pub problems: Vec<Diagnostic>,
    /// Names of both.
    pub order: Vec<String>,
}

pub fn read(paths: &[PathBuf]) -> SourceFiles {
    let mut reader = Reader::default();
    for path in paths {
        if path.as_os_str() == "-" {
            reader.stdin();
        } else {
            reader.path(path);
        }
    }
    SourceFiles { sources: reader.sources, problems: reader.problems, order: reader.order }
}

#[derive(Default)]
struct Reader {
    sources: Vec<SourceFile>,
    problems: Vec<Diagnostic>,
    order: Vec<String>,
    /// Real paths of what was visited: a file given twice is read once, and a link back up ends there.
    seen: BTreeSet<PathBuf>,
    bytes: u64,
    stdin_read: bool,
    full: bool,
    /// Manifest files met so far, read or not.
    found: usize,
}

impl Reader {
    fn report(&mut self, problem: Diagnostic) {
        self.found += 1;
        self.order.push(problem.file.clone());
        self.problems.push(problem);
    }

    fn problem(&mut self, name: &str, message: impl Into<String>) {
        self.report(Diagnostic::error(message).file(name));
    }

    fn failed(&mut self, path: &Path, error: &std::io::Error) {
        let name = path.display().to_string();
        let diagnostic = match error.kind() {
            std::io::ErrorKind::NotFound => Diagnostic::error("no such file or folder"),
            std::io::ErrorKind::PermissionDenied => Diagnostic::error("cannot be read: permission denied")
                .help(format!("check who may read it: ls -ld {name}")),
            _ => Diagnostic::error(format!("cannot be read: {error}")),
        };
        self.report(diagnostic.file(name));
    }

    fn stdin(&mut self) {
        if !std::mem::replace(&mut self.stdin_read, true) {
            let stdin = std::io::stdin();
            self.take("standard input", stdin.lock());
        }
    }

    /// A path that the user named: whatever its extension, it is meant.
    fn path(&mut self, path: &Path) {
        let meta = match std::fs::metadata(path) {
            Ok(meta) => meta,
            Err(error) => return self.failed(path, &error),
        };
        if !meta.is_dir() {
            return self.file(path, &meta);
        }
        if std::fs::canonicalize(path).is_ok_and(|real| self.seen.contains(&real)) {
            return;
        }
        let before = self.found;
        self.folder(path, 0);
        if before == self.found {
            let name = path.display().to_string();
            self.report(
                Diagnostic::error("no manifests in this folder")
                    .file(&name)
                    .help("manifests end in .yaml, .yml or .json; hidden files are skipped")
                    .help(format!("to write a first one:   berth init --out {}", path.join("cluster.yaml").display())),
            );
        }
    }

    fn folder(&mut self, path: &Path, depth: usize) {
        match std::fs::canonicalize(path) {
            Ok(real) => {
                if !self.seen.insert(real) {
                    return;
                }
            }
            Err(error) => return self.failed(path, &error),
        }
        if depth > DEEPEST_FOLDER {
            return self
                .problem(&path.display().to_string(), format!("folders nest deeper than {DEEPEST_FOLDER} levels"));
        }
        let mut entries: Vec<PathBuf> = match std::fs::read_dir(path) {
            Ok(entries) => entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect(),
            Err(error) => return self.failed(path, &error),
        };
        entries.sort();
        for entry in entries {
            let hidden = entry.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'));
            if hidden || self.full {
                continue;
            }
            match std::fs::metadata(&entry) {
                Ok(meta) if meta.is_dir() => self.folder(&entry, depth + 1),
                // Pipes and sockets in a folder would block or mean nothing; only files are manifests.
                Ok(meta) if meta.is_file() && is_manifest(&entry) => {
                    self.found += 1;
                    self.file(&entry, &meta);
                }
                Ok(_) => {}
                Err(error) if is_manifest(&entry) => self.failed(&entry, &error),
                Err(_) => {}
            }
        }
    }

    fn file(&mut self, path: &Path, meta: &std::fs::Metadata) {
        let name = path.display().to_string();
        if meta.is_file() && meta.len() > FILE_BYTES {
            return self.report(too_large(&name, meta.len()));
        }
        if let Ok(real) = std::fs::canonicalize(path)
            && meta.is_file()
            && !self.seen.insert(real)
        {
            return;
        }
        match File::open(path) {
            Ok(file) => self.take(&name, file),
            Err(error) => self.failed(path, &error),
        }
    }

    fn take(&mut self, name: &str, from: impl Read) {
        if self.sources.len() >= MOST_FILES || self.bytes > TOTAL_BYTES {
            self.full = true;
            let most = TOTAL_BYTES >> 20;
            return self.problem(name, format!("more than {MOST_FILES} files or {most} MB: the rest was not read"));
        }
        let mut bytes = Vec::new();
        if let Err(error) = from.take(FILE_BYTES + 1).read_to_end(&mut bytes) {
            return self.failed(Path::new(name), &error);
        }
        if bytes.len() as u64 > FILE_BYTES {
            return self.report(too_large(name, bytes.len() as u64));
        }
        self.bytes += bytes.len() as u64;
        self.order.push(name.to_owned());
        self.sources.push(SourceFile { name: name.to_owned(), bytes });
    }
}

fn is_manifest(path: &Path) -> bool {
    path.extension().is_some_and(|ext| ["yaml", "yml", "json"].iter().any(|known| ext.eq_ignore_ascii_case(known)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn names(read: &SourceFiles) -> Vec<String> {
        let short = |source: &SourceFile| source.name.rsplit('/').next().unwrap_or_default().to_owned();
        read.sources.iter().map(short).collect()
    }

    #[test]
    fn folders_are_read_in_order_without_hidden_files_and_others() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        for folder in ["b", ".berth", "empty"] {
            fs::create_dir(at(folder)).unwrap();
        }
        for name in ["z.yaml", "a.yml", "b/c.JSON", "b/notes.txt", ".hidden.yaml", ".berth/x.yaml"] {
            fs::write(at(name), "x").unwrap();
        }
        let all = read(&[root.path().into(), at("z.yaml")]);
        assert_eq!(names(&all), ["a.yml", "c.JSON", "z.yaml"]);
        assert!(all.problems.is_empty());
        // A file that was named is read, whatever its extension is.
        assert_eq!(names(&read(&[at("b/notes.txt")])), ["notes.txt"]);
        let empty = read(&[at("empty"), at("missing.yaml")]);
        let said: Vec<&str> = empty.problems.iter().map(|problem| problem.message.as_str()).collect();
        assert_eq!(said, ["no manifests in this folder", "no such file or folder"]);
    }

    #[cfg(unix)]
    #[test]
    fn links_that_lead_back_end_there() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("a")).unwrap();
        fs::write(root.path().join("a/x.yaml"), "x").unwrap();
        std::os::unix::fs::symlink(root.path(), root.path().join("a/up")).unwrap();
        std::os::unix::fs::symlink("nowhere.yaml", root.path().join("broken.yaml")).unwrap();
        std::os::unix::fs::symlink("loop.yaml", root.path().join("loop.yaml")).unwrap();
        let read = read(&[root.path().into()]);
        assert_eq!(names(&read), ["x.yaml"]);
        assert_eq!(read.problems.len(), 2, "{:?}", read.problems);
    }

    #[test]
    fn a_large_file_is_refused_by_its_size() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("big.yaml");
        fs::File::create(&path).unwrap().set_len(FILE_BYTES + 1).unwrap();
        let read = read(&[path]);
        assert!(read.sources.is_empty() && read.problems[0].message.contains("too large"));
    }
}
