//! The commands of the documents run as they are written. A comment before each block, which readers do not see, says where:
//! `<!-- run: laptop -->`, `sandbox` or `server`, with `, serves` for lines that stay in the foreground; `<!-- run: elsewhere, NAME -->`
//! for blocks that a test of that name runs; or `<!-- not run: why -->`.

use crate::quickstart::{ports, said, shell, started};
use crate::support::{LONGEST, root};
use berth_sandbox::{Config, Sandbox, Speed};
use std::path::{Path, PathBuf};

/// Blocks that no test runs; each says why.
const NOT_RUN_MAX: usize = 6;
const LANGUAGES: [&str; 8] = ["sh", "console", "yaml", "ini", "text", "json", "promql", "hcl"];

#[derive(Debug)]
struct Block {
    file: String,
    line: usize,
    language: String,
    /// What the comment before it says.
    mark: String,
    text: String,
}

fn documents() -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(root().join("docs"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "md"))
        .collect();
    files.push(root().join("README.md"));
    files.sort();
    files
}

fn blocks(path: &Path) -> Vec<Block> {
    let text = std::fs::read_to_string(path).unwrap();
    let file = path.file_name().unwrap().to_string_lossy().into_owned();
    let mut found: Vec<Block> = Vec::new();
    let (mut open, mut mark) = (false, String::new());
    for (number, line) in text.lines().enumerate() {
        match (line.strip_prefix("```"), open) {
            (Some(_), true) => open = false,
            (Some(language), false) => {
                open = true;
                let (language, mark) = (language.trim().to_owned(), std::mem::take(&mut mark));
                found.push(Block { file: file.clone(), line: number + 1, language, mark, text: String::new() });
            }
            (None, true) => {
                let block = found.last_mut().expect("a block");
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, false) => {
                let said = line.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->"));
                mark = said.unwrap_or_default().to_owned();
            }
        }
    }
    assert!(!open, "{file}: a block is not closed");
    found
}

impl Block {
    fn place(&self) -> String {
        format!("{}:{}", self.file, self.line)
    }

    fn is_commands(&self) -> bool {
        matches!(self.language.as_str(), "sh" | "console")
    }

    /// The commands: without the comments behind them, whole where they go on in the next line.
    fn commands(&self) -> Vec<String> {
        let text = self.text.replace("\\\n", " ");
        let lines = text.lines().filter_map(|line| match self.language.as_str() {
            "console" => line.strip_prefix("$ "),
            _ => Some(line),
        });
        let bare = |line: &str| line.split("  #").next().unwrap_or_default().trim().to_owned();
        lines.map(bare).filter(|line| !line.is_empty()).collect()
    }
}

/// The line as a test has to type it: it says yes where people are asked, waits for nothing, and takes no port that is in use.
fn typed(line: &str) -> String {
    let mut line = line.replace("--speed 20", "--speed max");
    if line.starts_with("berth sandbox") && !line.contains("--stop") {
        line.push_str(" --civo 127.0.0.1:0 --digitalocean 127.0.0.1:0 --aws 127.0.0.1:0 --kube 127.0.0.1:0");
    }
    let asks = ["berth apply ", "berth delete "].iter().any(|verb| line.starts_with(verb));
    if asks && !line.contains("--yes") {
        line.push_str(if line.starts_with("berth delete") { " --yes --allow-delete" } else { " --yes" });
    }
    match line.contains("--detailed-exitcode") {
        // Something to do, as the document says.
        true => format!("code=0; {line} || code=$?; [ $code -eq 2 ]"),
        false => line,
    }
}

/// Runs a block as one script, so that what it exports holds for its later lines.
fn run(block: &Block, folder: &Path, env: &[(&str, String)], edit: &dyn Fn(String) -> String) {
    let lines: Vec<String> = block.commands().iter().map(|line| edit(typed(line))).collect();
    assert!(!lines.is_empty(), "{}: no command", block.place());
    let script = format!("set -eo pipefail\n{}\n", lines.join("\n"));
    let output = shell(folder, &script).envs(env.iter().map(|(name, value)| (*name, value))).output().unwrap();
    assert!(output.status.success(), "{}:\n{script}\n{}", block.place(), said(&output));
}

#[test]
fn every_block_of_the_documents_says_how_it_is_run() {
    let mut not_run = Vec::new();
    for block in documents().iter().flat_map(|path| blocks(path)) {
        let place = block.place();
        assert!(LANGUAGES.contains(&block.language.as_str()), "{place}: what language is `{}`?", block.language);
        if !block.is_commands() {
            continue;
        }
        match block.mark.split_once(": ") {
            Some(("run", place)) if ["laptop", "sandbox", "server"].contains(&place.trim_end_matches(", serves")) => {}
            Some(("run", place)) => {
                let name = place.strip_prefix("elsewhere, ").unwrap_or_else(|| panic!("{place}: `{}`", block.mark));
                assert!(
                    crate::claims::tests().iter().any(|test| test.contains(name)),
                    "{place}: no test is named `{name}`"
                );
            }
            Some(("not run", why)) if why.len() > 20 => not_run.push(place),
            _ => panic!("{place}: a comment before the block says how it is run, not `{}`", block.mark),
        }
    }
    assert!(not_run.len() <= NOT_RUN_MAX, "too many are not run: {not_run:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documents_commands_work_on_a_laptop() {
    for path in documents() {
        let mine: Vec<Block> = blocks(&path)
            .into_iter()
            .filter(|block| block.mark.starts_with("run: laptop") || block.mark.starts_with("run: sandbox"))
            .collect();
        if mine.is_empty() {
            continue;
        }
        let sandbox = Sandbox::start(Config { speed: Speed::Instant, ..Config::default() }).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().to_owned();
        std::os::unix::fs::symlink(root().join("examples"), here.join("examples")).unwrap();
        let made = shell(&here, "berth init --template prod --out shop/cluster.yaml").output().unwrap();
        assert!(made.status.success(), "{}", said(&made));
        let env = [("CIVO_API_URL", sandbox.url(berth_sandbox::civo::NAME)), ("CIVO_TOKEN", "any".to_owned())];
        let address = sandbox.url(berth_sandbox::civo::NAME).trim_start_matches("http://").to_owned();
        let work = tokio::task::spawn_blocking(move || {
            for block in mine {
                if block.mark.ends_with(", serves") {
                    for line in block.commands() {
                        assert!(started(&here, &typed(&line), "127.0.0.1:").stop(LONGEST), "{line} stops");
                    }
                } else {
                    run(&block, &here, &env, &|line| line.replace("localhost:7070", &address));
                }
            }
        });
        work.await.unwrap();
        sandbox.stop().await;
    }
}

#[test]
fn the_documents_commands_work_with_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let port = ports().to_string();
    let serve = format!("berth server --sandbox --speed max --listen 127.0.0.1:{port}");
    let _server = started(here, &serve, "berth login");
    let put = |name: &str, text: &str| std::fs::write(here.join(name), text).unwrap();
    put("passphrase.txt", "a passphrase that nobody guesses\n");
    put(
        "net.yaml",
        "apiVersion: civo.berth.dev/v1\nkind: CivoVpc\nmetadata: {name: net}\nspec: {networkName: net, region: fra1}\n",
    );
    let login =
        format!("berth login https://127.0.0.1:{port} --ca berth-server/ca.pem --token-file berth-server/admin.token");
    let output = shell(here, &login).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let edit = |line: String| line.replace("7443", &port);
    for path in documents() {
        for block in blocks(&path).iter().filter(|block| block.mark.starts_with("run: server")) {
            if block.mark.ends_with(", serves") {
                for line in block.commands() {
                    // Its server is a simulated one here.
                    let mut worker = started(here, &format!("{} --sandbox", edit(line)), "");
                    until_listed(here);
                    assert!(worker.stop(LONGEST), "the worker stops");
                }
            } else {
                run(block, here, &[], &edit);
            }
        }
    }
}

/// A worker says nothing when all is well; the server lists it.
fn until_listed(folder: &Path) {
    for _ in 0..200 {
        let output =
            shell(folder, "berth workers -o json | jq -e 'map(select(.services | length > 0)) | length > 0'").output();
        if output.unwrap().status.success() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    panic!("the worker does not appear: {}", std::fs::read_to_string(folder.join("served.log")).unwrap_or_default());
}
