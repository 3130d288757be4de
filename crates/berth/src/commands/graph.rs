//! `berth graph`: resources and the references between them.

use crate::args::{Address, LookArgs, ScopeArgs};
use crate::backend::{Access, with_backend};
use crate::failure::{CommandResult, Exit, Failure};
use crate::local::manifests;
use crate::view::graph::{Drawing, Edge, Graph};
use crate::view::output::{self, Format};
use berth_model::Manifest;
use std::collections::HashSet;
use std::path::PathBuf;

/// Draw resources and the references between them
#[derive(clap::Args, Debug)]
#[command(before_help = "Examples:\n  berth graph -f shop/\n  berth graph --format svg > berth.svg")]
pub struct Args {
    /// Only what these need, and what needs them: Kind/name, or a kind
    #[arg(value_name = "RESOURCE")]
    resources: Vec<String>,
    /// File, folder or `-` for standard input; without it, what is applied
    #[arg(short, long = "filename", value_name = "FILE|DIR|-")]
    file: Vec<PathBuf>,
    /// How to draw it: text, dot, mermaid or svg
    #[arg(long, value_enum, default_value_t = Drawing::Text, hide_possible_values = true)]
    format: Drawing,
    #[command(flatten)]
    scope: ScopeArgs,
    #[command(flatten)]
    look: LookArgs,
}

pub fn run(args: Args) -> CommandResult {
    let which = args.look.which()?;
    let scope = which.scope(&args.scope);
    let mut graph = if args.file.is_empty() {
        let applied =
            with_backend(&args.look.workspace(), Access::Read, async |backend| manifests::stored(backend).await)?;
        let known = HashSet::new();
        let needs = berth_model::graph(&applied, &known);
        build(&applied, &needs)
    } else {
        let loaded = manifests::load(&args.file, &which)?;
        if loaded.has_errors() {
            return loaded.refuse(Format::Table);
        }
        loaded.print();
        build(&loaded.manifests, &loaded.graph)
    };
    let mut addresses = Vec::new();
    for text in &args.resources {
        let address = Address::parse(text, &scope)?;
        if !graph.nodes.iter().any(|id| address.matches(id)) {
            return Err(
                Failure::new(format!("{address} is not among these resources")).help("to see all:   berth graph")
            );
        }
        addresses.push(address);
    }
    let narrowed = scope.is_given();
    if !addresses.is_empty() {
        graph = graph.around(|id| addresses.iter().any(|address| address.matches(id)));
    } else if narrowed {
        graph = graph.around(|id| scope.matches(id));
    }
    output::print(&graph.draw(args.format))?;
    Ok(Exit::Done)
}

/// Resources that are needed and applied already are drawn, too.
fn build(manifests: &[Manifest], needs: &berth_model::Graph) -> Graph {
    let mut graph = Graph { nodes: manifests.iter().map(|manifest| manifest.id.clone()).collect(), ..Graph::default() };
    for (manifest, needs) in manifests.iter().zip(&needs.needs) {
        for need in needs {
            graph.nodes.insert(need.to.clone());
            graph.edges.insert(Edge { from: manifest.id.clone(), to: need.to.clone(), field: need.field.clone() });
        }
    }
    graph
}
