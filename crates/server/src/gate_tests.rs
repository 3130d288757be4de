use super::*;
use serde_json::json;

fn id() -> ResourceId {
    ResourceId { env: "prod".into(), ..ResourceId::new("CivoKubernetesCluster", "shop") }
}

fn unit(key: &str, op: Option<Op>, changes: &[(&str, Value, Value, ChangeEffect)]) -> UnitPlan {
    let changes = changes.iter().map(|(field, from, to, effect)| FieldChange {
        field: (*field).into(),
        from: from.clone(),
        to: to.clone(),
        effect: *effect,
    });
    UnitPlan { op, changes: changes.collect(), ..UnitPlan::untouched(key, format!("civo.{key}"), "") }
}

fn plan(action: Action, units: Vec<UnitPlan>) -> Plan {
    let resource =
        ResourcePlan { id: id(), action, units, after: Vec::new(), typical_seconds: Some(90), strays: Vec::new() };
    Plan { resources: vec![resource], ..Plan::default() }
}

fn count(to: i64) -> Plan {
    plan(
        Action::Update,
        vec![unit("cluster", Some(Op::Update), &[("node_count", json!(3), json!(to), ChangeEffect::InPlace)])],
    )
}

fn input() -> GateInput {
    GateInput {
        generation: 2,
        applied_by: "token:ci".into(),
        ..GateInput::new(id(), json!({"spec": {"nodeCount": 5}}))
    }
}

fn approved(plan: &Plan) -> GateInput {
    let approval = Approval { by: "oidc:bob".into(), digest: digest(plan), plan: plan.clone(), generation: 2 };
    GateInput { approval: Some(approval), allow_replace: true, allow_data_loss: true, ..input() }
}

fn protected() -> Environment {
    Environment { name: "prod".into(), protected: true, ..Environment::default() }
}

fn now() -> Timestamp {
    "2026-11-13T12:00:00Z".parse().unwrap()
}

fn decide(plan: &Plan, input: &GateInput, environment: Option<&Environment>) -> Gate {
    gate(plan, input, environment, &[], now())
}

fn proceeds(plan: &Plan, input: &GateInput) -> bool {
    matches!(decide(plan, input, Some(&protected())), Gate::Proceed { .. })
}

fn blocked(plan: &Plan, input: &GateInput) -> String {
    match decide(plan, input, None) {
        Gate::Block { message, .. } => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_takes_something_away_must_be_allowed() {
    let replace = plan(Action::Replace, vec![unit("cluster", Some(Op::Replace), &[])]);
    assert!(blocked(&replace, &input()).contains("--allow-replace"));
    let allowed = GateInput { allow_replace: true, ..input() };
    assert!(matches!(decide(&replace, &allowed, None), Gate::Proceed { .. }));
    // Data is more than an object.
    let mut losing = replace.clone();
    losing.resources[0].units[0].loses_data = true;
    assert!(blocked(&losing, &allowed).contains("would lose data"));
    let all = GateInput { allow_data_loss: true, ..allowed };
    assert!(matches!(decide(&losing, &all, None), Gate::Proceed { .. }));
    // Also a pool that is no longer declared, and nodes that roll; not what is gone already.
    let mut removed = plan(Action::Update, vec![unit("pool/gpu", Some(Op::Delete), &[])]);
    assert!(blocked(&removed, &input()).contains("partly"));
    removed.resources[0].units[0].reason = Some(PlanReason::AlreadyReplaced);
    assert!(matches!(decide(&removed, &input(), None), Gate::Proceed { .. }));
    let roll = plan(
        Action::Update,
        vec![unit("pool", Some(Op::Update), &[("size", json!("m"), json!("l"), ChangeEffect::Roll)])],
    );
    assert!(blocked(&roll, &input()).contains("--allow-replace"));
}

#[test]
fn deleting_a_resource_is_its_own_permission_and_protection_forbids_it() {
    let mut delete = plan(Action::Delete, vec![unit("cluster", Some(Op::Delete), &[])]);
    delete.resources[0].units[0].loses_data = true;
    assert!(matches!(decide(&delete, &input(), None), Gate::Proceed { .. }));
    let manifest = json!({"metadata": {"annotations": {"berth.dev/protect": "true"}}});
    let kept = GateInput { manifest: manifest.clone(), ..input() };
    assert!(blocked(&delete, &kept).contains("protected by its annotation"));
    // Taking the annotation off and replacing in one step is no way around it.
    let replace = plan(Action::Replace, vec![unit("cluster", Some(Op::Replace), &[])]);
    let sly = GateInput { old: Some(manifest), allow_replace: true, allow_data_loss: true, ..input() };
    assert!(blocked(&replace, &sly).contains("protected"));
    assert!(matches!(decide(&count(5), &sly, None), Gate::Proceed { .. }));
}

#[test]
fn a_protected_environment_waits_for_the_approval_of_this_plan() {
    let plan = count(5);
    let Gate::AwaitApproval { digest: waits_for, .. } = decide(&plan, &input(), Some(&protected())) else {
        panic!("it must wait")
    };
    assert_eq!(waits_for, digest(&plan));
    assert!(proceeds(&plan, &approved(&plan)));
    // A changed plan needs a new approval, and so does another generation with the same plan.
    assert!(!proceeds(&count(7), &approved(&plan)));
    assert!(!proceeds(&plan, &GateInput { generation: 3, ..approved(&plan) }));
    // Nothing to do needs none.
    let nothing = super::tests::plan(Action::Unchanged, vec![unit("cluster", None, &[])]);
    assert!(proceeds(&nothing, &input()) && proceeds(&Plan::default(), &input()));
    assert!(matches!(decide(&plan, &input(), Some(&Environment::default())), Gate::Proceed { .. }));
}

/// After a crash, what remains of an approved plan goes on; anything beyond it asks again.
#[test]
fn the_rest_of_an_approved_plan_needs_no_second_approval() {
    let create = |key: &str| unit(key, Some(Op::Create), &[("size", Value::Null, json!("m"), ChangeEffect::InPlace)]);
    let whole = plan(Action::Create, vec![create("network"), create("cluster"), create("pool/gpu")]);
    let rest = plan(
        Action::Update,
        vec![unit("network", None, &[]), unit("cluster", Some(Op::Adopt), &[]), create("pool/gpu")],
    );
    assert!(proceeds(&rest, &approved(&whole)));
    // What was made half is brought to what was approved.
    let mend = plan(
        Action::Update,
        vec![unit("cluster", Some(Op::Update), &[("labels", json!([]), json!(["a"]), ChangeEffect::InPlace)])],
    );
    assert!(proceeds(&mend, &approved(&whole)));
    // But replacing or deleting was never shown.
    for op in [Op::Replace, Op::Delete] {
        assert!(!proceeds(&plan(Action::Replace, vec![unit("cluster", Some(op), &[])]), &approved(&whole)), "{op:?}");
    }
    let other = plan(Action::Update, vec![create("pool/other")]);
    assert!(!proceeds(&other, &approved(&whole)));

    // A replacement: the new object is made, the old one still to go.
    let mut replace = plan(Action::Replace, vec![unit("cluster", Some(Op::Replace), &[])]);
    replace.resources[0].units[0].loses_data = true;
    let mut old = unit("cluster", Some(Op::Delete), &[]);
    old.loses_data = true;
    let rest = plan(Action::Update, vec![unit("cluster", Some(Op::Adopt), &[]), old.clone()]);
    assert!(proceeds(&rest, &approved(&replace)));
    assert!(proceeds(&plan(Action::Create, vec![create("cluster")]), &approved(&replace)));
    // The approved one said that no data goes.
    replace.resources[0].units[0].loses_data = false;
    assert!(!proceeds(&rest, &approved(&replace)));
}

#[test]
fn an_update_goes_on_only_where_it_was_to_lead() {
    let change = |field: &str, from: i64, to: i64, effect| (field.to_owned(), json!(from), json!(to), effect);
    let update = |changes: &[(String, Value, Value, ChangeEffect)]| {
        let changes: Vec<_> = changes.iter().map(|(f, a, b, t)| (f.as_str(), a.clone(), b.clone(), *t)).collect();
        plan(Action::Update, vec![unit("cluster", Some(Op::Update), &changes)])
    };
    let whole = update(&[change("count", 3, 5, ChangeEffect::InPlace), change("version", 29, 30, ChangeEffect::Roll)]);
    assert!(proceeds(&update(&[change("version", 29, 30, ChangeEffect::Roll)]), &approved(&whole)));
    // Somebody scaled it by hand meanwhile: it still leads to the five that were approved.
    assert!(proceeds(&update(&[change("count", 4, 5, ChangeEffect::InPlace)]), &approved(&whole)));
    assert!(!proceeds(&update(&[change("count", 3, 9, ChangeEffect::InPlace)]), &approved(&whole)));
    assert!(!proceeds(&update(&[change("count", 3, 5, ChangeEffect::Roll)]), &approved(&whole)));
    assert!(!proceeds(&update(&[change("region", 1, 2, ChangeEffect::InPlace)]), &approved(&whole)));
    // A value that was to be known after apply is known by now.
    let unknown = berth_engine::unknown("id of network");
    let later = plan(
        Action::Update,
        vec![unit("cluster", Some(Op::Update), &[("net", json!(1), unknown, ChangeEffect::InPlace)])],
    );
    assert!(proceeds(&update(&[change("net", 1, 77, ChangeEffect::InPlace)]), &approved(&later)));
    // An approved update is no permission to delete the resource, nor the other way round.
    let delete = plan(Action::Delete, vec![unit("cluster", Some(Op::Delete), &[])]);
    assert!(!proceeds(&delete, &approved(&whole)) && !proceeds(&whole, &approved(&delete)));
    let mut both = delete.clone();
    both.resources[0].units.push(unit("pool/gpu", Some(Op::Delete), &[]));
    assert!(proceeds(&delete, &approved(&both)) && !proceeds(&both, &approved(&delete)));
}

#[test]
fn a_digest_names_what_is_done() {
    let mut same = count(5);
    same.resources[0].typical_seconds = None;
    same.resources[0].units[0].reason = Some(PlanReason::Kept);
    same.resources[0].units.push(unit("network", None, &[]));
    assert_eq!(digest(&same), digest(&count(5)));
    assert_ne!(digest(&count(5)), digest(&count(6)));
    let mut loses = count(5);
    loses.resources[0].units[0].loses_data = true;
    assert_ne!(digest(&loses), digest(&count(5)));
    let text: Plan = serde_json::from_str(&serde_json::to_string(&count(5)).unwrap()).unwrap();
    assert_eq!(digest(&text), digest(&count(5)), "a stored plan has the same digest");
    assert_eq!(digest(&count(5)).len(), 64);
}

#[test]
fn policies_deny_and_warn() {
    let policy = |name: &str, rule: &str, effect: &str| {
        let spec = json!({"rule": rule, "effect": effect, "message": format!("says {name}")});
        Policy::of(&ResourceId::new("Policy", name), &json!({"spec": spec}))
    };
    let warn = policy("big", "spec.nodeCount > 4", "warn");
    let deny = policy("friday", "now.getDayOfWeek() == 5", "deny");
    let quiet = policy("quiet", "action == 'delete'", "deny");
    match gate(&count(5), &input(), None, &[warn.clone(), quiet.clone()], now()) {
        Gate::Proceed { warnings } => assert_eq!(warnings[0].message, "says big"),
        other => panic!("{other:?}"),
    }
    match gate(&count(5), &input(), None, &[warn.clone(), deny], now()) {
        Gate::Block { message, verdicts } => {
            assert_eq!(message, "policy friday denies it: says friday");
            assert_eq!(verdicts.len(), 2);
        }
        other => panic!("{other:?}"),
    }
    // Warnings stay beside a waiting approval; an approval does not overrule a denial.
    match gate(&count(5), &input(), Some(&protected()), &[warn], now()) {
        Gate::AwaitApproval { warnings, .. } => assert_eq!(warnings.len(), 1),
        other => panic!("{other:?}"),
    }
    let broken = policy("broken", "spec.nope > 1", "deny");
    match gate(&count(5), &approved(&count(5)), Some(&protected()), &[broken], now()) {
        Gate::Block { message, .. } => assert!(message.contains("policy broken denies it"), "{message}"),
        other => panic!("{other:?}"),
    }
}
