//! `linerate testbed mesh`: hosts in network namespaces, with faults of known size.

use std::path::Path;

use linerate_model::exit::{Code, Outcome, Stop};
use linerate_runtime::cli::MeshTestbedAction;
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::console::say::{Format, Say};
use linerate_testbed::mesh::{Mesh, MeshNetwork, MeshSpec};
use linerate_testbed::redundant::{RedundantError, RedundantObstacle};
use serde::Serialize;

/// What `linerate testbed mesh ACTION --format json` prints.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct MeshTestbedDocument {
    schema: &'static str,
    #[cfg_attr(test, schemars(extend("enum" = ["add", "remove", "list"])))]
    action: &'static str,
    /// The mesh that exists now; null if there is none.
    mesh: Option<MeshNetwork>,
    /// Whether this call removed a mesh; null for other actions.
    removed: Option<bool>,
}

/// Carries out an action.
pub(super) fn run(action: &MeshTestbedAction, state: &Path, say: &Say) -> Outcome<()> {
    // A few quick steps, which end as a whole.
    let _interrupt = Interrupt::listen()?;
    let mut mesh = Mesh::open(state).map_err(stop)?;
    let (word, removed) = match action {
        MeshTestbedAction::Add { hosts, faults } => {
            let spec = MeshSpec {
                hosts: *hosts,
                faults: faults.clone(),
            };
            spec.check().map_err(|why| Stop::new(Code::Usage, why))?;
            mesh.add(&spec).map_err(stop)?;
            ("add", None)
        }
        MeshTestbedAction::Remove => ("remove", Some(mesh.remove().map_err(not_removed)?)),
        MeshTestbedAction::List => ("list", None),
    };
    let document = MeshTestbedDocument {
        schema: "linerate.testbed-mesh/1",
        action: word,
        mesh: mesh.network(),
        removed,
    };
    if say.format == Format::Json {
        return say.json(&document);
    }
    say.lines(&in_words(&document))?;
    if let (MeshTestbedAction::Add { .. }, Some(mesh)) = (action, &document.mesh) {
        let peers: Vec<String> = mesh
            .hosts
            .iter()
            .map(|host| format!("netns:{host}"))
            .collect();
        say.note(&format!(
            "to measure it: `linerate mesh {}`",
            peers.join(" ")
        ));
        say.note("to remove it: `linerate testbed mesh remove`");
    }
    Ok(())
}

fn in_words(document: &MeshTestbedDocument) -> String {
    if document.removed == Some(true) {
        return "mesh removed".to_owned();
    }
    let Some(mesh) = &document.mesh else {
        return "no mesh created by linerate".to_owned();
    };
    let faults: Vec<String> = mesh.spec.faults.iter().map(ToString::to_string).collect();
    let faults = if faults.is_empty() {
        "no fault".to_owned()
    } else {
        faults.join(", ")
    };
    let state = if mesh.ready {
        ""
    } else {
        "\npartially configured: remove it with `linerate testbed mesh remove`"
    };
    format!("{}: {faults}{state}", mesh.hosts.join(" "))
}

/// The hints of the redundant network name its commands.
fn stop(error: RedundantError) -> Stop {
    let hint = match &error {
        RedundantError::Exists { .. } => {
            "`linerate testbed mesh list` shows it, `linerate testbed mesh remove` removes it"
        }
        RedundantError::HalfMade => "run `linerate testbed mesh remove`",
        RedundantError::NotUndone { .. } => "run `linerate testbed mesh remove` to finish",
        _ => return super::redundant::stop(error),
    };
    super::redundant::stop(error).hint(hint)
}

/// A removal that failed has left something.
fn not_removed(error: RedundantError) -> Stop {
    match error.obstacle() {
        RedundantObstacle::Failed => Stop::new(Code::RestoreIncomplete, error.to_string())
            .hint("run `linerate testbed mesh remove` again"),
        _ => stop(error),
    }
}
