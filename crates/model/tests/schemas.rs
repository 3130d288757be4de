//! The schema that editors load from the repository is the one that the kinds give.

#[test]
fn the_published_schema_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schemas/berth.schema.json");
    let published: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(published, berth_model::schema_all(), "write it anew: berth schema --all > schemas/berth.schema.json");
}
