//! Files that are not as they should be: a clear error, never a panic, never a silent default.

use berth_model::yaml::{MAX_ALIAS_NODES, MAX_DEPTH, MAX_DOCUMENTS, MAX_NODES};
use berth_model::{Diagnostic, MAX_FILE_BYTES, Severity, parse, too_large};

const VPC: &str =
    "apiVersion: civo.berth.dev/v1\nkind: CivoVpc\nmetadata:\n  name: net\nspec:\n  networkName: net\n  region: fra1\n";

fn told(bytes: &[u8]) -> Vec<String> {
    parse("m.yaml", bytes).1.iter().map(Diagnostic::to_string).collect()
}

#[test]
fn a_file_that_is_too_large_is_refused_by_its_size() {
    let bytes = vec![b' '; MAX_FILE_BYTES + 1];
    assert_eq!(told(&bytes), ["m.yaml: the file is too large: 5 MiB, and at most 4 MiB are read"]);
    let refusal = too_large("big.yaml", 100 * 1024 * 1024);
    assert_eq!(refusal.to_string(), "big.yaml: the file is too large: 100 MiB, and at most 4 MiB are read");
    assert_eq!(refusal.help, ["split the manifests over several files; a folder may hold any number of them"]);
}

#[test]
fn bytes_that_are_not_utf8_are_pointed_at() {
    let mut bytes = "# ünï\nname: ".as_bytes().to_vec();
    bytes.push(0xff);
    assert_eq!(told(&bytes), ["m.yaml:2:7: the file is not text in UTF-8: this byte cannot be read"]);
    assert_eq!(told(b"\x00\x01\x02").len(), 1);
}

#[test]
fn byte_order_marks_and_windows_lines_are_fine() {
    let (manifests, problems) = parse("m.yaml", format!("\u{feff}{VPC}").as_bytes());
    assert_eq!((manifests.len(), problems.len()), (1, 0));
    let windows = VPC.replace('\n', "\r\n").replace("fra1", "fra9");
    assert_eq!(told(windows.as_bytes()).len(), 1);
    let (_, problems) = parse("m.yaml", windows.as_bytes());
    let span = problems[0].span.unwrap();
    assert_eq!((span.line, span.column), (7, 11));
    assert_eq!(&windows[span.start..span.end], "fra9");
    let marked = format!("\u{feff}{}", VPC.replace("fra1", "fra9"));
    let span = parse("m.yaml", marked.as_bytes()).1[0].span.unwrap();
    assert_eq!(&marked[span.start..span.end], "fra9", "places count the mark");
}

#[test]
fn empty_files_are_said_to_be_empty() {
    for empty in ["", "\n\n", "# only a comment\n", "---\n---\n", "~\n"] {
        let (manifests, problems) = parse("m.yaml", empty.as_bytes());
        assert!(manifests.is_empty());
        assert_eq!(problems.len(), 1, "{empty:?}");
        assert_eq!(
            (problems[0].severity, problems[0].message.as_str()),
            (Severity::Warning, "the file holds no manifest")
        );
    }
}

#[test]
fn a_document_that_is_no_mapping_is_refused() {
    let expected = "m.yaml:1:1: a manifest must be a mapping with `apiVersion`, `kind`, `metadata` and `spec`";
    assert_eq!(told(b"just some words\n"), [expected]);
    assert_eq!(told(b"42\n"), [expected]);
    assert_eq!(
        told(b"- a\n- b\n"),
        ["m.yaml:1:3: a manifest must be a mapping with `apiVersion`, `kind`, `metadata` and `spec`"]
    );
}

#[test]
fn tabs_are_named_and_pointed_at() {
    assert_eq!(told(VPC.replace("  region", "\tregion").as_bytes()), ["m.yaml:7:1: a tab is used for indentation"]);
}

#[test]
fn json_with_tabs_is_fine() {
    let json = "{\n\t\"apiVersion\": \"civo.berth.dev/v1\",\n\t\"kind\": \"CivoVpc\",\n\t\"metadata\": {\"name\": \"net\"},\n\t\"spec\": {\n\t\t\"networkName\": \"net\",\n\t\t\"region\": \"fra1\"\n\t}\n}\n";
    let (manifests, problems) = parse("m.json", json.as_bytes());
    assert_eq!(problems.iter().map(Diagnostic::to_string).collect::<Vec<_>>(), Vec::<String>::new());
    assert_eq!(manifests[0].field_value("spec.networkName").as_deref(), Some("net"));
}

#[test]
fn after_a_broken_document_the_others_are_still_read() {
    let text = format!("{VPC}---\nkind: [\n---\n{}---\n{VPC}", VPC.replace("fra1", "fra9"));
    let (manifests, problems) = parse("m.yaml", text.as_bytes());
    let lines: Vec<u32> = problems.iter().filter_map(|problem| problem.span).map(|span| span.line).collect();
    assert_eq!(manifests.len(), 3);
    assert_eq!(manifests.iter().map(|manifest| manifest.faulty).collect::<Vec<_>>(), [false, true, false]);
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert_eq!(lines, [9, 17]);
}

#[test]
fn deep_nesting_is_refused() {
    for (open, close) in [("[", "]"), ("{a: ", "}")] {
        let text = format!("a: {}1{}\n", open.repeat(MAX_DEPTH + 10), close.repeat(MAX_DEPTH + 10));
        assert_eq!(told(text.as_bytes()).len(), 1);
        assert!(told(text.as_bytes())[0].ends_with("nested more than 64 levels deep"), "{:?}", told(text.as_bytes()));
    }
    let block: String = (0..MAX_DEPTH + 10).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    assert!(told(block.as_bytes())[0].ends_with("nested more than 64 levels deep"), "{:?}", told(block.as_bytes()));
}

#[test]
fn anchors_that_explode_are_refused() {
    let mut laughs = String::from("a: &a [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n");
    for (name, of) in ["b", "c", "d", "e", "f", "g", "h", "i"].iter().zip(["a", "b", "c", "d", "e", "f", "g", "h"]) {
        laughs.push_str(&format!("{name}: &{name} [{}]\n", vec![format!("*{of}"); 9].join(", ")));
    }
    let problems = told(laughs.as_bytes());
    assert_eq!(problems.len(), 1);
    assert!(problems[0].ends_with(&format!("aliases blow the document up to more than {MAX_ALIAS_NODES} values")));
    assert!(told(b"a: &a [*a]\n")[0].ends_with("this alias stands inside the value that it names"));
    let alias = "m.yaml:1:4: this alias names an anchor (`&…`) that is not defined before it";
    assert_eq!(told(b"a: *nobody\n"), [alias]);
}

#[test]
fn anchors_that_do_not_explode_are_fine() {
    let text = VPC.replace("name: net\nspec", "name: &n net\nspec").replace("networkName: net", "networkName: *n");
    assert_eq!(told(text.as_bytes()), Vec::<String>::new());
}

#[test]
fn a_document_of_too_many_values_is_refused() {
    let text = format!("a: [{}]\n", "1,".repeat(MAX_NODES + 5));
    assert!(told(text.as_bytes())[0].ends_with(&format!("the document holds more than {MAX_NODES} values")));
}

#[test]
fn a_fleet_fits_and_more_than_a_fleet_is_refused() {
    let many: String = "---\na: 1\n".repeat(MAX_DOCUMENTS + 3);
    let problems = told(many.as_bytes());
    assert!(problems.last().unwrap().ends_with("the file has more than 20000 documents"));
    let fleet: String = (0..2000)
        .map(|n| format!("---\n{}", VPC.replace("name: net\nspec", &format!("name: net-{n}\nspec"))))
        .collect();
    let (manifests, problems) = parse("fleet.yaml", fleet.as_bytes());
    assert_eq!((manifests.len(), problems.len()), (2000, 0));
    assert_eq!(manifests[1999].id.name, "net-1999");
    let source = manifests[1999].source.as_ref().unwrap();
    assert_eq!(source.document, 1999);
    let span = manifests[1999].span_of("metadata.name").unwrap();
    assert_eq!(&fleet[span.start..span.end], "net-1999");
    assert_eq!(span.line, source.name.line);
}

#[test]
fn secrets_are_not_shown() {
    let account =
        "apiVersion: byoc.berth.dev/v1\nkind: Account\nmetadata: {name: main}\nspec:\n  provider: civo\n  civo:\n";
    for token in [
        "    token: planted\n",
        "    token: {vaule: planted}\n",
        "    token: {value: 12345, fromEnv: planted}\n",
        "    token: {value: [planted]}\n",
    ] {
        let (_, problems) = parse("m.yaml", format!("{account}{token}").as_bytes());
        assert!(!problems.is_empty());
        for problem in problems {
            assert!(problem.secret, "the line must be hidden: {problem}");
            let json = serde_json::to_string(&problem).unwrap();
            assert!(!json.contains("planted") && !json.contains("12345"), "{json}");
        }
    }
    let (manifests, problems) = parse("m.yaml", format!("{account}    token: {{value: planted}}\n").as_bytes());
    assert!(problems.is_empty());
    assert!(!format!("{:?}", manifests[0]).contains("planted"));
    assert!(!manifests[0].redacted().to_json().to_string().contains("planted"));
    assert!(manifests[0].to_json().to_string().contains("planted"), "the caller seals");
    let mut sealed = manifests[0].clone();
    let mut seen = Vec::new();
    sealed.map_secrets(|path, value| {
        seen.push(format!("{path}={value}"));
        "sealed".to_owned()
    });
    assert_eq!(seen, ["spec.civo.token.value=planted"]);
    assert_eq!(sealed.field_value("spec.civo.token.value").as_deref(), Some("sealed"));
}

#[test]
fn diagnostics_are_stable_json() {
    let (_, problems) = parse("m.yaml", VPC.replace("fra1", "fra9").as_bytes());
    assert_eq!(
        serde_json::to_value(&problems[0]).unwrap(),
        serde_json::json!({
            "severity": "error", "file": "m.yaml", "line": 7, "column": 11, "path": "spec.region",
            "message": "region must be lon1, lon2, fra1, nyc1, phx1 or mum1, not `fra9`",
            "help": ["did you mean `fra1`?"],
        })
    );
}
