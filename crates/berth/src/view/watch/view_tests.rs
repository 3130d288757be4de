use super::*;
use crate::view::watch::model::Key;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

fn id(kind: &str, name: &str) -> pb::ResourceId {
    pb::ResourceId { kind: kind.into(), name: name.into(), org: String::new(), env: "prod".into() }
}

fn model() -> Model {
    let mut model = Model::new("https://127.0.0.1:7443 (context home)".into());
    let resource = |kind: &str, name: &str, state: &str, message: &str| pb::Resource {
        id: Some(id(kind, name)),
        state: state.into(),
        message: message.into(),
        ..Default::default()
    };
    for one in [
        resource("CivoVpc", "shop-net", "Ready", ""),
        resource("CivoKubernetesCluster", "shop", "Pending", "building: 2 of 3 nodes ready"),
        resource("CivoKubernetesCluster", "blog", "Failed", "quota exceeded\nsecond line"),
    ] {
        model.put(messages::id_of(one.id.as_ref()), Some(&one));
    }
    model.loaded = true;
    model.tasks = vec![
        pb::Task {
            id: "0192f3a0-0000-7000-8000-000000000001".into(),
            op: "apply".into(),
            resource: Some(id("CivoKubernetesCluster", "shop")),
            state: "running".into(),
            worker: "w1".into(),
            attempts: 1,
            created_at: "2026-01-01T00:00:00Z".into(),
            started_at: "2026-01-01T00:00:10Z".into(),
            message: "building: 2 of 3 nodes ready".into(),
            ..Default::default()
        },
        pb::Task {
            id: "0192f3a0-0000-7000-8000-000000000002".into(),
            op: "drift".into(),
            resources: 40,
            state: "queued".into(),
            created_at: "2026-01-01T00:01:00Z".into(),
            ..Default::default()
        },
    ];
    model.see(pb::Event {
        id: 7,
        at: "2026-01-01T00:00:10Z".into(),
        resource: Some(id("CivoKubernetesCluster", "shop")),
        what: "started".into(),
        detail: "apply on w1 \u{1b}[2J".into(),
        task: "0192f3a0".into(),
        ..Default::default()
    });
    model.workers = vec![pb::Worker {
        name: "w1".into(),
        capacity: 16,
        running: 1,
        version: "0.1.0".into(),
        seen_at: "2026-01-01T00:01:20Z".into(),
        ..Default::default()
    }];
    model
}

fn picture(model: &Model, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let look = Look { now: "2026-01-01T00:01:22Z".parse().unwrap(), color: false };
    terminal.draw(|frame| draw(frame, model, &look)).unwrap();
    terminal.backend().to_string()
}

#[test]
fn wide_shows_four_panes() {
    insta::assert_snapshot!("watch_wide", picture(&model(), 120, 24));
}

#[test]
fn narrow_shows_the_chosen_pane_and_events() {
    insta::assert_snapshot!("watch_narrow", picture(&model(), 80, 24));
}

#[test]
fn low_shows_one_pane() {
    let mut model = model();
    model.pane = Pane::Fleet;
    insta::assert_snapshot!("watch_low", picture(&model, 60, 10));
}

#[test]
fn details_cover_what_is_behind_them() {
    let mut model = model();
    model.press(Key::Enter);
    insta::assert_snapshot!("watch_details", picture(&model, 80, 24));
}

#[test]
fn a_filter_and_trouble_are_said() {
    let mut model = model();
    for key in [Key::Type('/'), Key::Type('b'), Key::Type('l')] {
        model.press(key);
    }
    assert!(picture(&model, 80, 24).contains("/bl▏"));
    model.press(Key::Enter);
    model.pane = Pane::Fleet;
    let shown = picture(&model, 80, 24);
    assert!(shown.contains("Fleet (1)") && shown.contains("blog") && !shown.contains("shop-net"), "{shown}");
    model.trouble = Some("cannot reach the server".into());
    assert!(picture(&model, 80, 24).contains("cannot reach the server; trying again"));
}

#[test]
fn no_size_is_too_small_and_nothing_raw_is_drawn() {
    let mut model = model();
    model.press(Key::Enter);
    for width in [1, 5, 19, 20, 40, 99, 100, 300] {
        for height in [1, 4, 5, 19, 20, 60] {
            let shown = picture(&model, width, height);
            assert!(!shown.contains('\u{1b}'));
        }
    }
}
