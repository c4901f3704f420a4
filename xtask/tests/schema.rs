//! The schemas under `schema/` are held against the JSON Schema specification itself (draft 2020-12).
//! Whether real output fits them is tested where the output is made, in `crates/linerate`.

use std::path::Path;

use boon::{Compiler, Draft, Schemas};

#[test]
fn every_schema_is_a_schema() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schema");
    let mut seen = 0;
    for entry in std::fs::read_dir(&folder).expect("the folder of schemas") {
        let path = entry.expect("a schema").path();
        let mut schemas = Schemas::new();
        let mut compiler = Compiler::new();
        compiler.set_default_draft(Draft::V2020_12);
        let location = path.to_str().expect("a path in UTF-8");
        if let Err(error) = compiler.compile(location, &mut schemas) {
            panic!("{location}: {error:#}");
        }
        seen += 1;
    }
    assert!(seen >= 6, "only {seen} schemas in {}", folder.display());
}
