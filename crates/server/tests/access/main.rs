//! Who may call what: every method, by gRPC and by REST, with no token, bad ones, and each role in and out of scope.
//!
//! What is expected stands in a table of its own, which knows nothing of the options that the server reads. A method without
//! a row fails the test.

mod call;
mod hostile;
mod hostile_results;
mod hostile_texts;
mod more;
mod people;
mod revalidate;
mod scopes;
mod setup;
#[path = "../support/mod.rs"]
mod support;
mod table;

use call::{Answer, Protocol};
use setup::{Fixture, Server, Who};
use table::{Expected, Row, Scope, rows};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_method_answers_each_caller_as_the_table_says() {
    let server = Server::start().await;
    let place = Fixture::fill(&server).await;
    let methods = berth_server::api::methods::methods();
    let rows = rows();
    for method in methods.all() {
        assert!(rows.iter().any(|row| row.method == method.label), "{} has no row in the table", method.label);
    }
    for row in &rows {
        assert!(methods.all().iter().any(|method| method.label == row.method), "{} is no method", row.method);
    }
    let mut wrong = Vec::new();
    let mut calls = 0;
    for row in &rows {
        for who in Who::all() {
            for protocol in [Protocol::Grpc, Protocol::Rest] {
                let token = server.token(who, row.method == "Access.Logout").await;
                let request = (row.request)(&place);
                let Some(answer) = server.call(protocol, row.method, &request, token.as_deref()).await else {
                    assert_eq!(protocol, Protocol::Rest);
                    continue;
                };
                calls += 1;
                let expected = row.expected(who);
                if !fits(row, expected, &answer) {
                    wrong.push(format!("{} {protocol:?} {who:?}: expected {expected:?}, got {answer:?}", row.method));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {calls} calls:\n{}", wrong.len(), wrong.join("\n"));
    assert!(calls > 1200, "{calls}");
    server.stop().await;
}

/// Whether an answer is what was expected. An error names no resource that its caller may not see by more than they sent.
fn fits(row: &Row, expected: Expected, answer: &Answer) -> bool {
    match expected {
        Expected::Unauthenticated => answer.code == "unauthenticated",
        Expected::Denied => answer.code == "denied",
        Expected::Absent => answer.code == "not-found",
        Expected::Narrowed => answer.code == "ok" && !answer.body.contains("only-in-shop-dev"),
        Expected::Passes => {
            let (code, text) = row.passes;
            let shown = row.scope != Scope::List || answer.body.contains("only-in-shop-dev");
            answer.code == code && answer.message.contains(text) && (answer.code != "ok" || shown)
        }
    }
}
