//! The schema that editors load from the repository is the one that the kinds give.

#[test]
fn the_published_schema_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schemas/berth.schema.json");
    // As in `validation`: writes it anew, to be looked at before it is kept.
    if std::env::var_os("BERTH_BLESS").is_some() {
        std::fs::write(path, serde_json::to_string_pretty(&berth_model::schema_all()).unwrap() + "\n").unwrap();
    }
    let published: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(published, berth_model::schema_all(), "write it anew: berth schema --all > schemas/berth.schema.json");
}
